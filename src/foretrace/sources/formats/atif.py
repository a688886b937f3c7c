"""ATIF trajectories, versions 1.0 to 1.8 (Harbor's Agent Trajectory Interchange Format): documents, lists, or lines.

A step has one stamp for its reply and all results, so durations are not taken from stamps. Replies that were copied
from an earlier trajectory (`is_copied_context`) have the author `demo`: they were shown, not made. Task and reward of a
trajectory that Harbor wrote come from the trial's `result.json`, one folder up.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Author, Failure, Outcome, Parent, Sampled, Task, ToolCall, Trace, Usage
from foretrace.rows.base import Drop
from foretrace.rows.files import TruncatedError, read_unpacked
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation, make_call, measure, read_time
from foretrace.sources.file_traces import RecordFiles, finish_trace, make_child_task, make_task
from foretrace.sources.json_values import (
    as_count,
    as_dict,
    as_dicts,
    as_list,
    as_number,
    as_numbers,
    as_text,
    as_token_ids,
    get_bool,
    read_objects,
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
        version = as_text(head.first.get("schema_version"))
        return f"schema_version is {version[:20]}" if version.startswith("ATIF-v") else None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        """The traces of a document, of the agents that it starts, and of trajectories in other files that it names."""
        return _Reader(path, account).read(record, None, None, 0)

    def list_companions(self, path: Path) -> Iterable[Path]:
        """Trajectory files next to this one that it names (subagents, continuations), and the trial's result."""
        found: dict[Path, None] = dict.fromkeys(filter(None, [_find_result(path)]))
        waiting = [path]
        while waiting and len(found) < 1000:
            at = waiting.pop()
            if not _names_others(at):
                continue
            for value in read_objects(at):
                names = [] if isinstance(value, Drop) else [name for name, _ in _find_references(value)]
                new = [p for name in names if (p := _find_beside(at, name)) and p != path and p not in found]
                found.update(dict.fromkeys(new))
                waiting += new
        return list(found)


class _Reader:
    """Reads a document and everything that belongs to it."""

    def __init__(self, path: Path, account: Account) -> None:
        self._path = path
        self._account = account
        self._files = {path}
        self._keys: Counter[str] = Counter()

    def read(
        self, document: dict[str, Any], parent: Parent | None, group: Task | None, depth: int
    ) -> Iterator[Trace | Drop]:
        key = f"atif@{self._make_own_id(document)}"
        trial = _read_result(self._path) if group is None else {}
        task = make_child_task(group, key) if group else make_task(key, instance=as_text(trial.get("task_name")))
        yield self._make_trace(document, key, task, parent, _make_outcome(trial))
        if depth >= _MAX_DEPTH:
            self._account.note("subagents that lie too deep")
            return
        calls = {name: call_id for name, call_id in _find_references(document) if call_id is not None}
        for child in as_dicts(document.get("subagent_trajectories")):
            call_id = calls.get(as_text(child.get("trajectory_id"))) or calls.get(as_text(child.get("session_id")))
            yield from self.read(child, Parent(key=key, call_id=call_id), task, depth + 1)
        for name, call_id in _find_references(document):
            beside = _find_beside(self._path, name)
            if beside is None or beside in self._files:
                continue
            self._files.add(beside)
            for other in read_objects(beside):
                if isinstance(other, Drop):
                    self._account.drop(other.reason)
                    yield other
                elif as_text(other.get("schema_version")).startswith("ATIF-v"):
                    yield from self.read(other, Parent(key=key, call_id=call_id or None), task, depth + 1)

    def _make_own_id(self, document: dict[str, Any]) -> str:
        """An id that stays the same if the file is moved or the trajectory grows."""
        names = [as_text(document.get(field)) for field in ("session_id", "trajectory_id")]
        own_id = "/".join(dict.fromkeys(name for name in names if name))
        if not own_id:
            first = as_dicts(document.get("steps"))[:3]
            about = [as_dict(document.get("agent")).get("name"), [step.get("message") for step in first]]
            own_id = digest(msgspec.json.encode(about).decode())
        self._keys[own_id] += 1
        count = self._keys[own_id]
        return own_id if count == 1 else f"{own_id}#{count}"

    def _make_trace(
        self, document: dict[str, Any], key: str, task: Task, parent: Parent | None, outcome: Outcome
    ) -> Trace | Drop:
        account, agent = self._account, as_dict(document.get("agent"))
        talk = Conversation(account, durations_from_stamps=False)
        met: Counter[str] = Counter()
        model = as_text(agent.get("model_name")) or None
        for index, step in enumerate(as_list(document.get("steps"))):
            if not isinstance(step, dict):
                account.drop("not_an_object")
                continue
            met[f"{step.get('source')} steps"] += 1
            model = model or as_text(step.get("model_name")) or None
            _add_step(talk, account, step, index, read_time(step.get("timestamp")))
        name, version = as_text(agent.get("name")), as_text(agent.get("version"))
        if (schema := as_text(document.get("schema_version"))) and schema not in _VERSIONS:
            account.note(f"trajectories of version {schema[:20]}, which is not known, read as far as it is like others")
        extra = find_unknown_fields(document, _DOCUMENT)
        if about := find_unknown_fields(agent, _AGENT):
            extra["agent"] = about
        return finish_trace(
            talk,
            key=key,
            task=task,
            path=self._path,
            raw_id=as_text(document.get("session_id")) or as_text(document.get("trajectory_id")),
            agent=name,
            model=model,
            tool_versions={name: version},
            created_at=_find_first_stamp(document),
            met=met,
            tools=read_tool_specs(agent.get("tool_definitions")),
            outcome=outcome,
            parent=parent,
            extra=extra,
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
    given = as_dict(as_dict(trial.get("verifier_result")).get("rewards"))
    rewards = {name: number for name, value in given.items() if (number := as_number(value)) is not None}
    reward = rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)
    failed = as_dict(trial.get("exception_info"))
    failure = Failure(kind=as_text(failed.get("exception_type")), message=as_text(failed.get("exception_message")))
    return Outcome(
        status="error" if failed else "done",
        success=None if reward is None else reward >= 1,
        reward=reward,
        error=failure if failed else None,
        metrics={name: value for name, value in rewards.items() if value is not reward},
    )


def _add_step(talk: Conversation, account: Account, step: dict[str, Any], index: int, at: float | None) -> None:
    source = step.get("source")
    if source not in ("system", "user", "agent"):
        account.meet_unknown(f"step of {source!r}")
        return
    account.use()
    text, parts = read_any_content(step.get("message"))
    extra = {**as_dict(step.get("extra")), **find_unknown_fields(step, _STEP)}
    if source != "agent" and step.get("observation") is not None:
        extra["observation"] = step["observation"]  # not the result of a call: left by a compaction or a dispatch
    copied: dict[str, Any] = {}
    if step.get("is_copied_context") is True:
        extra["is_copied_context"] = True
        copied = {"train": False}
    if source == "agent":
        _add_agent_step(talk, step, index, at, text=text, parts=parts, extra=extra, **copied)
        _add_results(talk, account, step, index, at, copied)
    elif source == "system":
        talk.add_system(text, index, parts=parts, extra=extra, **copied)
    else:
        author: Author = "environment" if copied else "user"
        talk.add_user(text, index, author=author, at=at, parts=parts, extra=extra, **copied)


def _add_agent_step(
    talk: Conversation, step: dict[str, Any], index: int, at: float | None, *, extra: dict[str, Any], **more: Any
) -> None:
    calls = [_make_call(call) for call in as_dicts(step.get("tool_calls"))]
    count = as_count(step.get("llm_call_count"))
    author: Author = "demo" if "is_copied_context" in extra else "environment" if count == 0 else "model"
    metrics = as_dict(step.get("metrics"))
    sampled = _read_sampled(metrics) if count in (None, 1) else None
    if kept := find_unknown_fields(metrics, _METRICS if count in (None, 1) else frozenset()):
        extra["metrics"] = kept
    if step.get("model_name") is not None:
        extra["model_name"] = step["model_name"]
    talk.add_agent(
        index,
        reasoning=as_text(step.get("reasoning_content")) or None,
        calls=calls,
        at=at,
        seconds=_read_seconds(extra) if count == 1 else None,
        author=author,
        sampled=sampled,
        extra=extra,
        **more,
    )


def _add_results(
    talk: Conversation, account: Account, step: dict[str, Any], index: int, at: float | None, copied: dict[str, Any]
) -> None:
    results = as_dicts(as_dict(step.get("observation")).get("results"))
    own = {str(call.get("tool_call_id")): call for call in as_dicts(step.get("tool_calls"))}
    named = {as_text(result.get("source_call_id")) for result in results}
    unanswered = [call_id for call_id in own if call_id not in named]
    is_paired = len(unanswered) == sum(not as_text(result.get("source_call_id")) for result in results)
    for result in results:
        text, parts = read_any_content(result.get("content"))
        extra = {**as_dict(result.get("extra")), **find_unknown_fields(result, _RESULT)}
        call_id = as_text(result.get("source_call_id"))
        if call_id and call_id not in own:
            account.note("results of another step's call")
            extra["source_call_id"], call_id = call_id, ""
        # Results that name no call: one each for the unanswered calls if the numbers match, else each for all of them.
        also: list[str] = []
        if not call_id and "source_call_id" not in extra:
            also = [unanswered.pop(0)] if is_paired else unanswered
        talk.add_result(
            call_id or next(iter(also), ""),
            text,
            index,
            at=at,
            is_error=get_bool(extra, "is_error"),
            seconds=_read_seconds(as_dict(own.get(call_id, {}).get("extra"))),
            parts=parts,
            also=also[1:],
            extra=extra,
            **copied,
        )


def _find_first_stamp(document: dict[str, Any]) -> str | None:
    stamps = (as_text(step.get("timestamp")) for step in as_dicts(document.get("steps")))
    return next(filter(None, stamps), None)


def _make_call(call: dict[str, Any]) -> ToolCall:
    made = make_call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"))
    extra = {**as_dict(call.get("extra")), **find_unknown_fields(call, _CALL)}
    return msgspec.structs.replace(made, extra={**made.extra, **extra}) if extra else made


def _read_sampled(metrics: dict[str, Any]) -> Sampled | None:
    if not metrics:
        return None
    ids, prompt_ids = as_token_ids(metrics.get("completion_token_ids")), as_token_ids(metrics.get("prompt_token_ids"))
    prompt, completion = as_count(metrics.get("prompt_tokens")), as_count(metrics.get("completion_tokens"))
    counted = prompt is not None or completion is not None
    return Sampled(
        token_ids=ids,
        logprobs=as_numbers(metrics.get("logprobs")),
        prompt_token_ids=prompt_ids or None,
        usage=Usage(prompt_tokens=prompt, completion_tokens=completion) if counted else None,
        exact="token" if ids else "none",
    )


def _read_seconds(extra: dict[str, Any]) -> float | None:
    """The duration of a model or tool call as NeMo Agent Toolkit measured it."""
    span = as_dict(extra.get("invocation"))
    return measure(span.get("start_timestamp"), span.get("end_timestamp"))


def _find_references(document: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Ids and files of other trajectories that a document names, each with the call that started it; None for the
    continuation."""
    for step in as_dicts(document.get("steps")):
        for result in as_dicts(as_dict(step.get("observation")).get("results")):
            references = result.get("subagent_trajectory_ref")
            for reference in as_dicts(references) or as_dicts([references]):
                for field in ("trajectory_id", "trajectory_path", "session_id"):
                    if name := as_text(reference.get(field)):
                        yield name, as_text(result.get("source_call_id"))
                        break
    if name := as_text(document.get("continued_trajectory_ref")):
        yield name, None


def _names_others(path: Path) -> bool:
    """Whether a file names another trajectory; checked without decoding it."""
    sign, end = b"trajectory_ref", b""
    with path.open("rb") as raw, contextlib.suppress(TruncatedError):
        for chunk in read_unpacked(path, raw):
            if sign in end + chunk:
                return True
            end = chunk[-len(sign) :]
    return False


def _find_beside(path: Path, name: str) -> Path | None:
    """The file with that name in the folder of `path` or below it; never elsewhere, whatever the name."""
    if not name.endswith(".json") or len(name) > 512 or "\0" in name:
        return None
    folder = path.parent.resolve()
    try:
        found = (folder / name).resolve()
        is_there = found.is_relative_to(folder) and found.is_file()
    except (OSError, RuntimeError):  # a loop of links, a name that is too long
        return None
    return path.parent / found.relative_to(folder) if is_there else None


PLUGIN = Atif
