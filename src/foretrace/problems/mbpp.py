"""MBPP: small functions asked for in a sentence, with three asserts each.

Rows are those of the full set (`text`, `code`, `test_list`, `test_setup_code`, `challenge_test_list`) or of the
sanitized one (`prompt`, `code`, `test_imports`, `test_list`). The first assert is public, and part of the statement:
it shows the types of the arguments. The others are hidden; a single assert is hidden too.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foretrace.core.problem import Problem, Test
from foretrace.problems.base import (
    ProblemRow,
    UnusableError,
    UnusableRow,
    find_definitions,
    get_text,
    make_problems,
    parse_code,
)
from foretrace.problems.rows import read_problem_rows
from foretrace.rows.base import Hub


class Mbpp:
    """The set `google-research-datasets/mbpp`, from a file (full or sanitized) or the Hub (full, split test)."""

    name = "mbpp"
    license = "CC-BY-4.0"
    hub = Hub("google-research-datasets/mbpp", "test", "full")
    count = 500

    def load(self, path: Path | None = None) -> Iterator[Problem | UnusableRow]:
        """See `ProblemSet.load`."""
        return make_problems(read_problem_rows(path, self.hub), self._make_problem)

    def _make_problem(self, row: ProblemRow) -> Problem:
        asked = get_text(row, "text" if "text" in row.value else "prompt")
        code = get_text(row, "code")
        shown, *others = [*_get_texts(row, "test_list"), *_get_texts(row, "challenge_test_list")] or [""]
        if not shown:
            raise UnusableError("no test at all: `test_list` is empty")
        setup = "\n".join([*_get_texts(row, "test_imports"), *_get_texts(row, "test_setup_code")]).strip()
        entry_point = _find_entry_point([shown, *others], code)
        used = {n.id for test in (shown, *others) for n in ast.walk(parse_code(test)) if isinstance(n, ast.Name)}
        beside = sorted((used & set(find_definitions(code))) - {entry_point} - set(find_definitions(setup)))
        needs = f"\n\nThe tests also use your {', '.join(f'`{name}`' for name in beside)}." if beside else ""
        example = f" For example:\n\n{shown.strip()}" if others else ""
        return Problem(
            id=f"mbpp/{row.value['task_id']}",
            statement=f"{asked.strip()}\n\nName the function `{entry_point}`.{example}{needs}\n",
            entry_point=entry_point,
            setup=setup,
            public_tests=(Test(code=shown),) if others else (),
            hidden_tests=tuple(Test(code=test) for test in others or [shown]),
            reference=code,
            source=self.name,
            license=self.license,
        )


def _get_texts(row: ProblemRow, key: str) -> list[str]:
    """The texts of a list under a key, or a single text as a list; empty if the key is missing or all texts are
    blank."""
    value = row.value.get(key)
    texts: list[Any] = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise UnusableError(f"`{key}` must be a list of texts")
    return [text for text in texts if text.strip()]


def _find_entry_point(tests: Sequence[str], code: str) -> str:
    """The tested function: the one defined in the code that most tests call."""
    known = find_definitions(code)
    calls = [
        node.func.id
        for test in tests
        for node in ast.walk(parse_code(test))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    functions = [name for name in calls if name in known and not isinstance(known[name], ast.ClassDef)]
    if not known:
        functions = [name for name in calls if not hasattr(builtins, name)]
    if not functions:
        raise UnusableError("no test calls a function that `code` defines")
    return max(functions, key=lambda name: (functions.count(name), -functions.index(name)))


PLUGIN = Mbpp
