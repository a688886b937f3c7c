"""Rows of a problem set, from a file, a dataset folder or the Hub (see `foretrace.rows`), and where each one is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.errors import ProblemError, Setting, SourceError, UsageError
from foretrace.problems.base import ProblemRow, UnusableRow
from foretrace.rows.base import Drop, Hub, RawRow
from foretrace.rows.files import FileRows
from foretrace.rows.hub import HubRows

_DAMAGE = ("truncated_file", "damaged_rows", "line_too_long")
"""Reasons for drops that make a set unusable, because it is unknown which problems are missing."""
_NO_JSON = ("bad_json", "not_utf8", "nested_too_deep")


def read_problem_rows(path: Path | None, hub: Hub | None) -> Iterator[ProblemRow | UnusableRow]:
    """Rows of a file, of a dataset folder, or (without a path) of the Hub; an UnusableRow for anything else.

    Raises:
        ProblemError: it cannot be opened, or is too damaged to read the rest.
        UsageError: there is neither a path nor a Hub repository.
    """
    if path is None and hub is None:
        raise UsageError("this problem set is read from a file: name it with ", Setting("path", "FILE"))
    try:
        rows, place, name = _open(path, hub)
        for raw in rows.read():
            if raw.value != Drop("empty_line"):  # blank lines are numbered but are not rows
                yield _make_problem_row(raw, f"{place} row {raw.at.row}", f"{name}/{raw.at.row}")
    except SourceError as error:
        hint = ["; or name a local file with ", Setting("path", "FILE")] if path is None else []
        raise ProblemError(*error.parts, *hint) from None


def _open(path: Path | None, hub: Hub | None) -> tuple[Any, str, str]:
    """The rows, the name of their location in messages, and the prefix of ids for problems without one."""
    if path is not None and not path.is_dir():
        rows = FileRows(path)
        return rows, str(path), rows.stem.rpartition(".")[0]
    home = hub or Hub("", "train")
    if path is not None:  # a folder has configurations only if its card lists them
        home = Hub(str(path), home.split)
    return HubRows(home), f"{home.repo} split {home.split}", Path(home.repo).name


def _make_problem_row(raw: RawRow, at: str, name: str) -> ProblemRow | UnusableRow:
    if not isinstance(raw.value, Drop):
        return ProblemRow(at, name, raw.value)
    if raw.value.reason in _DAMAGE:
        raise ProblemError(f"{at}: {raw.value.detail}")
    return UnusableRow(at, f"not JSON: {raw.value.detail}" if raw.value.reason in _NO_JSON else raw.value.detail)
