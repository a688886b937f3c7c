"""Copies of tasks and of trajectories: keep them in one split, and optionally only the best of copied trajectories."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from foretrace.actions.label_steps import LabelEvidence
from foretrace.clean.copies import LEAST_EQUAL, LEAST_NEAR, Copies, Neighbors, describe_signatures, find_copies
from foretrace.clean.word_texts import WordText, make_word_text, split_sentences
from foretrace.core.digest import digest
from foretrace.core.trace import Message, Trace
from foretrace.dataset.filters.base import Decision, ExaminedTrace, count_tasks
from foretrace.dataset.recipes.base import Gate, make_gate
from foretrace.dataset.settings import SPLITS

_LEAST_NEAR_ACTIONS = 40
"""Fewest words of a trajectory that can be a copy of an attempt at another task: many begin with `ls`."""
_MAX_EXAMPLES = 2
_REASON = "copy of a kept attempt"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WordText).decode
_MAX_ACTION = 400
"""Characters of an action that are kept as they are; the rest is replaced by a digest."""
_MAX_ACTIONS = 256


def find_statement(trace: Trace) -> str | None:
    """The statement of the task as the source gives it, else what the user wrote before the agent's first call (in a
    conversation without calls, before its first message); `None` if there is none."""
    if trace.task.statement and trace.task.statement.strip():
        return trace.task.statement
    written: list[str] = []
    has_calls = any(_is_of_agent(message) and message.tool_calls for message in trace.messages)
    for message in trace.messages:
        if _is_of_agent(message) and (message.tool_calls or not has_calls):
            break
        if message.role == "user" and message.author == "user":
            written.append(message.content)
    text = "\n".join(written)
    return text if text.strip() else None


def list_actions(trace: Trace) -> list[str]:
    """What the agent did, in order: the tool and arguments of each call, or the text of a message without calls."""
    actions: list[str] = []
    for message in trace.messages:
        if not _is_of_agent(message):
            continue
        texts = [f"{call.name} {_spell_arguments(call.arguments)}" for call in message.tool_calls] or [message.content]
        actions += [_shorten(text) for text in texts if text.strip()]
    return actions[:_MAX_ACTIONS]


def _is_of_agent(message: Message) -> bool:
    return message.role == "assistant" and message.author != "demo"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_ACTION else f"{text[:_MAX_ACTION]} x{digest(text)}"


def _spell_arguments(arguments: str) -> str:
    try:
        return " ".join(_list_values(msgspec.json.decode(arguments)))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments


def _list_values(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name in sorted(value):
            yield name
            yield from _list_values(value[name])
    elif isinstance(value, list):
        for each in value:
            yield from _list_values(each)
    else:
        yield str(value)


class CopyFilter:
    """Finds tasks and trajectories that are copies, and keeps the groups of each cluster in one split."""

    name = "copies"

    def __init__(self, *, keeps_best: bool = False) -> None:
        """With `keeps_best`, leave out trajectories that are copies of a better one: a successful, or else a shorter
        one."""
        self._keeps_best = keeps_best

    def examine(self, trace: Trace, evidence: Sequence[LabelEvidence]) -> tuple[bytes, bytes]:
        """The words of the statement and of the actions; empty if there are none."""
        statement, actions = (b"" if t is None else _encode(t) for t in (read_statement(trace), _read_actions(trace)))
        return statement, actions

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Merge the groups of copies. With `keeps_best`, leave out all but the best of copied trajectories."""
        tasks, trajectories = find_trace_copies(traces)
        merged: set[tuple[str, ...]] = set()
        kept_together: list[tuple[str, ...]] = []
        names: dict[str, list[list[str]]] = {"tasks": [], "attempts": []}
        for kind, copies in (("tasks", tasks), ("attempts", trajectories)):
            for cluster in copies.iterate_clusters():
                keys = [traces[i].key for i in cluster]
                names[kind].append(sorted({traces[i].task for i in cluster}) if copies is tasks else keys)
                groups = {traces[i].group for i in cluster}
                if len(groups) > 1:
                    merged.add(tuple(sorted(groups)))
                    kept_together.append(tuple(keys))
        figures = {
            "tasks": {"tasks": count_tasks(traces), **_describe(names["tasks"], tasks)},
            "attempts": {"attempts": len(traces), **_describe(names["attempts"], trajectories)},
        }
        in_merged = {group for each in merged for group in each}
        by_source = Counter(trace.source for trace in traces if trace.group in in_merged)
        return Decision(
            left_out=_choose_worse(traces, trajectories) if self._keeps_best else {},
            merged_groups=sorted(merged),
            kept_together=kept_together,
            figures={
                "signatures": describe_signatures(),
                **figures,
                "groups_merged": len(in_merged),
                "merged_by_source": dict(sorted(by_source.items())),
            },
            notes=[
                f"{found['copies']:,} of {found[kind]:,} {kind} are near-copies of another; a cluster shares one split."
                for kind, found in figures.items()
                if found["copies"]
            ],
        )


class _Texts(Sequence[WordText | None]):
    """One of the texts of each trace, read one at a time."""

    def __init__(self, traces: Sequence[ExaminedTrace], place: int) -> None:
        self._traces, self._place = traces, place

    def __len__(self) -> int:
        return len(self._traces)

    def __getitem__(self, at: int) -> WordText | None:  # type: ignore[override]
        text = self._traces[at].findings[CopyFilter.name][self._place]
        return _decode(text) if text else None


def find_trace_copies(traces: Sequence[ExaminedTrace]) -> tuple[Copies, Copies]:
    """The copies among tasks, and among trajectories. The traces are in order of their keys."""
    tasks = find_copies(_Texts(traces, 0))
    return tasks, find_copies(_Texts(traces, 1), least_near=_LEAST_NEAR_ACTIONS, has_templates=False)


def read_statement(trace: Trace) -> WordText | None:
    """The words of the task's statement; `None` if they do not identify the task: too few, or a short request of a
    session, which has a different meaning in each repository."""
    statement = find_statement(trace)
    text = None if statement is None else _read_words(statement)
    least = LEAST_NEAR if trace.task.kind == "session" else LEAST_EQUAL
    return None if text is None or text.n_words < least else text


@functools.lru_cache(maxsize=16)
def _read_words(statement: str) -> WordText:
    """Cached because attempts at one task follow one another and share its statement."""
    return make_word_text(split_sentences(statement))


def _read_actions(trace: Trace) -> WordText | None:
    text = make_word_text(list_actions(trace))
    if not text.n_words:
        return None
    if text.n_words < _LEAST_NEAR_ACTIONS:  # can only be a copy of attempts at the same task
        own = bytes.fromhex(digest(trace.task.id, text.digest.hex(), size=16))
        return msgspec.structs.replace(text, digest=own)
    return text


def _choose_worse(traces: Sequence[ExaminedTrace], copies: Copies) -> dict[str, str]:
    """The reason for leaving out each trajectory that is a direct copy of a kept one; chains do not count."""
    neighbors = Neighbors(copies)
    worse: dict[str, str] = {}
    rank = {True: 0, None: 1, False: 2}

    def place_in_order(trace: ExaminedTrace) -> tuple[int, int, str]:
        return rank[trace.success], trace.n_steps, trace.key

    for cluster in copies.iterate_clusters():
        covered: set[int] = set()
        for i in sorted(cluster, key=lambda i: place_in_order(traces[i])):
            first = copies.firsts[i]
            if first in covered:
                worse[traces[i].key] = _REASON
            else:
                covered |= {first, *neighbors[first].tolist()}
    return worse


def _describe(clusters: list[list[str]], copies: Copies) -> dict[str, Any]:
    """Figures over clusters of tasks or attempts by name. Attempts at the same task are siblings rather than copies."""
    clusters = [names for names in clusters if len(names) > 1]
    return {
        "copies": len({name for names in clusters for name in names}),
        "clusters": len(clusters),
        "largest": max(map(len, clusters), default=0),
        "chained": copies.count_chained(),
        "compared": copies.candidates,
        "examples": [names[:2] for names in sorted(clusters)[:_MAX_EXAMPLES]],
    }


def make_copies_gate(kept_together: Sequence[Sequence[str]], keys: Mapping[str, Collection[str]]) -> Gate:
    """The verdict on the written rows, given the keys of copies by cluster, and those of the rows by split."""
    by_cluster = [{split: key for split in SPLITS for key in reversed(c) if key in keys[split]} for c in kept_together]
    parted = [[*by_split.values()] for by_split in by_cluster if len(by_split) > 1]
    named = {" and ".join(sorted(found[:2])) for found in parted}
    return make_gate("copies_disjoint", {"clusters": len(kept_together), "parted": len(parted)}, named)
