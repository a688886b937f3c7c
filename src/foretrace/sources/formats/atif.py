"""ATIF trajectories, versions 1.0 to 1.8 (Harbor's Agent Trajectory Interchange Format): documents, lists, or lines.

A step has one stamp for its reply and all results, so durations are not taken from stamps. Replies that were copied
from an earlier trajectory (`is_copied_context`) have the author `demo`: they were shown, not made. Task and reward of a
trajectory that Harbor wrote come from the trial's `result.json`, one folder up. Trajectories in other files that a
document names are not read with it: each file is an input of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Author, Failure, Outcome, Parent, Sampled, Task, ToolCall, Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead, read_objects
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation, make_call, measure, read_time
from foretrace.sources.file_traces import RecordFiles, finish_trace, make_child_task, make_task, read_usage
from foretrace.sources.json_values import (
    as_dict,
    as_dicts,
    as_number,
    as_numbers,
    as_token_ids,
    get_bool,
    get_dict,
    get_dicts,
    get_list,
    get_text,
)
from foretrace.sources.openai_messages import find_unknown_fields, read_tool_specs

_MAX_DEPTH = 8
"""How deeply agents that start agents may be nested."""
_VERSIONS = frozenset(f"ATIF-v1.{minor}" for minor in range(9))
_DOCUMENT = frozenset({
    "schema_version", "agent", "steps", "session_id", "trajectory_id", "subagent_trajectories"
})  # fmt: skip
_AGENT = frozenset({"name", "version", "model_name", "tool_definitions"})
_STEP = frozenset({
    "step_id", "timestamp", "source", "message", "model_name", "reasoning_content", "tool_calls", "observation",
    "metrics", "is_copied_context", "extra",
})  # fmt: skip
_CALL = frozenset({"tool_call_id", "function_name", "arguments", "extra"})
_RESULT = frozenset({"source_call_id", "content", "extra"})
_METRICS = frozenset({"prompt_tokens", "completion_tokens", "prompt_token_ids", "completion_token_ids", "logprobs"})


class Atif(RecordFiles):
    """Each agent that a trajectory starts is another trace, whose `parent` names the call."""

    name = "atif"

    def recognize(self, head: FileHead) -> str | None:
        """By the version of the schema."""
        version = get_text(head.first, "schema_version")
        return f"schema_version is {version[:20]}" if version.startswith("ATIF-v") else None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        return _Reader(path, account).read(record, None, None, 0)

    def list_companions(self, path: Path) -> Iterable[Path]:
        return filter(None, [_find_result(path)])


class _Reader:
    def __init__(self, path: Path, account: Account) -> None:
        self._path = path
        self._account = account
        self._keys: Counter[str] = Counter()

    def read(
        self, document: dict[str, Any], parent: Parent | None, group: Task | None, depth: int
    ) -> Iterator[Trace | Drop]:
        key = f"atif@{self._make_own_id(document)}"
        trial = _read_result(self._path) if group is None else {}
        task = make_child_task(group, key) if group else make_task(key, instance=get_text(trial, "task_name"))
        yield self._make_trace(document, key, task, parent, _make_outcome(trial))
        children = get_dicts(document, "subagent_trajectories")
        if children and depth >= _MAX_DEPTH:
            self._account.note("subagents that lie too deep")
            return
        calls = dict(_find_references(document)) if children else {}
        for child in children:
            call_id = calls.get(get_text(child, "trajectory_id")) or calls.get(get_text(child, "session_id"))
            yield from self.read(child, Parent(key=key, call_id=call_id), task, depth + 1)

    def _make_own_id(self, document: dict[str, Any]) -> str:
        """An id that stays the same if the file is moved or the trajectory grows."""
        names = [get_text(document, field) for field in ("session_id", "trajectory_id")]
        own_id = "/".join(dict.fromkeys(filter(None, names)))
        if not own_id:
            first = get_dicts(document, "steps")[:3]
            about = [get_dict(document, "agent").get("name"), [step.get("message") for step in first]]
            own_id = digest(msgspec.json.encode(about).decode())
        self._keys[own_id] += 1
        count = self._keys[own_id]
        return own_id if count == 1 else f"{own_id}#{count}"

    def _make_trace(
        self, document: dict[str, Any], key: str, task: Task, parent: Parent | None, outcome: Outcome
    ) -> Trace | Drop:
        account, agent = self._account, get_dict(document, "agent")
        talk = Conversation(account, durations_from_stamps=False)
        steps = get_list(document, "steps")
        for index, step in account.drop_unread(steps):
            talk.types[f"{step.get('source')} steps"] += 1
            _add_step(talk, step, index)
        schema, name = get_text(document, "schema_version"), get_text(agent, "name")
        if schema and schema not in _VERSIONS:
            account.note(f"trajectories of version {schema[:20]}, which is not known, read as far as it is like others")
        about = find_unknown_fields(agent, _AGENT)
        models = (get_text(each, "model_name") for each in (agent, *as_dicts(steps)))
        return finish_trace(
            talk,
            key=key,
            task=task,
            path=self._path,
            raw_id=get_text(document, "session_id", "trajectory_id"),
            agent=name,
            model=next(filter(None, models), None),
            tool_versions={name: get_text(agent, "version")},
            created_at=next(filter(None, (get_text(step, "timestamp") for step in steps)), None),
            tools=read_tool_specs(agent.get("tool_definitions")),
            outcome=outcome,
            parent=parent,
            extra=find_unknown_fields(document, _DOCUMENT) | ({"agent": about} if about else {}),
        )


def _find_result(path: Path) -> Path | None:
    """Harbor's result of the trial: `TRIAL/result.json` for `TRIAL/agent/trajectory.json`."""
    result = path.parent.parent / "result.json"
    return result if path.parent.name == "agent" and result.is_file() else None


def _read_result(path: Path) -> dict[str, Any]:
    result = _find_result(path)
    found = next(read_objects(result), {}) if result is not None else {}
    return found if isinstance(found, dict) and "trial_name" in found else {}


def _make_outcome(trial: dict[str, Any]) -> Outcome:
    """A reward of 1 or more is success. If there are several rewards and none is named `reward`, both are unknown."""
    given = get_dict(get_dict(trial, "verifier_result"), "rewards")
    rewards = {name: number for name, value in given.items() if (number := as_number(value)) is not None}
    reward = rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)
    failed = get_dict(trial, "exception_info")
    failure = Failure(kind=get_text(failed, "exception_type"), message=get_text(failed, "exception_message"))
    return Outcome(
        status="error" if failed else "done",
        success=None if reward is None else reward >= 1,
        reward=reward,
        error=failure if failed else None,
        metrics={name: value for name, value in rewards.items() if value is not reward},
    )


def _add_step(talk: Conversation, step: dict[str, Any], index: int) -> None:
    source, at = step.get("source"), read_time(step.get("timestamp"))
    if source not in ("system", "user", "agent"):
        talk.account.meet_unknown(f"step of {source!r}")
        return
    talk.account.use()
    text, parts = read_any_content(step.get("message"))
    extra = {**get_dict(step, "extra"), **find_unknown_fields(step, _STEP)}
    is_copied = step.get("is_copied_context") is True
    more: dict[str, Any] = {"train": False} if is_copied else {}
    if is_copied:
        extra["is_copied_context"] = True
    if source != "agent" and step.get("observation") is not None:
        extra["observation"] = step["observation"]  # not the result of a call: left by a compaction or a dispatch
    if source == "agent":
        _add_reply(talk, step, index, at, text=text, parts=parts, extra=extra, **more)
        _add_results(talk, step, index, at, more)
    elif source == "system":
        talk.add_system(text, index, parts=parts, extra=extra, **more)
    else:
        author: Author = "environment" if is_copied else "user"
        talk.add_user(text, index, author=author, at=at, parts=parts, extra=extra, **more)


def _add_reply(
    talk: Conversation, step: dict[str, Any], index: int, at: float | None, *, extra: dict[str, Any], **more: Any
) -> None:
    count, metrics = step.get("llm_call_count"), get_dict(step, "metrics")
    is_one = count in (None, 1)
    if kept := find_unknown_fields(metrics, _METRICS if is_one else frozenset()):
        extra["metrics"] = kept
    if step.get("model_name") is not None:
        extra["model_name"] = step["model_name"]
    talk.add_agent(
        index,
        reasoning=get_text(step, "reasoning_content") or None,
        calls=[_make_call(call) for call in get_dicts(step, "tool_calls")],
        at=at,
        seconds=_read_seconds(extra) if count == 1 else None,
        author="demo" if "is_copied_context" in extra else "environment" if count == 0 else "model",
        sampled=_read_sampled(metrics) if is_one and metrics else None,
        extra=extra,
        **more,
    )


def _add_results(talk: Conversation, step: dict[str, Any], index: int, at: float | None, more: dict[str, Any]) -> None:
    results = get_dicts(get_dict(step, "observation"), "results")
    own = {str(call.get("tool_call_id")): call for call in get_dicts(step, "tool_calls")}
    named = [get_text(result, "source_call_id") for result in results]
    unanswered = [call_id for call_id in own if call_id not in named]
    is_paired = len(unanswered) == named.count("")
    for result, call_id in zip(results, named, strict=True):
        text, parts = read_any_content(result.get("content"))
        extra = {**get_dict(result, "extra"), **find_unknown_fields(result, _RESULT)}
        answered = [call_id]
        if not call_id:  # one each for the unanswered calls if the numbers match, else each for all of them
            answered = [unanswered.pop(0)] if is_paired else unanswered or [""]
        elif call_id not in own:
            talk.account.note("results of another step's call")
            extra["source_call_id"], answered = call_id, [""]
        talk.add_result(
            answered[0],
            text,
            index,
            at=at,
            is_error=get_bool(extra, "is_error"),
            seconds=_read_seconds(get_dict(own.get(call_id), "extra")),
            parts=parts,
            also=answered[1:],
            extra=extra,
            **more,
        )


def _make_call(call: dict[str, Any]) -> ToolCall:
    made = make_call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"))
    extra = {**get_dict(call, "extra"), **find_unknown_fields(call, _CALL)}
    return msgspec.structs.replace(made, extra={**made.extra, **extra}) if extra else made


def _read_sampled(metrics: dict[str, Any]) -> Sampled:
    ids = as_token_ids(metrics.get("completion_token_ids"))
    return Sampled(
        token_ids=ids,
        logprobs=as_numbers(metrics.get("logprobs")),
        prompt_token_ids=as_token_ids(metrics.get("prompt_token_ids")) or None,
        usage=read_usage(metrics),
        exact="token" if ids else "none",
    )


def _read_seconds(extra: dict[str, Any]) -> float | None:
    """The duration of a model or tool call as NeMo Agent Toolkit measured it."""
    span = get_dict(extra, "invocation")
    return measure(span.get("start_timestamp"), span.get("end_timestamp"))


def _find_references(document: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Ids of other trajectories that a document names, each with the call that started it."""
    for step in get_dicts(document, "steps"):
        for result in get_dicts(get_dict(step, "observation"), "results"):
            references = result.get("subagent_trajectory_ref")
            for reference in as_dicts(references) or [as_dict(references)]:
                yield get_text(reference, "trajectory_id", "session_id"), get_text(result, "source_call_id") or None


PLUGIN = Atif
