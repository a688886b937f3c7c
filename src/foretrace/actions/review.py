"""The steps with the least certain labels, as a table for a person to fill in and return as corrections."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from foretrace.actions.call_names import name_call
from foretrace.actions.correction_rows import protect_cell
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import UsageError
from foretrace.core.files import atomic_file
from foretrace.core.places import write_place
from foretrace.encodings.calls_in_text import remove_calls

if TYPE_CHECKING:
    from foretrace.core.store import TraceStore
    from foretrace.core.trace import Trace

COLUMNS = (
    "key", "id", "message_index", "source", "action", "rule", "confidence", "step", "observation", "correct_action",
)  # fmt: skip
FORMATS = (".csv", ".jsonl")
_CONTEXT = 400
"""Most characters shown of a step, and of its observation."""
_PAGE = 50
"""Traces held in memory at a time."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class UnsureStep(NamedTuple):
    """A labelled step. Sorts in the order of the review: the least certain first, ties by hash, so that they are not
    all from one trace."""

    confidence: float
    order: float
    key: str
    message_index: int
    action: str | None
    rule: str


class LeastSure:
    """Keeps the least certain of many labelled steps."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: list[UnsureStep] = []
        self._highest = 1.0
        """Steps with a higher confidence are not among the least certain."""

    def add(self, table: Any) -> None:
        """Add a table of labels (`label_table`); corrected ones are left out."""
        if not self._count:
            return
        names = ("confidence", "corrected", "key", "message_index", "action", "rule")
        columns = (table[name].to_pylist() for name in names)
        for confidence, corrected, key, index, action, rule in zip(*columns, strict=True):
            if confidence <= self._highest and not corrected:
                order = hash_fraction("review", key, str(index))
                self._kept.append(UnsureStep(confidence, order, key, index, action, rule))
        if len(self._kept) > self._count:
            self._kept = nsmallest(self._count, self._kept)
            self._highest = self._kept[-1].confidence

    def take(self) -> list[UnsureStep]:
        """The kept steps, the least certain first."""
        return sorted(self._kept)


def check_review_file(path: Path) -> None:
    """Refuse a file name that is not one of a review.

    Raises:
        UsageError: it ends in neither .csv nor .jsonl.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"{write_place(path)}: name the review .csv or .jsonl")


def write_review(steps: Sequence[UnsureStep], store: TraceStore, path: Path) -> None:
    """Write steps as the rows of a review: what each does, its observation, and an empty `correct_action`."""
    rows = _make_rows(steps, store)
    with atomic_file(path) as file:
        if path.suffix == ".jsonl":
            for row in rows:
                file.write(msgspec.json.encode(row) + b"\n")
            return
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow(protect_cell(value) if isinstance(value, str) else value for value in row.values())
        # The byte order mark tells spreadsheets that it is UTF-8.
        file.write(text.getvalue().encode("utf-8-sig"))


def _make_rows(steps: Sequence[UnsureStep], store: TraceStore) -> Iterator[dict[str, Any]]:
    for start in range(0, len(steps), _PAGE):
        page = steps[start : start + _PAGE]
        traces = store.get_many({step.key for step in page})
        for step in page:
            yield _make_row(step, traces[step.key])


def _make_row(step: UnsureStep, trace: Trace) -> dict[str, Any]:
    message = trace.messages[step.message_index]
    calls = [f"{name_call(call)} {call.arguments}" for call in message.tool_calls]
    # The text next to a call does not decide; without a call it is all there is.
    shown = "; ".join(calls) if calls else remove_calls(message) or message.reasoning or ""
    answers = next((each.observations for each in trace.steps() if each.index == step.message_index), ())
    origin = (step.key, trace.id, step.message_index, trace.provenance.source)
    label = (step.action or "", step.rule, step.confidence)
    observation = _shorten(answers[-1].content) if answers else ""
    return dict(zip(COLUMNS, (*origin, *label, _shorten(shown), observation, ""), strict=True))


def _shorten(text: str) -> str:
    """A text on one line: its beginning and its end."""
    if len(text) > _CONTEXT * 10:
        text = f"{text[: _CONTEXT * 5]} {text[-_CONTEXT * 5 :]}"
    line = _CONTROL.sub(" ", " ".join(text.split()))
    return line if len(line) <= _CONTEXT else f"{line[: _CONTEXT * 2 // 3]} ... {line[-_CONTEXT // 3 :]}"
