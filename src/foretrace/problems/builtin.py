"""Problems that come with foretrace: 18 small tasks, with tests for typical mistakes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.errors import Setting, UsageError
from foretrace.core.problem import Problem, Test
from foretrace.problems.base import check_problem, find_definitions
from foretrace.problems.public_tests.extract import extract_public_tests

_FILE = Path(__file__).with_name("builtin.toml")


class Builtin:
    """The built-in set."""

    name = "builtin"
    license = "Apache-2.0"
    hub = None
    count = 18

    def load(self, path: Path | None = None) -> Iterator[Problem]:
        """See `ProblemSet.load`; there is nothing to read, so a path is an error."""
        if path is not None:
            raise UsageError("the builtin problems come with foretrace: leave ", Setting("path"), " out")
        items = tomllib.loads(_FILE.read_text(encoding="utf-8"))
        problems = (*map(_make_function_problem, items["function"]), *map(_make_program_problem, items["program"]))
        return (check_problem(problem) for problem in problems)


def _make_function_problem(item: dict[str, Any]) -> Problem:
    prompt = item["prompt"]
    (entry_point,) = find_definitions(prompt)
    return Problem(
        id=f"builtin/{item['id']}",
        statement=prompt,
        entry_point=entry_point,
        prompt=prompt,
        public_tests=extract_public_tests(prompt, entry_point),
        hidden_tests=tuple(Test(code=code) for code in item["hidden"]),
        reference=prompt + item["solution"],
        source=Builtin.name,
        license=Builtin.license,
    )


def _make_program_problem(item: dict[str, Any]) -> Problem:
    return Problem(
        id=f"builtin/{item['id']}",
        statement=item["prompt"],
        public_tests=_make_cases(item["public"]),
        hidden_tests=_make_cases(item["hidden"]),
        reference=item["solution"],
        source=Builtin.name,
        license=Builtin.license,
    )


def _make_cases(texts: list[str]) -> tuple[Test, ...]:
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return tuple(Test(stdin=stdin, stdout=stdout) for stdin, stdout in pairs)


PLUGIN = Builtin
