"""The interface of a problem set: where it comes from, and how its rows become Problems.

To add one, write a module in this folder whose `PLUGIN` has the members of `ProblemSet`, and list it in `BUILT_IN` of
`core/plugins.py`. `make_problems(read_problem_rows(path, self.hub), make)` does the reading. What is left to write is
`make`, which turns one row into one Problem. See docs/problems.md.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from foretrace.core.entry_points import read_entry_point
from foretrace.core.errors import ProblemError
from foretrace.core.problem import Problem
from foretrace.core.python_source import PARSE_ERRORS, parse_quietly, try_parse
from foretrace.rows.base import Hub

_ID_KEYS = ("id", "task_id", "question_id", "problem_id", "name")
_MAX_ID = 100


class ProblemRow(NamedTuple):
    """One row of a file or of the Hub, and where it is."""

    at: str
    """File (or repository) and 0-based row, e.g. `set.jsonl row 3`."""
    name: str
    """A name for a problem without an id: the file's name without its endings, and the row, e.g. `set/3`."""
    value: dict[str, Any]


class UnusableRow(NamedTuple):
    """A row that cannot be used."""

    at: str
    """Where it is, as in `ProblemRow.at`."""
    reason: str
    id: str | None = None
    """The row's own id."""
    task: Path | None = None
    """Folder of a Harbor task that can only be judged in its own image."""


class ProblemSet(Protocol):
    """A set of problems, or a format for such sets. It may also have `count`, the known number of problems."""

    name: str
    license: str | None
    hub: Hub | None
    """Where to read it if no path is given; `None` if a path is required, or if nothing needs to be read."""

    def load(self, path: Path | None = None) -> Iterator[Problem | UnusableRow]:
        """Problems in the order of the set, from a local file or folder, or from the Hub; an UnusableRow for each row
        that cannot be used.

        Raises:
            ProblemError: the set cannot be opened, or is so damaged that the rest cannot be read.
            UsageError: the set needs a path, or does not take one.
        """
        ...


class UnusableError(ValueError):
    """Raised while turning a row into a Problem; says what is wrong with the row."""


class NeedsImageError(UnusableError):
    """Raised if a row is a Harbor task that can only be judged in its own image."""

    def __init__(self, reason: str, task: Path) -> None:
        super().__init__(reason)
        self.task = task


def make_problems(
    rows: Iterable[ProblemRow | UnusableRow], make: Callable[[ProblemRow], Problem]
) -> Iterator[Problem | UnusableRow]:
    """The checked Problem of each row, or an UnusableRow if the row cannot be used."""
    seen: dict[str, str] = {}
    for row in rows:
        if isinstance(row, UnusableRow):
            yield row
            continue
        try:
            problem = check_problem(make(row))
            if problem.id in seen:
                raise UnusableError(f"the id {problem.id!r} is used by {seen[problem.id]} too; ids must differ")
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError, msgspec.MsgspecError) as error:
            task = error.task if isinstance(error, NeedsImageError) else None
            reason = f"no key {error.args[0]!r}" if isinstance(error, KeyError) else " ".join(str(error).split())[:300]
            own = next((row.value[key] for key in _ID_KEYS if row.value.get(key) not in (None, "")), None)
            known = str(own)[:_MAX_ID] if isinstance(own, (str, int)) else None
            yield UnusableRow(row.at, reason or type(error).__name__, known, task)
            continue
        seen[problem.id] = row.at
        yield problem


def collect_problems(
    found: Iterable[Problem | UnusableRow], limit: int | None = None
) -> tuple[list[Problem], list[UnusableRow]]:
    """The first `limit` problems (by default all), and the unusable rows before the last of them."""
    problems: list[Problem] = []
    drops: list[UnusableRow] = []
    for one in found:
        if isinstance(one, UnusableRow):
            drops.append(one)
            continue
        problems.append(one)
        if len(problems) == limit:
            break
    return problems, drops


def check_problems(problems: Iterable[Problem]) -> list[Problem]:
    """The problems as a list, checked so that each can be attempted; ProblemError if there is none, one has no tests,
    or two have the same id."""
    listed = list(problems)
    if not listed:
        raise ProblemError("no problems to attempt: the set is empty, or none of its problems was chosen")
    seen: set[str] = set()
    for problem in listed:
        require_tests(problem)
        name = qualify_id(problem)
        if name in seen:
            raise ProblemError(f"two problems have the id {name!r}; ids must differ")
        seen.add(name)
    return listed


def require_tests(problem: Problem) -> None:
    """Raise a ProblemError for a problem without tests."""
    if not (problem.public_tests or problem.hidden_tests):
        raise ProblemError(f"{problem.id} has no tests: an answer to it could not be judged")


def qualify_id(problem: Problem) -> str:
    """The problem's id, prefixed with the name of its set unless it already begins with it."""
    source = problem.source or "problems"
    return problem.id if problem.id.lower().startswith(f"{source.lower()}/") else f"{source}/{problem.id}"


def check_problem(problem: Problem) -> Problem:
    """Check that a Problem's fields have the right types and that its tests can be judged; returns it.

    Raises:
        UnusableError: it has no tests, tests that do not parse, or tests of both kinds.
        msgspec.ValidationError: a field has the wrong type.
    """
    problem = msgspec.convert(msgspec.to_builtins(problem), Problem)  # msgspec does not check types on creation
    if not problem.id.strip() or not problem.statement.strip():
        raise UnusableError("a problem needs an id and a statement")
    if problem.entry_point is not None and read_entry_point(problem.entry_point) is None:
        raise UnusableError(
            f"the entry point {problem.entry_point!r} is not a Python name: write the name of a function or class, "
            "or a method as Solution().name"
        )
    tests = (*problem.public_tests, *problem.hidden_tests)
    if not tests:
        raise UnusableError("no test at all: an answer to it could not be judged")
    programs = {test.stdin is not None or test.stdout is not None for test in tests}
    if len(programs) > 1:
        raise UnusableError("tests made of code and cases of a program do not go together")
    if programs == {True}:
        if problem.entry_point is not None:
            raise UnusableError("cases with stdin and stdout test a whole program: leave entry_point out")
        if any(test.code or test.stdout is None for test in tests):
            raise UnusableError("a case needs a stdout (and a stdin, unless it is empty), and no code")
        return problem
    if problem.entry_point is None:
        raise UnusableError("tests made of code need an entry_point, the name of the function or class to call")
    for test in tests:
        if not test.code.strip():
            raise UnusableError("an empty test")
        parse_code(test.code, "a test is ")
    parse_code(problem.setup, "the setup is ")
    return problem


def get_text(row: ProblemRow, key: str) -> str:
    """The text under a key; UnusableError if it is missing or blank."""
    value = row.value.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UnusableError(f"`{key}` must be a text that is not empty")
    return value


def parse_code(code: str, what: str = "") -> ast.Module:
    """The syntax tree of the code; an UnusableError, which begins with `what`, shows the line that is not Python."""
    try:
        return parse_quietly(code)
    except SyntaxError as error:
        line = f": {error.text.strip()[:80]}" if error.text else ""
        raise UnusableError(f"{what}not Python: {error.msg} (line {error.lineno}{line})") from None
    except PARSE_ERRORS as error:
        raise UnusableError(f"{what}not Python: {error or type(error).__name__}") from None


def find_definitions(code: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Top-level functions and classes of the code, by name; empty if it does not parse."""
    tree = try_parse(code)
    body = tree.body if tree else []
    return {n.name: n for n in body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
