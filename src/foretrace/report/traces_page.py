"""The page of one traces folder, or of two side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.flags import flag_trace
from foretrace.actions.label_steps import collect_evidence
from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import Setting, UsageError, find_first_line
from foretrace.core.internal_errors import contain_errors
from foretrace.core.progress import ProgressFunc
from foretrace.core.store import TraceStore, unpack_record
from foretrace.core.version import __version__
from foretrace.episodes.speculation_report import read_launches
from foretrace.evaluation.step_times import time_steps
from foretrace.report.page import Page, PageCounts, encode_json
from foretrace.report.trace_facts import TurnSums, describe_trace
from foretrace.report.trace_index import TraceIndex

_ROW_BYTES = 500
"""Approximate size of a trace's line in the list."""
_MESSAGES_SHARE = 0.75
"""Share of a page that the messages may fill; the rest is for the list."""
_SHOWN_UNREADABLE = 50


class _Pieces:
    """Collects traces in pieces of a certain size, which the page loads one by one."""

    def __init__(self, page: Page, index: TraceIndex) -> None:
        self._page = page
        self._index = index
        self._first = 0
        """Row of the first trace in the current piece."""
        self._waiting: list[msgspec.Raw] = []
        self._bytes = 0
        self.number = 0
        self.left_out = 0
        """Traces whose messages did not fit into the page."""

    @property
    def place(self) -> int:
        """Position of the next trace in its piece."""
        return len(self._waiting)

    def add(self, facts: dict[str, Any]) -> None:
        data = encode_json(facts).encode()
        self._waiting.append(msgspec.Raw(data))
        self._bytes += len(data)
        if self._bytes >= self._page.chunk_bytes:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            if not self._page.put(f"traces-{self.number}", self._waiting, share=_MESSAGES_SHARE):
                self.left_out += self._index.leave_out(self._first)
            self.number += 1
        self._first = len(self._index)
        self._waiting, self._bytes = [], 0


def write_traces_page(page: Page, stores: Sequence[TraceStore], progress: ProgressFunc) -> PageCounts:
    """Put everything that a page of traces shows into `page`.

    Raises:
        UsageError: the list of traces does not fit.
    """
    index = TraceIndex()
    total = sum(len(store.read_columns("key")) for store in stores)
    if _ROW_BYTES * total > page.limit:
        raise UsageError(f"{total:,} traces are too many for one file; write a folder with ", Setting("out", "view"))
    pieces = _Pieces(page, index)
    turns = [TurnSums() for _ in stores]
    unreadable: list[tuple[str, str]] = []
    for run, store in enumerate(stores):
        launches = read_launches(store.folder)
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
                facts = describe_trace(trace, labels, flags, times, launches.get(key, ()))
                place = {"run": run, "chunk": pieces.number, "place": pieces.place}
                index.add(trace, labels, flags, times, **place)
                turns[run].add(trace, times)
                pieces.add(facts)
            if found.text:
                unreadable.append((key, found.text))
    pieces.flush()
    chunks = index.make_chunks()
    for number, chunk in enumerate(chunks):
        page.put(f"index-{number}", chunk)
    facts = {
        "kind": "traces",
        "version": __version__,
        "folders": name_folders([store.folder for store in stores]),
        "actions": [str(action) for action in ActionType],
        "turns": [sums.list_means() for sums in turns],
        "unreadable": unreadable[:_SHOWN_UNREADABLE],
        "unreadable_count": len(unreadable),
        "left_out": pieces.left_out,
        "traces": len(index),
        "chunks": len(chunks),
        "texts": index.list_texts(),
    }
    page.put("meta", facts)
    return PageCounts(len(index), pieces.left_out, unreadable=len(unreadable))


def name_folders(folders: Sequence[Path]) -> list[str]:
    """Short names of folders: the last part, preceded by the parent's name if two are equal."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [f"{folder.resolve().parent.name}/{name}" for folder, name in zip(folders, names, strict=True)]
    return names
