"""Read the rows of a table that a person edited: .csv as spreadsheets write it, .jsonl or .parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.errors import SourceError
from foretrace.rows.base import Drop
from foretrace.rows.files import FileRows, TruncatedError, read_unpacked, remove_bom

_DELIMITERS = ",;\t"
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_MAX_FIELD = 1 << 24
"""Most characters of one field."""


def protect_cell(text: str) -> str:
    """A text as a CSV cell that no spreadsheet takes for a formula: `'=1+1`."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _read_cell(text: str) -> str:
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA_STARTS) else text


def read_correction_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows with their numbers, from 1; the header of a CSV file is row 1, as in a spreadsheet.

    Args:
        path: .csv, .jsonl or .parquet, the first two also with .gz or .zst.
        columns: Columns that every row must have.

    Raises:
        SourceError: the file cannot be read as a whole, or lacks a column.
    """
    stem = path.name.removesuffix(".gz").removesuffix(".zst")
    if stem.endswith(".csv"):
        yield from _read_csv(path, columns)
        return
    if not stem.endswith((".jsonl", ".parquet")):
        raise SourceError(f"{path}: cannot tell the format; name it .csv, .jsonl or .parquet")
    for row in FileRows(path).read():
        number = row.at.row + 1
        if isinstance(row.value, Drop):
            if row.value.reason == "empty_line":
                continue
            raise SourceError(f"{path}: row {number} cannot be read: {row.value.detail or row.value.reason}")
        _check_columns(path, row.value, columns, f"row {number}")
        yield number, row.value


def _check_columns(path: Path, found: Any, columns: tuple[str, ...], where: str) -> None:
    if missing := [name for name in columns if name not in found]:
        raise SourceError(f"{path}: {where} has no column {missing[0]!r}; corrections have {', '.join(columns)}")


def _read_csv(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    text = _read_text(path)
    header = text.partition("\n")[0]
    # Where the decimal separator is a comma, spreadsheets separate columns by semicolons.
    delimiter = max(_DELIMITERS, key=header.count)
    csv.field_size_limit(_MAX_FIELD)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] = []
    number = 0
    try:
        for number, cells in enumerate(rows, 1):
            if number == 1:
                names = [name.strip() for name in cells]
                _check_columns(path, names, columns, "the header")
                continue
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(names):
                raise SourceError(
                    f"{path}: row {number} has {len(cells)} cells where the header has {len(names)}; the file is torn, "
                    "or was saved with another separator inside"
                )
            yield number, dict(zip(names, map(_read_cell, cells), strict=True))
    except csv.Error as error:
        raise SourceError(f"{path}: row {number + 1} cannot be read: {error}; is the file whole?") from None
    if not names:
        raise SourceError(f"{path}: is empty; corrections have the columns {', '.join(columns)}")


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as raw:
            data = b"".join(remove_bom(read_unpacked(path, raw)))
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file") from None
    except (OSError, TruncatedError) as error:
        raise SourceError(f"{path}: cannot read: {getattr(error, 'strerror', None) or error}") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(f"{path}: line {line} is not in UTF-8; save it as `CSV UTF-8`") from None
