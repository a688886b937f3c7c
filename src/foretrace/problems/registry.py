"""Finds a problem set by what a user calls it: `NAME` or `module:Class`, each perhaps with `:FILE` behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from foretrace.core.errors import ProblemError, UsageError
from foretrace.core.plugins import make_plugin, plugin_names
from foretrace.core.problem import Problem
from foretrace.problems.base import ProblemSet, UnusableRow, collect_problems, refuse_unusable

MAX_DESCRIBED_ROWS = 3
"""Rows that cannot be used that one line names."""


def split_name(name: str, path: Path | None) -> tuple[str, Path | None]:
    """The name of a set and the file of its rows, from `NAME:FILE` or `module:Class:FILE`, or from both as they are.

    Raises:
        UsageError: two files.
    """
    plain, _, file = name.partition(":")
    if plain not in plugin_names("problems"):
        class_name, _, file = file.partition(":")
        plain = f"{plain}:{class_name}"
    if not file:
        return name, path
    if path is not None:
        raise UsageError(f"{name!r} names a file, and {path} is another one: give one of them")
    return plain, Path(file)


def make_problem_set(name: str) -> ProblemSet:
    """The set of that name.

    Raises:
        UsageError: no such set, or a file without the name of its form.
    """
    if ":" not in name and name not in plugin_names("problems") and (Path(name).suffix or Path(name).exists()):
        raise UsageError(f"{name!r} is no problem set; for a file of rows give jsonl:{name}")
    return make_plugin("problems", name, ProblemSet)


def load_usable_problems(name: str, path: Path | None, limit: int | None) -> tuple[list[Problem], list[UnusableRow]]:
    """The first problems of a set, all of them without a limit, and the rows between them that cannot be used.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: it cannot be read, or no row of it can be used.
    """
    return _collect(make_problem_set(name).load(path), path or name, limit)


def describe_unusable(rows: Sequence[UnusableRow], place: Path | str) -> str:
    """Which rows of a file (or of the Hub) cannot be used, and why: the first of them."""
    reasons = [f"{row.at.removeprefix(f'{place} ')}: {row.reason}" for row in rows[:MAX_DESCRIBED_ROWS]]
    return "; ".join([*reasons, *(["..."] if len(rows) > MAX_DESCRIBED_ROWS else [])])


def load_problems(name: str, path: Path | None, limit: int | None) -> list[Problem]:
    """The first problems of a set, all of them without a limit.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: a row that cannot be used; names where it stands.
    """
    return _collect(refuse_unusable(make_problem_set(name).load(path)), path or name, limit)[0]


def _collect(
    found: Iterable[Problem | UnusableRow], place: Path | str, limit: int | None
) -> tuple[list[Problem], list[UnusableRow]]:
    problems, unusable = collect_problems(found, limit)
    if not problems:
        none = f"none of its {len(unusable):,} problems can be used: {describe_unusable(unusable, place)}"
        raise ProblemError(f"{place}: {none if unusable else 'there is no problem in it'}")
    return problems, unusable
