"""`traces.jsonl` of the verifiers library, version 1: one episode per line, each agent's messages as a graph.

Each branch of a graph (the path to a leaf) is an attempt. Replies that an earlier branch already has were made only
once: their author is `demo` in later branches. Model calls are timed. Tools are not, since the gap before the next call
includes the harness. An episode of `foretrace-env` holds foretrace's own trace, which is taken with the graph's tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Author, Failure, Outcome, Sampled, Trace, Usage
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import make_function_call, read_any_content
from foretrace.sources.conversation import Conversation, measure, read_time
from foretrace.sources.file_traces import RecordFiles, finish_trace, make_task, read_usage
from foretrace.sources.json_values import (
    as_count,
    as_dict,
    as_number,
    as_numbers,
    as_token_ids,
    get_dict,
    get_dicts,
    get_list,
    get_number,
    get_text,
    write_text,
)
from foretrace.sources.openai_messages import find_unknown_fields, read_tool_specs

_LIMITS = frozenset({
    "max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed", "timeout",
})  # fmt: skip
_MESSAGE = frozenset({"role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"})


class VerifiersTraces(RecordFiles):
    """One trace for each branch of each agent of each episode."""

    name = "verifiers_traces"

    def recognize(self, head: FileHead) -> str | None:
        """By the nodes of the first trace of the first episode that has one."""
        for record in (head.first, *head.records):
            trace = next(iter(get_dicts(record, "traces")), None)
            if trace is not None:
                node = next(iter(get_dicts(trace, "nodes")), {})
                is_trace = "message" in node and ("sampled" in node or "calls" in trace)
                return "traces[0].nodes[0] has a message" if is_trace else None
        return None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        traces = get_dicts(record, "traces")
        if not traces:
            account.ignore("episode without a trace")
            errors = get_dicts(record, "errors")
            yield Drop("no_agent_turn", f"row {number}: no trace in the episode; {write_text(errors[:1])[:200]}")
        for raw in traces:
            yield from _Graph(raw, record, account).read(path, number)


class _Graph:
    def __init__(self, raw: dict[str, Any], episode: dict[str, Any], account: Account) -> None:
        self._raw = raw
        self._episode = episode
        self._account = account
        self._nodes = [as_dict(node) for node in get_list(raw, "nodes")]
        parents = [as_count(node.get("parent")) for node in self._nodes]
        # A parent that does not come before the node is ignored, so that no path is a cycle.
        self._parents = [at if at is not None and at < index else None for index, at in enumerate(parents)]
        calls = get_dicts(raw, "calls")
        self._calls = {node: call for call in calls if (node := as_count(call.get("node"))) is not None}
        self._seen: set[int] = set()
        """Nodes of the branches read so far."""
        self._info = raw.get("info")
        self._own = get_dict(get_dict(self._info, "foretrace"), "trace")
        if self._own:
            self._info = {name: value for name, value in get_dict(raw, "info").items() if name != "foretrace"}

    def read(self, path: Path, row: int) -> Iterator[Trace | Drop]:
        inner = set(self._parents)
        leaves = [index for index in range(len(self._nodes)) if index not in inner]
        branches: list[Trace] = []
        for number, leaf in enumerate(leaves):
            nodes: list[int] = []
            at: int | None = leaf
            while at is not None:
                nodes.append(at)
                at = self._parents[at]
            trace = self._make_trace(nodes[::-1], number, path, row)
            if not self._own or isinstance(trace, Drop):
                yield trace
            else:
                branches.append(trace)
        if branches:
            yield _take_own(self._own, branches)
        if not leaves:
            yield Drop("no_agent_turn", f"row {row}: a trace without nodes")

    def _make_trace(self, branch: list[int], number: int, path: Path, row: int) -> Trace | Drop:
        talk = Conversation(self._account, durations_from_stamps=False)
        tokens = _split_tokens([self._nodes[index] for index in branch])
        for index, sampled in zip(branch, tokens, strict=True):
            self._add_node(talk, index, sampled)
        self._seen.update(branch)
        raw = self._raw
        own_id = get_text(raw, "id") or digest(write_text([self._nodes[index] for index in branch[:3]]))
        key = f"verifiers_traces@{own_id}" + (f"/{branch[-1]}" if number else "")
        task = get_dict(raw, "task") or get_dict(self._episode, "task")
        data = get_dict(task, "data")
        env = get_text(get_dict(self._episode, "env"), "id")
        instance = get_text(data, "instance_id") or get_text(get_dict(data, "info"), "instance_id")
        name = get_text(task, "key", "hash") or digest(write_text(data))
        calls = [self._calls[index] for index in branch if index in self._calls]
        version = get_text(get_dict(raw, "verifiers"), "version")
        tools = self._nodes[branch[0]].get("tools") or raw.get("tools")
        return finish_trace(
            talk,
            key=key,
            task=make_task(key, instance=instance or f"{env}:{name}"),
            path=path,
            raw_row=row,
            raw_id=own_id,
            agent=get_text(get_dict(raw, "agent"), "name"),
            model=next((model for call in calls if (model := get_text(call, "model"))), None),
            tool_versions={"verifiers": version},
            tools=read_tool_specs(tools),
            outcome=_read_outcome(raw),
            extra={"env": env, "episode": self._episode.get("id"), "task": task.get("type"), "info": self._info},
        )

    def _add_node(self, talk: Conversation, index: int, sampled: Sampled | None) -> None:
        node, is_copy = self._nodes[index], index in self._seen
        message, call = get_dict(node, "message"), self._calls.get(index, {})
        role, span = message.get("role"), get_dict(call, "time")
        talk.types[f"{role} nodes"] += 1
        if role not in ("system", "user", "assistant", "tool"):
            if not is_copy:
                self._account.meet_unknown(f"node of {role!r}")
            return
        extra = find_unknown_fields(message, _MESSAGE)
        more: dict[str, Any] = {"sampled": _add_usage(sampled, call) if role == "assistant" else sampled}
        if is_copy:
            more = {"train": False, "sampled": None}
            extra = {**extra, "is_copied_context": True}
        else:
            self._account.use()
        author: Author | None = None
        if role == "assistant":
            is_model = node.get("sampled") is True or bool(call)
            author = "demo" if is_copy else "model" if is_model else "environment"
        text, parts = read_any_content(message.get("content"))
        talk.add(
            role,
            text,
            index,
            author=author,
            at=read_time(span.get("start")) or read_time(node.get("timestamp")),
            reasoning=get_text(message, "reasoning_content") or None,
            calls=[make_function_call(each) for each in get_dicts(message, "tool_calls")],
            call_id=get_text(message, "tool_call_id"),
            seconds=measure(span.get("start"), span.get("end")),
            parts=parts,
            extra=extra,
            **more,
        )


def _take_own(own: dict[str, Any], branches: list[Trace]) -> Trace:
    """foretrace's own trace of an episode, with the key of its graph, and the tokens of each message that is in one of
    its branches. Some branches are of replies that were given up."""
    graph = branches[0]
    try:
        trace = msgspec.convert({**own, "id": ""}, Trace)
    except msgspec.ValidationError:
        return graph
    messages = list(trace.messages)
    for branch in reversed(branches):
        for at, (message, node) in enumerate(zip(messages, branch.messages, strict=False)):
            # the graph has the thoughts of a reply apart, and results as a user's words
            is_same = message.content.endswith(node.content) and (message.role, node.role).count("assistant") != 1
            if node.sampled and node.sampled.token_ids and is_same:
                messages[at] = msgspec.structs.replace(message, sampled=node.sampled)
    place = graph.provenance
    origin = msgspec.structs.replace(
        trace.provenance,
        source=place.source,
        raw_file=place.raw_file,
        raw_row=place.raw_row,
        raw_id=place.raw_id,
        tool_versions=trace.provenance.tool_versions | place.tool_versions,
    )
    extra = trace.extra | graph.extra
    return msgspec.structs.replace(trace, key=graph.key, messages=tuple(messages), provenance=origin, extra=extra)


def _split_tokens(nodes: list[dict[str, Any]]) -> list[Sampled | None]:
    """Token ids of each node of a path. All before the first reply is its prompt; a reply has only the model's own
    tokens. What the template puts before a later reply belongs to the message before it."""
    found: list[Sampled | None] = []
    before: list[int] = []
    is_first = True
    for node in nodes:
        ids = as_token_ids(node.get("token_ids"))
        mask = [value is True for value in get_list(node, "mask")]
        start = mask.index(True) if True in mask and len(mask) == len(ids) else None
        if start is None:
            before += ids
            found.append(None if is_first or not ids else Sampled(token_ids=ids, exact="token"))
            continue
        scaffold, own = ids[:start], ids[start:]
        if not is_first and scaffold and found and (last := found[-1]) is not None:
            found[-1] = Sampled(token_ids=(*last.token_ids, *scaffold), exact="token")
        prompt = (*before, *scaffold) if is_first else None
        logprobs = as_numbers(node.get("logprobs"))
        found.append(Sampled(token_ids=own, logprobs=logprobs, prompt_token_ids=prompt, exact="token"))
        is_first = False
    return found


def _add_usage(sampled: Sampled | None, call: dict[str, Any]) -> Sampled | None:
    if not call:
        return sampled
    held = get_dict(call, "usage")
    usage = read_usage(held, "prompt_tokens", "completion_tokens", "cached_input_tokens") or Usage()
    reason = get_text(call, "finish_reason") or None
    return msgspec.structs.replace(sampled or Sampled(), finish_reason=reason, usage=usage if held else None)


def _read_outcome(raw: dict[str, Any]) -> Outcome:
    scores: dict[str, float] = {}
    reward = 0.0
    for name, value in get_dict(raw, "rewards").items():
        if (score := get_number(value, "score")) is not None:
            weight = get_number(value, "weight")
            scores[name] = score
            reward += score * (1.0 if weight is None else weight)
    metrics = {name: as_number(value) for name, value in get_dict(raw, "metrics").items()}
    stop, errors = get_text(raw, "stop_condition"), get_dicts(raw, "errors")
    is_limit = stop in _LIMITS or raw.get("is_timeout") is True
    last = errors[-1] if errors and raw.get("ok") is not True else None
    error = Failure(kind=get_text(last, "type") or "error", message=get_text(last, "message"))
    return Outcome(
        status="limit" if is_limit else "error" if last is not None else "done",
        reward=reward if scores else None,
        exit_reason=stop or None,
        error=None if last is None else error,
        metrics={name: number for name, number in metrics.items() if number is not None} | scores,
    )


PLUGIN = VerifiersTraces
