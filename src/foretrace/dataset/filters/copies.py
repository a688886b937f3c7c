"""Copies of tasks and of trajectories: none stands in two splits, and of copied trajectories the best may be kept."""

from __future__ import annotations

import functools
import os
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import msgspec

from foretrace.clean.copies import LEAST_EQUAL, Copies, Neighbours, describe_signatures, find_copies
from foretrace.clean.task_texts import find_statement, list_actions
from foretrace.clean.word_alignment import LEAST_NEAR
from foretrace.clean.word_texts import WordText, make_word_text, split_sentences
from foretrace.core.digest import digest
from foretrace.core.trace import Trace
from foretrace.dataset.filters.base import Decision, ExaminedTrace
from foretrace.dataset.filters.examined import count_tasks

_LEAST_NEAR_ACTIONS = 40
"""Words of a trajectory from which on it can be a copy of an attempt at another task: many begin with `ls`."""
_MAX_EXAMPLES = 2
_MAX_OPEN_FILES = 64
_REASON = "copy of a kept attempt"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WordText).decode


class CopyFinding(NamedTuple):
    """Where the texts of one trace lie, which are too many to be held."""

    file: str
    statement: int
    """Where it begins."""
    actions: int
    """Where the statement ends and they begin."""
    end: int
    statement_digest: bytes
    """16 bytes; empty where there is no statement to compare."""


class CopyFilter:
    """Finds tasks and trajectories that are copies, and keeps the groups of each cluster in one split."""

    name = "copies"

    def __init__(self, *, keeps_best: bool = False, scratch: Path | None = None) -> None:
        """
        Args:
            keeps_best: Leave out trajectories that are copies of a better one: that succeeded, else is shorter.
            scratch: Where the texts are written, readable for the process that decides, and not removed by the filter;
                `None` is a folder of its own, which is removed after the decision.
        """
        self._keeps_best = keeps_best
        self._scratch = scratch
        self._own_folder: tempfile.TemporaryDirectory[str] | None = None
        self._path: Path | None = None

    def examine(self, trace: Trace) -> CopyFinding:
        """Write the trace's texts to the scratch folder."""
        statement, actions = read_statement(trace), _read_actions(trace)
        texts = [b"" if text is None else _encode(text) for text in (statement, actions)]
        self._path = self._path or self._make_file()
        with self._path.open("ab") as file:
            start = file.tell()
            file.write(b"".join(texts))
        middle = start + len(texts[0])
        of_statement = b"" if statement is None else statement.digest
        return CopyFinding(str(self._path), start, middle, middle + len(texts[1]), of_statement)

    def _make_file(self) -> Path:
        if self._scratch is None:
            self._own_folder = tempfile.TemporaryDirectory(prefix="foretrace-copies-")
        folder = self._scratch if self._own_folder is None else self._own_folder.name
        handle, path = tempfile.mkstemp(prefix="copies-", dir=folder)
        os.close(handle)
        return Path(path)

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Merge the groups of copies; with `keeps_best`, leave out all but the best of copied trajectories."""
        tasks, trajectories = find_trace_copies(trace.findings[self.name] for trace in traces)
        if self._own_folder is not None:
            self._own_folder.cleanup()
        task_clusters, attempt_clusters = _Clusters(), _Clusters()
        merged: set[tuple[str, ...]] = set()
        kept_together: list[tuple[str, ...]] = []
        for copies in (tasks, trajectories):
            for cluster in copies.iterate_clusters():
                if copies is tasks:
                    task_clusters.add(sorted({traces[i].task for i in cluster}))
                else:
                    attempt_clusters.add([traces[i].key for i in cluster])
                groups = {traces[i].group for i in cluster}
                if len(groups) > 1:
                    merged.add(tuple(sorted(groups)))
                    kept_together.append(tuple(traces[i].key for i in cluster))
        figures = {
            "tasks": {"tasks": count_tasks(traces), **task_clusters.describe(tasks)},
            "attempts": {"attempts": len(traces), **attempt_clusters.describe(trajectories)},
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


def find_trace_copies(findings: Iterable[Sequence[Any]]) -> tuple[Copies, Copies]:
    """The copies among tasks, and among trajectories.

    Args:
        findings: What `CopyFilter.examine` returned, in the order of the keys of traces.
    """
    with _Files() as files:
        statements, actions = _place_texts(files, (CopyFinding(*found) for found in findings))
        tasks = find_copies(statements)
        return tasks, find_copies(actions, least_near=_LEAST_NEAR_ACTIONS, has_templates=False)


def read_statement(trace: Trace) -> WordText | None:
    """The words of the task's statement; `None` where they do not say what the task is: too few, or a short request of
    a session, which means another thing in each repository."""
    statement = find_statement(trace)
    text = None if statement is None else _read_words(statement)
    least = LEAST_NEAR if trace.task.kind == "session" else LEAST_EQUAL
    return None if text is None or text.n_words < least else text


@functools.lru_cache(maxsize=16)
def _read_words(statement: str) -> WordText:
    """Attempts at one task are read one after the other, and share its statement."""
    return make_word_text(split_sentences(statement))


def _read_actions(trace: Trace) -> WordText | None:
    text = make_word_text(list_actions(trace))
    if not text.n_words:
        return None
    if text.n_words < _LEAST_NEAR_ACTIONS:  # a copy only of attempts at the same task
        own = bytes.fromhex(digest(trace.task.id, text.digest.hex(), size=16))
        return msgspec.structs.replace(text, digest=own)
    return text


class _Files:
    """Files that are open while they are read: each job wrote one, so that only some of them can be."""

    def __enter__(self) -> Self:
        self._open: dict[str, BinaryIO] = {}
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def read(self, path: str, start: int, end: int) -> bytes:
        """The bytes between two places."""
        file = self._open.pop(path, None)
        if file is None:
            if len(self._open) >= _MAX_OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()  # the one that was not read for longest
            file = Path(path).open("rb")  # noqa: SIM115
        self._open[path] = file
        file.seek(start)
        return file.read(end - start)


class _WrittenTexts:
    """The texts that were written, read one at a time. Their places are flat columns, since there may be many."""

    def __init__(
        self, files: _Files, paths: list[str], numbers: array[int], starts: array[int], ends: array[int]
    ) -> None:
        self._files, self._paths = files, paths
        self._numbers, self._starts, self._ends = numbers, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, place: int, /) -> WordText | None:
        start, end = self._starts[place], self._ends[place]
        return None if start == end else _decode(self._files.read(self._paths[self._numbers[place]], start, end))


def _place_texts(files: _Files, findings: Iterable[CopyFinding]) -> tuple[_WrittenTexts, _WrittenTexts]:
    """The statements, and the actions."""
    known: dict[str, int] = {}
    numbers, starts, middles, ends = (array("q") for _ in range(4))
    for found in findings:
        numbers.append(known.setdefault(found.file, len(known)))
        starts.append(found.statement)
        middles.append(found.actions)
        ends.append(found.end)
    paths = list(known)
    return _WrittenTexts(files, paths, numbers, starts, middles), _WrittenTexts(files, paths, numbers, middles, ends)


def _choose_worse(traces: Sequence[ExaminedTrace], copies: Copies) -> dict[str, str]:
    """Why each trajectory is left out that is a copy of one that is kept: itself, not through a chain."""
    neighbours = Neighbours(copies)
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
                covered |= {first, *neighbours[first].tolist()}
    return worse


class _Clusters:
    """Figures over the clusters of tasks, where attempts at one task are siblings and no copies, or of attempts."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._count = self._largest = 0
        self._examples: list[list[str]] = []

    def add(self, names: list[str]) -> None:
        """Count a cluster, by the names of what is in it; one alone is none."""
        if len(names) > 1:
            self._names.update(names)
            self._count += 1
            self._largest = max(self._largest, len(names))
            self._examples = sorted([*self._examples, names])[:_MAX_EXAMPLES]

    def describe(self, copies: Copies) -> dict[str, Any]:
        return {
            "copies": len(self._names),
            "clusters": self._count,
            "largest": self._largest,
            "chained": copies.count_chained(),
            "compared": copies.candidates,
            "examples": [names[:2] for names in self._examples],
        }
