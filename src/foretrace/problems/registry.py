"""Finds a problem set by what a user calls it: `NAME`, `NAME:FILE` or `module:Class`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from foretrace.core.errors import ProblemError, UsageError
from foretrace.core.plugins import names, resolve
from foretrace.core.problem import Problem
from foretrace.problems.base import Drop, split, strict

MAX_NAMED_DROPS = 3
"""Rows that cannot be used that one line names."""


def apart(name: str, path: Path | None) -> tuple[str, Path | None]:
    """The name of a set and the file of its rows, from `NAME:FILE`, or from both as they are.

    Raises:
        UsageError: two files.
    """
    form, _, file = name.partition(":")
    if not file or form not in names("problems"):
        return name, path
    if path is not None:
        raise UsageError(f"{name!r} names a file, and {path} is another one: give one of them")
    return form, Path(file)


def problem_set(name: str) -> Any:
    """The plugin of a set.

    Raises:
        UsageError: no such set, or a file without its form.
    """
    if ":" not in name and name not in names("problems") and (Path(name).suffix or Path(name).exists()):
        raise UsageError(f"{name!r} is no problem set; for a file of rows give jsonl:{name}")
    return resolve("problems", name)


def usable_problems(name: str, path: Path | None, limit: int | None) -> tuple[list[Problem], list[Drop]]:
    """The first problems of a set, all of them without a limit, and the rows between them that cannot be used.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: it cannot be read, or no row of it can be used.
    """
    return _first(_all(name, path), path or name, limit)


def name_drops(drops: Sequence[Drop], place: Path | str) -> str:
    """Which rows of a place cannot be used, and why: the first of them."""
    told = [f"{drop.at.removeprefix(f'{place} ')}: {drop.reason}" for drop in drops[:MAX_NAMED_DROPS]]
    return "; ".join([*told, *(["..."] if len(drops) > MAX_NAMED_DROPS else [])])


def problems_of(name: str, path: Path | None, limit: int | None) -> list[Problem]:
    """The first problems of a set, all of them without a limit.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: a row that cannot be used; names where it stands.
    """
    return _first(strict(_all(name, path)), path or name, limit)[0]


def _all(name: str, path: Path | None) -> Iterable[Problem | Drop]:
    return problem_set(name)().load(path)


def _first(loaded: Iterable[Problem | Drop], place: Path | str, limit: int | None) -> tuple[list[Problem], list[Drop]]:
    found, drops = split(loaded, limit)
    if not found:
        none = f"none of its {len(drops):,} problems can be used: {name_drops(drops, place)}"
        raise ProblemError(f"{place}: {none if drops else 'there is no problem in it'}")
    return found, drops
