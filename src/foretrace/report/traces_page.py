"""The page of one traces folder, or of two side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.actions.flags import flag_trace
from foretrace.actions.label_steps import collect_evidence
from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import StoreError, find_first_line
from foretrace.core.internal_errors import contain_errors
from foretrace.core.progress import ProgressFunc
from foretrace.core.store import TraceStore, unpack_record
from foretrace.core.version import __version__
from foretrace.evaluation.step_times import time_steps
from foretrace.report.data_files import encode_json, measure_block
from foretrace.report.page import Page
from foretrace.report.runs import TurnSums
from foretrace.report.trace_facts import describe_trace
from foretrace.report.trace_index import ROWS_PER_CHUNK, TraceIndex

_ROW_BYTES = 500
"""About what the line of a trace in the list takes."""
_META_BYTES = 20_000
"""What the page's facts take at most beside the texts of the list, and the names of the columns of a chunk."""
_SHOWN_UNREADABLE = 50


class _Pieces:
    """Gathers traces into pieces of some size, which the page loads one by one.

    Args:
        page: The page.
        index: The list of traces.
        fixed: Bytes of the page that are kept beside the lines of the list.
        lines: Bytes that are kept for these.
    """

    def __init__(self, page: Page, index: TraceIndex, fixed: int, lines: float) -> None:
        self._page = page
        self._index = index
        self._spare = fixed + lines
        self._listed = fixed
        """Bytes that the lines of the traces that are in the page take, with the fixed ones."""
        self._first = 0
        """Row of the first trace that waits."""
        self._waiting: list[msgspec.Raw] = []
        self._bytes = self._row_bytes = 0
        self.number = 0
        self.left_out = 0
        """Traces for whose messages the page has no room."""

    @property
    def place(self) -> int:
        """Where the next trace stands in its piece."""
        return len(self._waiting)

    def add(self, facts: dict[str, Any], row_bytes: int) -> None:
        data = encode_json(facts).encode()
        self._waiting.append(msgspec.Raw(data))
        self._bytes += len(data)
        self._row_bytes += row_bytes
        if self._bytes >= self._page.chunk_bytes:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            # A trace without its line in the list could not be opened: the lines of those that are in come first.
            spare = max(self._spare, self._listed + self._row_bytes)
            if self._page.put(f"traces-{self.number}", self._waiting, spare=spare):
                self._listed += self._row_bytes
            else:
                self.left_out += self._index.leave_out(self._first)
            self.number += 1
        self._first = len(self._index)
        self._waiting, self._bytes, self._row_bytes = [], 0, 0


class PageCounts(NamedTuple):
    """What a page of traces shows."""

    listed: int
    left_out: int
    """Traces of which only the line in the list is there."""
    unlisted: int
    """Traces that are not even in the list, for want of room."""
    unreadable: int
    """Traces whose records cannot be read."""


def write_traces_page(page: Page, stores: Sequence[TraceStore], progress: ProgressFunc) -> PageCounts:
    """Put all that a page of traces shows into `page`."""
    index = TraceIndex()
    total = sum(len(store.read_columns("key")) for store in stores)
    fixed = _META_BYTES * (1 + total // ROWS_PER_CHUNK)
    pieces = _Pieces(page, index, fixed, min(page.room / 2, _ROW_BYTES * total))
    turns = [TurnSums() for _ in stores]
    unreadable: list[tuple[str, str]] = []
    for run, store in enumerate(stores):
        for done, (key, record, packed) in enumerate(store.read_records(), len(index) + len(unreadable) + 1):
            progress(f"reading {store.folder}", done, total)
            try:
                trace = unpack_record(record, packed)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                unreadable.append((key, find_first_line(error)))
                continue
            with contain_errors("page", key) as found:
                evidence, times = collect_evidence(trace), time_steps(trace)
                labels, flags = [each.label for each in evidence], flag_trace(trace, evidence)
                facts = describe_trace(trace, labels, flags, times)
                place = {"run": run, "chunk": pieces.number, "place": pieces.place}
                row_bytes = index.add(trace, labels, flags, times, **place)
                turns[run].add(trace, times)
                pieces.add(facts, row_bytes)
            if found.text:
                unreadable.append((key, found.text))
    pieces.flush()
    facts = {
        "kind": "traces",
        "version": __version__,
        "folders": name_folders([store.folder for store in stores]),
        "actions": [str(action) for action in ActionType],
        "turns": [sums.list_means() for sums in turns],
        "unreadable": unreadable[:_SHOWN_UNREADABLE],
    }
    unlisted = index.shrink(page.room - measure_block(facts) - fixed) if page.room < math.inf else 0
    chunks = index.make_chunks()
    for number, chunk in enumerate(chunks):
        page.put(f"index-{number}", chunk, needed=True)
    counts = PageCounts(len(index), pieces.left_out - unlisted, unlisted, len(unreadable))
    facts |= {"unlisted": unlisted, "unreadable_count": len(unreadable)} | {
        "left_out": counts.left_out,
        "traces": len(index),
        "chunks": len(chunks),
        "texts": index.list_texts(),
    }
    page.put("meta", facts, needed=True)
    return counts


def name_folders(folders: Sequence[Path]) -> list[str]:
    """Short names of folders: the last part, with the one before it where two are alike."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [f"{folder.resolve().parent.name}/{name}" for folder, name in zip(folders, names, strict=True)]
    return names


def was_changed(store: TraceStore) -> bool:
    """Whether somebody has written to the folder since it was opened."""
    try:
        return msgspec.json.encode(TraceStore(store.folder).manifest) != msgspec.json.encode(store.manifest)
    except StoreError:
        return True
