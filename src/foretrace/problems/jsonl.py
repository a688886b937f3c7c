"""Problems of your own: any .jsonl, .json or .parquet file, one problem a row.

docs/problems.md lists the keys, with an example of each form. Keys that are not known go to `extra`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.entry_points import complete_entry_point, read_entry_point
from foretrace.core.problem import Problem, Test
from foretrace.problems.base import (
    ProblemRow,
    UnusableError,
    UnusableRow,
    find_definitions,
    make_problems,
    parse_code,
)
from foretrace.problems.public_tests.extract import extract_public_tests
from foretrace.problems.rows import read_problem_rows

_STATEMENT = ("statement", "question", "text", "prompt")
_REFERENCE = ("reference", "solution", "canonical_solution")
_CHECK = ("check", "test")
_ID = ("id", "task_id")
_CASE_IN, _CASE_OUT = ("stdin", "input"), ("stdout", "output")
_CASE_KEYS = {*_CASE_IN, *_CASE_OUT, "tolerance"}


class Jsonl:
    """One problem a row of a local file."""

    name = "jsonl"
    license = None
    hub = None

    def load(self, path: Path | None = None) -> Iterator[Problem | UnusableRow]:
        """See `ProblemSet.load`."""
        return make_problems(read_problem_rows(path, self.hub), self._make_problem)

    def _make_problem(self, row: ProblemRow) -> Problem:
        left = {key: value for key, value in row.value.items() if value is not None}
        own = _take(left, _ID)
        statement, entry_point = _take_text(left, _STATEMENT), _take_text(left, ("entry_point",))
        if statement is None:
            raise UnusableError(f"no statement: give one of the keys {', '.join(_STATEMENT)}")
        # If there is a statement, `prompt` is code; otherwise `prompt` is the statement, and may be code.
        prompt = _take_text(left, ("prompt",)) or (statement if entry_point in find_definitions(statement) else "")
        reference = _take_text(left, _REFERENCE)
        entry_point = complete_entry_point(entry_point, prompt, reference)
        asked = read_entry_point(entry_point or "")
        defined = "" if asked is None else asked.name
        if reference and prompt and asked and defined not in find_definitions(reference):
            reference = prompt + reference
        tolerance = _take(left, ("tolerance",))
        given = _take_tests(left, "tests", tolerance) + _take_tests(left, "cases", tolerance)
        check = _take_text(left, _CHECK)
        given += [Test(code=check)] if check else []
        public = _take_tests(left, "public_tests", tolerance)
        if not public and given and given[0].stdout is None:
            public = list(extract_public_tests(f"{statement}\n\n{prompt}", entry_point, code=prompt or reference or ""))
        shown = {_make_test_key(test) for test in public}
        setup = _take_text(left, ("setup",))
        if setup is None:  # tests may call helpers next to the function
            setup = prompt if set(find_definitions(prompt)) - {defined} else ""
        form: Any = _take_text(left, ("form",))
        if left and not (given or public):
            unread = ", ".join(sorted(left)[:5])
            raise UnusableError(f"no test at all: tests, cases, check and public_tests are read; {unread} not")
        return Problem(
            id=row.name if own is None else str(own),
            statement=statement,
            entry_point=entry_point,
            prompt=prompt,
            setup=setup,
            public_tests=tuple(public),
            hidden_tests=tuple(test for test in given if _make_test_key(test) not in shown),
            reference=reference,
            form=form,
            source=self.name,
            group=_take_text(left, ("group",)),
            license=_take_text(left, ("license", "licence")),
            extra=left,
        )


def _take(left: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """Remove and return the value of the first key that is present; `None` if there is none."""
    return next((left.pop(key) for key in keys if key in left), None)


def _take_text(left: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    key = next((key for key in keys if key in left), None)
    if key is None:
        return None
    if not isinstance(left[key], str):
        raise UnusableError(f"`{key}` must be text, not {type(left[key]).__name__}")
    return left.pop(key)


def _take_tests(left: dict[str, Any], key: str, tolerance: Any) -> list[Test]:
    """Tests under one key: a text of asserts, or a list of texts of asserts and of cases."""
    value = left.pop(key, None) or []
    if isinstance(value, str):
        return _split_asserts(value)
    if not isinstance(value, list):
        raise UnusableError(f"`{key}` must be a list of asserts or of cases, or one text")
    return [_make_test(key, number, item, tolerance) for number, item in enumerate(value)]


def _split_asserts(code: str) -> list[Test]:
    """One Test for each assert if the code consists only of asserts, otherwise one Test of all of it."""
    body = parse_code(code).body
    if not body or not all(isinstance(node, ast.Assert) for node in body):
        return [Test(code=code)]
    return [Test(code=ast.get_source_segment(code, node) or ast.unparse(node)) for node in body]


def _make_test(key: str, number: int, item: Any, tolerance: Any) -> Test:
    if isinstance(item, str):
        return Test(code=item)
    if not isinstance(item, dict) or set(item) - _CASE_KEYS:
        raise UnusableError(f"{key}[{number}] must be an assert, or a case with stdin, stdout and perhaps tolerance")
    case = {name: value for name, value in item.items() if value is not None}
    stdin, stdout = _take_text(case, _CASE_IN), _take_text(case, _CASE_OUT)
    own = _take(case, ("tolerance",))
    if stdout is None:
        raise UnusableError(f"{key}[{number}] has no stdout")
    return Test(stdin=stdin or "", stdout=stdout, tolerance=tolerance if own is None else own)


def _make_test_key(test: Test) -> tuple[object, ...]:
    """A key that is equal for tests of the same thing."""
    if test.stdout is not None:
        return (test.stdin, test.stdout)
    return (ast.unparse(parse_code(test.code)),)


PLUGIN = Jsonl
