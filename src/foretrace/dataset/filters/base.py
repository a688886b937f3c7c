"""What a filter of whole traces is, and what it decides by: traces as they were examined, in a file on disk, since a
build may have more of them than there is memory for."""

from __future__ import annotations

import heapq
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec
import numpy as np

from foretrace.core.digest import digest
from foretrace.core.errors import BuildError
from foretrace.core.trace import Trace


class ExaminedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What decisions are made by."""

    key: str
    id: str
    task: str
    group: str
    source: str
    """`source:split`, as the manifest counts traces."""
    success: bool | None
    n_messages: int
    n_steps: int
    """Messages of the agent."""
    names_tools: bool
    """Whether its source says what the agent was offered."""
    findings: dict[str, Any] = {}
    """By filter; without those that found nothing."""


class Decision(msgspec.Struct, kw_only=True):
    """What one filter decided."""

    left_out: dict[str, str] = {}
    """The reason, by key of a trace."""
    merged_groups: list[tuple[str, ...]] = []
    """Groups that become one."""
    kept_together: list[tuple[str, ...]] = []
    """Keys of traces for which they become one: rows of theirs never stand in two splits."""
    figures: dict[str, Any] = {}
    """For the manifest."""
    notes: list[str] = []
    """Sentences for the card."""


class TraceFilter(Protocol):
    """One reason for which traces are left out, or groups are merged."""

    name: str

    def examine(self, trace: Trace) -> Any:
        """What the decision has to know of one trace, made of plain values; `None` where that is nothing. It runs in a
        worker process."""
        ...

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Decide about the traces that earlier filters left, in the order of their keys."""
        ...


_RUN = 256
"""Traces that are sorted, and sent to the process that decides, at a time."""
_LENGTH = 4
"""Bytes in front of each trace, which say how long it is."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ExaminedTrace).decode


class ExaminedTraces(Sequence[ExaminedTrace]):
    """In the order of their keys. They are read from a file each time; of each, 8 bytes are held."""

    def __init__(self, file: BinaryIO, starts: array[int]) -> None:
        """
        Args:
            file: What `sort_runs` wrote.
            starts: Where each trace begins in it, ascending.
        """
        self._file, self._starts = file, starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, place: int) -> ExaminedTrace:  # type: ignore[override]
        return _decode(_read(self._file, self._starts[place]))

    def choose(self, places: Iterable[int]) -> ExaminedTraces:
        """Those at some places, which ascend."""
        return ExaminedTraces(self._file, array("q", (self._starts[place] for place in places)))


def pack_runs(traces: Iterable[ExaminedTrace]) -> Iterator[bytes]:
    """Encode examined traces, many at a time, each time in the order of their keys."""
    left = iter(traces)
    while run := sorted(islice(left, _RUN), key=lambda trace: trace.key):
        encoded = map(_encode, run)
        yield b"".join(part for each in encoded for part in (len(each).to_bytes(_LENGTH, "little"), each))


def sort_runs(runs: Iterable[bytes], scratch: Path | None = None) -> ExaminedTraces:
    """Put the traces of all runs in order, in a file that goes away with what is returned: in the folder `scratch`, or
    where temporary files are.

    Raises:
        BuildError: two traces of one key.
    """
    with tempfile.TemporaryFile(dir=scratch) as unsorted:
        starts = [0]
        for run in runs:
            unsorted.write(run)
            starts.append(starts[-1] + len(run))
        ordered = heapq.merge(*(_read_run(unsorted, *ends) for ends in pairwise(starts)))
        file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
        places = array("q")
        last = ""
        for key, encoded in ordered:
            if places and key == last:
                raise _make_twice_error(_read(file, places[-1]), encoded)
            last = key
            places.append(file.tell())
            file.write(len(encoded).to_bytes(_LENGTH, "little") + encoded)
    return ExaminedTraces(file, places)


def count_tasks(traces: Iterable[ExaminedTrace]) -> int:
    """How many tasks the traces attempt."""
    digests = b"".join(bytes.fromhex(digest(trace.task)) for trace in traces)
    return len(np.unique(np.frombuffer(digests, dtype="<u8")))


def _read_run(file: BinaryIO, start: int, end: int) -> Iterator[tuple[str, bytes]]:
    """Keys and encoded traces. The file is read by others in between."""
    while start < end:
        encoded = _read(file, start)
        start += _LENGTH + len(encoded)
        yield _decode(encoded).key, encoded


def _read(file: BinaryIO, start: int) -> bytes:
    file.seek(start)
    return file.read(int.from_bytes(file.read(_LENGTH), "little"))


def _make_twice_error(*encoded: bytes) -> BuildError:
    one, other = map(_decode, encoded)
    return BuildError(
        f"{one.key} stands in two folders, as a trace of the task {one.task} and of {other.task}: "
        "leave one of the folders out, or import its rows again"
    )
