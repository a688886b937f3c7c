"""Corrections: actions that a person gave to steps, in a table such as `foretrace label --review` makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.actions.confidence import NO_STEP
from foretrace.actions.correction_rows import read_correction_rows
from foretrace.actions.rules import CORRECTED_RULE
from foretrace.actions.taxonomy import ActionType, StepLabel
from foretrace.core.digest import digest
from foretrace.core.errors import SourceError

if TYPE_CHECKING:
    from foretrace.core.store import TraceStore
    from foretrace.core.trace import Trace

COLUMNS = ("key", "id", "message_index", "correct_action")
"""Columns that a table of corrections must have; it may have others."""
_REASONS = {
    "unknown_trace": "no trace has the key",
    "changed_trace": "the trace has changed since",
    "no_such_step": "the agent has no message there",
}
_ACTIONS = (*map(str, ActionType), NO_STEP)


class TraceCorrections(msgspec.Struct, frozen=True):
    """The corrected steps of one trace."""

    id: str
    """Id of the trace when it was reviewed: if the trace has changed since, its steps are not corrected."""
    actions: dict[int, ActionType | None]
    """Message index -> action; `None` if the message is not a step."""
    row: int
    """Number of the first row, for error messages."""


class CorrectionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of a table of corrections were applied."""

    applied: int
    """Steps whose action a row sets."""
    left_empty: int
    """Rows without a correct action."""
    not_applied: dict[str, int]
    """Rows that could not be applied, by reason: `unknown_trace` (no trace has the key), `changed_trace` (its id is
    different now), `no_such_step` (the index is not a message of the agent)."""
    warnings: tuple[str, ...] = ()
    """One line for each of these reasons."""


class Corrections(msgspec.Struct, frozen=True):
    """A table of corrections."""

    traces: dict[str, TraceCorrections]
    """By key."""
    left_empty: int
    """Rows without a correct action."""

    @property
    def steps(self) -> int:
        """Corrected steps."""
        return sum(len(each.actions) for each in self.traces.values())

    def compute_digest(self) -> str:
        """A digest of the corrections, independent of the format and order of the table."""
        rows = [
            (key, each.id, str(index), str(action or NO_STEP))
            for key, each in sorted(self.traces.items())
            for index, action in sorted(each.actions.items())
        ]
        return digest(*(text for row in rows for text in row), size=16)

    def apply(self, trace: Trace, labels: list[StepLabel]) -> list[StepLabel]:
        """The labels of a trace with the corrected actions; effect, state and `failed` stay the same."""
        found = self.traces.get(trace.key)
        if found is None or found.id != trace.id:
            return labels
        return [_correct(label, found.actions) for label in labels]

    def count(self, stores: Iterable[TraceStore], applied: int) -> CorrectionCounts:
        """Count the rows that were applied, and those that were not.

        Args:
            stores: The traces that were labelled.
            applied: Labels that `apply` has corrected.
        """
        ids: dict[str, set[str]] = {}
        for store in stores if self.traces else ():
            table = store.read_columns("key", "id")
            for key, trace_id in zip(table["key"].to_pylist(), table["id"].to_pylist(), strict=True):
                if key in self.traces:
                    ids.setdefault(key, set()).add(trace_id)
        lost: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for key, each in self.traces.items():
            if each.id not in ids.get(key, ()):
                reason = "changed_trace" if key in ids else "unknown_trace"
                lost[reason] += len(each.actions)
                examples.setdefault(reason, f", such as row {each.row}: {key}")
        if left := self.steps - lost.total() - applied:
            lost["no_such_step"] = left
        return CorrectionCounts(
            applied=applied,
            left_empty=self.left_empty,
            not_applied=dict(sorted(lost.items())),
            warnings=tuple(
                f"{count:,} correction{'s' if count > 1 else ''} not applied: {_REASONS[reason]}"
                f"{examples.get(reason, '')}"
                for reason, count in sorted(lost.items())
            ),
        )


def _correct(label: StepLabel, actions: Mapping[int, ActionType | None]) -> StepLabel:
    if label.index not in actions:
        return label
    return msgspec.structs.replace(
        label, action=actions[label.index], rule=CORRECTED_RULE, confidence=1.0, corrected=True
    )


def read_corrections(path: Path) -> Corrections:
    """Read a table of corrections: .csv, .jsonl or .parquet, the first two also with .gz or .zst.

    Raises:
        SourceError: the file cannot be read, lacks a column, or has a row that is not understood; the row is named.
    """
    traces: dict[str, TraceCorrections] = {}
    rows: dict[tuple[str, int], int] = {}
    left_empty = 0
    for number, row in read_correction_rows(path, COLUMNS):
        action = _read_text(row["correct_action"])
        if not action:
            left_empty += 1
            continue
        where = f"{path}: row {number}"
        if action not in _ACTIONS:
            raise SourceError(f"{where}: {action[:40]!r} is not an action; write one of {', '.join(_ACTIONS)}")
        key, trace_id = _read_text(row["key"]), _read_text(row["id"])
        if not key or not trace_id:
            raise SourceError(f"{where}: has no {'id' if key else 'key'}; keep these columns as they were written")
        index = _read_index(row["message_index"])
        if index is None:
            raise SourceError(f"{where}: message_index {str(row['message_index'])[:40]!r} is not a whole number")
        before = rows.setdefault((key, index), number)
        if before != number:
            raise SourceError(f"{where}: step {index} of {key} is corrected in row {before} too; keep one of the two")
        found = traces.setdefault(key, TraceCorrections(trace_id, {}, number))
        if found.id != trace_id:
            raise SourceError(f"{where}: {key} has another id than in row {found.row}; keep the rows of one of the two")
        found.actions[index] = None if action == NO_STEP else ActionType(action)
    return Corrections(traces, left_empty)


def _read_text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _read_index(value: Any) -> int | None:
    """A non-negative integer as a spreadsheet may write it: 4, "4" or 4.0; else `None`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() and number >= 0 else None
