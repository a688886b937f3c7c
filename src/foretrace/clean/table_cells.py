"""Find secrets in the cells of tables, named by the header of their column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from foretrace.clean.rules import CLEAR_WORDS, HARMLESS_NAMES, PASSWORD_WORDS
from foretrace.clean.values import is_random, is_secret

Cell = tuple[int, int, str, str]
"""Start, end, name of the column, and value."""

_BARS = ("|", "│", "\t", ",", ";")
"""Separators of cells; the first of these found in a line counts."""
_MARKS = " \"'`*\t\r"
"""Characters stripped from around a cell."""
_NAME = re.compile(r"[\w .#/()-]{0,40}")
_CLEAR_NAME = re.compile(f"(?i)(?:{CLEAR_WORDS})")
_RULE = re.compile(r"[\s|+:=~─━═│┃┆┌┐└┘├┤┬┴┼╞╡╪╭╮╰╯-]*")
"""A line between the header of a table and its rows."""
_END_OF_JSON = re.compile(r"\"[\]},\s]+\Z")
_LONGEST_HEAD = 400
_MAX_ROWS = 500
_LONGEST_ROW = 4096


def find_table_cells(text: str, places: Iterable[int]) -> Iterator[Cell]:
    """The secrets in tables.

    Args:
        text: The text to search.
        places: Offsets of words that may name a secret, ascending.
    """
    seen = -1
    for at in places:
        if at < seen:
            continue
        start = text.rfind("\n", max(0, at - _LONGEST_HEAD), at) + 1
        end = text.find("\n", at, at + _LONGEST_HEAD)
        if (start == 0 and at > _LONGEST_HEAD) or (end < 0 and len(text) > at + _LONGEST_HEAD):
            continue  # no header is that long
        seen = end = len(text) if end < 0 else end
        line = text[start:end]
        bar = next((bar for bar in _BARS if bar in line), None)
        if bar is None:
            continue
        cells = line.split(bar)
        if columns := _find_columns(cells, bar):
            yield from _find_below(text, end + 1, columns, bar, len(cells))


def _find_columns(cells: list[str], bar: str) -> dict[int, str]:
    """The columns whose names say that they hold secrets; none if the line is not a header."""
    names = [cell.strip(_MARKS) for cell in cells]
    if not _NAME.fullmatch(names[0]):
        names[0] = cells[0].rpartition('"')[2].strip()  # a table inside JSON text
    if sum(map(bool, names)) < 2 or not all(_NAME.fullmatch(name) for name in names):
        return {}
    if bar in ",;" and any(cell[:1].isspace() for cell in cells[1:]):
        return {}  # a sentence, or a list in code
    return {number: name for number, name in enumerate(names) if _names_secret(name)}


def _find_below(text: str, at: int, columns: dict[int, str], bar: str, n_cells: int) -> Iterator[Cell]:
    for _ in range(_MAX_ROWS):
        end = text.find("\n", at, at + _LONGEST_ROW)
        if end < 0:
            if len(text) - at > _LONGEST_ROW or at >= len(text):
                return
            end = len(text)
        line = text[at:end]
        cells = line.split(bar)
        if len(cells) == n_cells:
            starts = [at]
            for cell in cells:
                starts.append(starts[-1] + len(cell) + len(bar))
            for number, name in columns.items():
                yield from _judge(starts[number], cells[number], name)
        elif not _RULE.fullmatch(line):
            return
        at = end + 1


def _names_secret(name: str) -> bool:
    return _CLEAR_NAME.search(name) is not None and HARMLESS_NAMES.search(name) is None


def _judge(start: int, cell: str, name: str) -> Iterator[Cell]:
    value = _END_OF_JSON.sub("", cell).strip(_MARKS)
    is_password = PASSWORD_WORDS.search(name) is not None
    if is_secret(value, quoted=False, password=is_password) and is_random(value, 6 if is_password else 16):
        first = start + cell.index(value)
        yield first, first + len(value), name, value
