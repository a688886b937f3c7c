"""The contract of a problem set: where it lives, and how its rows become Problems.

To add one, write a module in this folder whose `PLUGIN` has the members of `ProblemSet`, and name it in `BUILT_IN` of
`core/plugins.py`. `make_problems(read_problem_rows(path, self.hub), make)` does the reading; what is left to write is
`make`, from one row to one Problem. See docs/problems.md.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from foretrace.core.entry_points import read_entry_point
from foretrace.core.errors import ProblemError
from foretrace.core.problem import Problem, Test
from foretrace.core.python_source import parse_quietly
from foretrace.rows.base import Hub

_ID_KEYS = ("id", "task_id", "question_id", "problem_id", "name")
_MAX_ID = 100


class ProblemRow(NamedTuple):
    """One row of a file or of the Hub, and its place in words."""

    at: str
    """File (or repository) and 0-based row, e.g. `set.jsonl row 3`."""
    name: str
    """A name for a problem that has no id of its own: the file's name without its endings, and the row: `set/3`."""
    value: dict[str, Any]


class UnusableRow(NamedTuple):
    """A row that cannot be used."""

    at: str
    """Where it stands, as `ProblemRow.at`."""
    reason: str
    id: str | None = None
    """The id that the row gives itself."""
    task: Path | None = None
    """Folder of a Harbor task, where it is one that only its own image can judge."""


class ProblemSet(Protocol):
    """A set of problems, or a format that sets come in. One may have `count`, the number of problems it is known by."""

    name: str
    license: str | None
    hub: Hub | None
    """Where it is read from when no path is given; `None` when there must be one (or when it needs none)."""

    def load(self, path: Path | None = None) -> Iterator[Problem | UnusableRow]:
        """Problems in the order of the set, from a local file or folder, or from the Hub; an UnusableRow for each row
        that cannot be used.

        Raises:
            ProblemError: it cannot be opened, or is damaged so that what follows cannot be read.
            UsageError: the set needs a path, or takes none.
        """
        ...


class UnusableError(ValueError):
    """Raised while a row is made into a Problem: says what is wrong with it."""


class NeedsImageError(UnusableError):
    """Raised where a row is a Harbor task that only its own image can judge."""

    def __init__(self, reason: str, task: Path) -> None:
        super().__init__(reason)
        self.task = task


def make_problems(
    rows: Iterable[ProblemRow | UnusableRow], make: Callable[[ProblemRow], Problem]
) -> Iterator[Problem | UnusableRow]:
    """The Problem of each row, checked; an UnusableRow where there is none."""
    seen: dict[str, str] = {}
    for row in rows:
        if isinstance(row, UnusableRow):
            yield row
            continue
        try:
            problem = check_problem(make(row))
            if problem.id in seen:
                raise UnusableError(f"the id {problem.id!r} stands at {seen[problem.id]} too; ids must differ")
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError, msgspec.MsgspecError) as error:
            task = error.task if isinstance(error, NeedsImageError) else None
            yield UnusableRow(row.at, _find_reason(error), _find_id(getattr(row, "value", {})), task)
            continue
        seen[problem.id] = row.at
        yield problem


def collect_problems(
    found: Iterable[Problem | UnusableRow], limit: int | None = None
) -> tuple[list[Problem], list[UnusableRow]]:
    """The first problems (all of them without a limit), and the rows before the last of them that cannot be used."""
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
    """Return the problems as a list, if each can be attempted.

    Raises:
        ProblemError: there is none, one has no tests, or two have one id.
    """
    listed = list(problems)
    if not listed:
        raise ProblemError("there is no problem to attempt")
    seen: set[str] = set()
    for problem in listed:
        require_tests(problem)
        name = qualify_id(problem)
        if name in seen:
            raise ProblemError(f"two problems have the id {name!r}; ids must differ")
        seen.add(name)
    return listed


def require_tests(problem: Problem) -> None:
    """Refuse a problem without tests.

    Raises:
        ProblemError: it has none.
    """
    if not (problem.public_tests or problem.hidden_tests):
        raise ProblemError(f"{problem.id} has no tests: an answer to it could not be judged")


def qualify_id(problem: Problem) -> str:
    """The problem's id with the name of its set in front, unless the id begins with it."""
    source = problem.source or "problems"
    return problem.id if problem.id.lower().startswith(f"{source.lower()}/") else f"{source}/{problem.id}"


def check_problem(problem: Problem) -> Problem:
    """Check that the fields of a Problem have their types and that its tests can be judged; returns it.

    Raises:
        UnusableError: it has no test, tests that do not parse, or tests of both kinds.
        msgspec.ValidationError: a field of the wrong type.
    """
    problem = msgspec.convert(msgspec.to_builtins(problem), Problem)  # a struct does not check what it is given
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
        _check_cases(problem, tests)
        return problem
    if problem.entry_point is None:
        raise UnusableError("tests made of code need an entry_point, the name of the function or class to call")
    for test in tests:
        if not test.code.strip():
            raise UnusableError("an empty test")
        _check_code(test.code, "a test")
    _check_code(problem.setup, "the setup")
    return problem


def get_text(row: ProblemRow, key: str) -> str:
    """The text under a key.

    Raises:
        UnusableError: there is none.
    """
    value = row.value.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UnusableError(f"`{key}` must be a text that is not empty")
    return value


def get_texts(row: ProblemRow, key: str) -> list[str]:
    """The texts of a list under a key, or the one text; none where the key is missing or all are blank.

    Raises:
        UnusableError: it holds anything else.
    """
    value = row.value.get(key)
    texts: list[Any] = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise UnusableError(f"`{key}` must be a list of texts")
    return [text for text in texts if text.strip()]


def split_asserts(code: str) -> tuple[Test, ...]:
    """One Test for each assert where the code is nothing but asserts; else one Test of the whole."""
    body = parse_code(code).body
    if not body or not all(isinstance(node, ast.Assert) for node in body):
        return (Test(code=code),)
    return tuple(Test(code=ast.get_source_segment(code, node) or ast.unparse(node)) for node in body)


def parse_code(code: str) -> ast.Module:
    """The syntax tree of the code.

    Raises:
        UnusableError: it is not Python; names the line.
    """
    try:
        return parse_quietly(code)
    except SyntaxError as error:
        raise UnusableError(f"not Python: {error.msg} (line {error.lineno})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnusableError(f"not Python: {error or type(error).__name__}") from None


def find_definitions(code: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes at the top of the code, by name; empty when it does not parse."""
    try:
        body = parse_code(code).body
    except UnusableError:
        return {}
    return {n.name: n for n in body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}


def _check_cases(problem: Problem, tests: Iterable[Test]) -> None:
    if problem.entry_point is not None:
        raise UnusableError("cases with stdin and stdout test a whole program: leave entry_point out")
    for test in tests:
        if test.code or test.stdout is None:
            raise UnusableError("a case needs a stdout (and a stdin, unless it is empty), and no code")


def _check_code(code: str, what: str) -> None:
    try:
        parse_code(code)
    except UnusableError as error:
        raise UnusableError(f"{what} is {error}") from None


def _find_id(row: dict[str, Any]) -> str | None:
    """What a row calls itself, under one of the usual keys."""
    found = next((row[key] for key in _ID_KEYS if row.get(key) not in (None, "")), None)
    return str(found)[:_MAX_ID] if isinstance(found, (str, int)) else None


def _find_reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"no key {error.args[0]!r}"
    return " ".join(str(error).split())[:300] or type(error).__name__
