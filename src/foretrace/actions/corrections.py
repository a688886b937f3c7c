"""Labels that a person corrects: the steps with the least certain labels as a sheet to fill in, and what comes back."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from foretrace.actions.call_names import name_call
from foretrace.actions.confidence import NO_STEP
from foretrace.actions.rules import CORRECTED_RULE
from foretrace.actions.taxonomy import ActionType, StepLabel
from foretrace.core.digest import digest, hash_fraction
from foretrace.core.errors import SourceError, UsageError
from foretrace.core.files import atomic_file
from foretrace.core.places import write_place
from foretrace.encodings.calls_in_text import remove_calls

if TYPE_CHECKING:
    from foretrace.core.store import TraceStore
    from foretrace.core.trace import Trace

COLUMNS = (
    "key", "id", "message_index", "source", "action", "rule", "confidence", "step", "observation", "correct_action",
)  # fmt: skip
NEEDED_COLUMNS = ("key", "id", "message_index", "correct_action")
FORMATS = (".csv", ".jsonl")
_ACTIONS = (*map(str, ActionType), NO_STEP)
_CONTEXT = 400
_PAGE = 50
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_REASONS = {
    "unknown_trace": "no trace has the key",
    "changed_trace": "the trace has changed since",
    "no_such_step": "the agent has no message there",
}


class UnsureStep(NamedTuple):
    """A labeled step. Sorts in the order of the sheet: the least certain first, ties by hash, so that they are not all
    from one trace."""

    confidence: float
    order: float
    key: str
    message_index: int
    action: str | None
    rule: str


class LeastSure:
    """Keeps the least certain of many labeled steps."""

    def __init__(self, count: int) -> None:
        self._count, self._kept = count, list[UnsureStep]()

    def add(self, table: Any) -> None:
        """Add a table of labels (`label_table`); corrected ones are left out."""
        if self._count:
            names = ("confidence", "corrected", "key", "message_index", "action", "rule")
            rows = zip(*(table[name].to_pylist() for name in names), strict=True)
            self._kept += (
                UnsureStep(confidence, hash_fraction("review", key, str(index)), key, index, action, rule)
                for confidence, corrected, key, index, action, rule in rows
                if not corrected
            )
            self._kept = nsmallest(self._count, self._kept)

    def take(self) -> list[UnsureStep]:
        return self._kept


def check_review_file(path: Path) -> None:
    """Refuse the name of a sheet that ends in neither .csv nor .jsonl."""
    if path.suffix not in FORMATS:
        raise UsageError(f"{write_place(path)}: name the review .csv or .jsonl")


def write_review(steps: Sequence[UnsureStep], store: TraceStore, path: Path) -> None:
    """Write steps as the rows of a sheet: what each does, its observation, and an empty `correct_action`."""
    rows = _make_rows(steps, store)
    with atomic_file(path) as file:
        if path.suffix == ".jsonl":
            file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
            return
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(map(_protect_cell, row.values()) for row in rows)
        # The byte order mark tells spreadsheets that it is UTF-8.
        file.write(text.getvalue().encode("utf-8-sig"))


def _protect_cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: `'=1+1`."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def _make_rows(steps: Sequence[UnsureStep], store: TraceStore) -> Iterator[dict[str, Any]]:
    for start in range(0, len(steps), _PAGE):
        page = steps[start : start + _PAGE]
        traces = store.get_many({step.key for step in page})
        yield from (_make_row(step, traces[step.key]) for step in page)


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


class Correction(NamedTuple):
    """The action that a person gave to a step."""

    id: str
    """Id of the trace when it was reviewed: if the trace has changed since, its steps are not corrected."""
    action: ActionType | None
    """`None` if the message is not a step."""
    row: int


class CorrectionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of a table of corrections were applied."""

    applied: int
    """Steps whose action a row sets."""
    left_empty: int
    not_applied: dict[str, int]
    """Rows that could not be applied, by reason: `unknown_trace` (no trace has the key), `changed_trace` (its id is
    different now), `no_such_step` (the index is not a message of the agent)."""
    warnings: tuple[str, ...] = ()


class Corrections(msgspec.Struct, frozen=True):
    steps: dict[tuple[str, int], Correction]
    """Key of the trace and message index -> correction."""
    left_empty: int

    def compute_digest(self) -> str:
        """A digest of the corrections, independent of the format and order of the table."""
        rows = (
            (key, each.id, str(index), str(each.action or NO_STEP)) for (key, index), each in sorted(self.steps.items())
        )
        return digest(*(text for row in rows for text in row), size=16)

    def apply(self, trace: Trace, labels: list[StepLabel]) -> list[StepLabel]:
        """The labels of a trace with the corrected actions; effect, state and `failed` stay the same."""
        corrected: dict[str, Any] = {"rule": CORRECTED_RULE, "confidence": 1.0, "corrected": True}
        return [
            msgspec.structs.replace(label, action=found.action, **corrected)
            if (found := self.steps.get((trace.key, label.index))) is not None and found.id == trace.id
            else label
            for label in labels
        ]

    def count(self, stores: Iterable[TraceStore], applied: int) -> CorrectionCounts:
        """Count the rows that were applied to traces of these stores (`applied` labels), and the others."""
        traces: set[tuple[str, str]] = set()
        for store in stores if self.steps else ():
            table = store.read_columns("key", "id")
            traces.update(zip(table["key"].to_pylist(), table["id"].to_pylist(), strict=True))
        keys = {key for key, _ in traces}
        lost: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for (key, _), each in self.steps.items():
            if (key, each.id) not in traces:
                reason = "changed_trace" if key in keys else "unknown_trace"
                lost[reason] += 1
                examples.setdefault(reason, f", such as row {each.row}: {key}")
        if left := len(self.steps) - lost.total() - applied:
            lost["no_such_step"] = left
        warnings = (
            f"{count:,} correction{'s' if count > 1 else ''} not applied: {_REASONS[why]}{examples.get(why, '')}"
            for why, count in sorted(lost.items())
        )
        return CorrectionCounts(
            applied=applied,
            left_empty=self.left_empty,
            not_applied=dict(sorted(lost.items())),
            warnings=tuple(warnings),
        )


def read_corrections(path: Path) -> Corrections:
    """Read a filled-in sheet, .csv as spreadsheets save it or .jsonl. Any row that is not understood is an error that
    names it."""
    steps: dict[tuple[str, int], Correction] = {}
    left_empty = 0
    for number, row in _read_rows(path):
        if not any(row.values()):
            continue
        where = f"{path}: row {number}"
        if missing := [name for name in NEEDED_COLUMNS if name not in row]:
            needed = ", ".join(NEEDED_COLUMNS)
            raise SourceError(f"{where} has no column {missing[0]!r}; corrections have {needed}")
        texts = ("" if row[name] is None else str(row[name]).strip() for name in NEEDED_COLUMNS)
        key, trace_id, index, action = texts
        if not action:
            left_empty += 1
            continue
        if action not in _ACTIONS:
            raise SourceError(f"{where}: {action[:40]!r} is not an action; write one of {', '.join(_ACTIONS)}")
        if not key or not trace_id:
            raise SourceError(f"{where}: has no {'id' if key else 'key'}; keep these columns as they were written")
        index = index.removesuffix(".0")  # as pandas writes a column with gaps
        if not re.fullmatch(r"\d{1,9}", index):
            raise SourceError(f"{where}: message_index {index[:40]!r} is not a whole number")
        correction = Correction(trace_id, None if action == NO_STEP else ActionType(action), number)
        before = steps.setdefault((key, int(index)), correction)
        if before is not correction:
            raise SourceError(
                f"{where}: step {index} of {key} is corrected in row {before.row} too; keep one of the two"
            )
    return Corrections(steps, left_empty)


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows with their numbers, from 1; the header of a CSV file is row 1, as in a spreadsheet."""
    if path.suffix not in FORMATS:
        raise SourceError(f"{path}: cannot tell the format; name it .csv or .jsonl")
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot read: {error.strerror}"
        raise SourceError(f"{path}: {reason}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{path}: is not in UTF-8; save it as `CSV UTF-8`") from None
    is_csv = path.suffix == ".csv"
    number = 0
    try:
        for number, row in enumerate(
            _read_csv(text) if is_csv else map(_decode, filter(str.strip, text.split("\n"))), 1
        ):
            yield number + is_csv, row
    except (csv.Error, msgspec.DecodeError) as error:
        raise SourceError(f"{path}: row {number + 1 + is_csv} cannot be read: {error}; is the file whole?") from None
    if not text.strip():
        raise SourceError(f"{path}: is empty; corrections have the columns {', '.join(NEEDED_COLUMNS)}")


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _read_csv(text: str) -> Iterator[dict[str, Any]]:
    # Where the decimal separator is a comma, spreadsheets separate columns by semicolons.
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    csv.field_size_limit(1 << 24)
    for row in csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
        if None in row or None in row.values():
            raise csv.Error("it has more or fewer cells than the header")
        # The apostrophe keeps a spreadsheet from taking the cell for a formula.
        yield {
            name.strip(): cell[1:] if cell[:1] == "'" and cell[1:].startswith(_FORMULA_STARTS) else cell
            for name, cell in row.items()
        }
