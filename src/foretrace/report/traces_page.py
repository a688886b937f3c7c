"""The page of one traces folder, or of two side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.flags import flag_trace
from foretrace.actions.label_steps import collect_evidence
from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import StoreError
from foretrace.core.progress import ProgressFunc
from foretrace.core.store import TraceStore
from foretrace.core.version import __version__
from foretrace.evaluation.step_times import time_steps
from foretrace.report.data_files import encode_json
from foretrace.report.page import Page
from foretrace.report.runs import TurnSums
from foretrace.report.trace_facts import describe_trace
from foretrace.report.trace_index import TraceIndex


class _Pieces:
    """Gathers traces into pieces of some size, which the page loads one by one."""

    def __init__(self, page: Page, index: TraceIndex) -> None:
        self._page = page
        self._index = index
        self._waiting: list[msgspec.Raw] = []
        self._bytes = 0
        self.number = 0
        self.left_out = 0
        """Traces for whose messages the page has no room."""

    @property
    def place(self) -> int:
        """Where the next trace stands in its piece."""
        return len(self._waiting)

    def add(self, facts: dict[str, Any]) -> None:
        data = encode_json(facts).encode()
        self._waiting.append(msgspec.Raw(data))
        self._bytes += len(data)
        if self._bytes >= self._page.chunk_bytes:
            self.flush()

    def flush(self) -> None:
        if self._waiting and not self._page.put(f"traces-{self.number}", self._waiting):
            self.left_out += self._index.leave_out(self.number)
        self.number += bool(self._waiting)
        self._waiting, self._bytes = [], 0


def write_traces_page(page: Page, stores: Sequence[TraceStore], progress: ProgressFunc) -> tuple[int, int]:
    """Put all that a page of traces shows into `page`.

    Returns:
        How many traces the list has, and of how many the messages are left out.
    """
    index = TraceIndex()
    pieces = _Pieces(page, index)
    total = sum(len(store.read_columns("key")) for store in stores)
    turns = [TurnSums() for _ in stores]
    for run, store in enumerate(stores):
        for trace in store.read():
            evidence, times = collect_evidence(trace), time_steps(trace)
            labels, flags = [each.label for each in evidence], flag_trace(trace, evidence)
            index.add(trace, labels, flags, times, run=run, chunk=pieces.number, place=pieces.place)
            turns[run].add(trace, times)
            pieces.add(describe_trace(trace, labels, flags, times))
            progress(f"reading {store.folder}", len(index), total)
    pieces.flush()
    chunks = index.make_chunks()
    for number, chunk in enumerate(chunks):
        page.put(f"index-{number}", chunk, needed=True)
    facts = {
        "kind": "traces",
        "version": __version__,
        "folders": name_folders([store.folder for store in stores]),
        "traces": len(index),
        "chunks": len(chunks),
        "texts": index.list_texts(),
        "actions": [str(action) for action in ActionType],
        "turns": [sums.list_means() for sums in turns],
        "left_out": pieces.left_out,
    }
    page.put("meta", facts, needed=True)
    return len(index), pieces.left_out


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
