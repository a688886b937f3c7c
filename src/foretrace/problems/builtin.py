"""Problems that come with foretrace: 18 small tasks, with tests for typical mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foretrace.core.errors import Setting, UsageError
from foretrace.core.problem import Problem, Test
from foretrace.problems.base import check_problem, find_definitions
from foretrace.problems.builtin_tasks.lists_and_texts import LISTS_AND_TEXTS, Item
from foretrace.problems.builtin_tasks.numbers_and_programs import NUMBERS_AND_RANGES, PROGRAMS
from foretrace.problems.public_tests.extract import extract_public_tests

_FUNCTIONS = (*LISTS_AND_TEXTS, *NUMBERS_AND_RANGES)


class Builtin:
    """The built-in set."""

    name = "builtin"
    license = "Apache-2.0"
    hub = None
    count = len(_FUNCTIONS) + len(PROGRAMS)

    def load(self, path: Path | None = None) -> Iterator[Problem]:
        """See `ProblemSet.load`; there is nothing to read, so a path is an error."""
        if path is not None:
            raise UsageError("the builtin problems come with foretrace: leave ", Setting("path"), " out")
        problems = (*map(_make_function_problem, _FUNCTIONS), *map(_make_program_problem, PROGRAMS))
        return (check_problem(problem) for problem in problems)


def _make_function_problem(item: Item) -> Problem:
    (entry_point,) = find_definitions(item.prompt)
    return Problem(
        id=f"builtin/{item.id}",
        statement=item.prompt,
        entry_point=entry_point,
        prompt=item.prompt,
        public_tests=extract_public_tests(item.prompt, entry_point),
        hidden_tests=tuple(Test(code=code) for code in item.hidden),
        reference=item.prompt + item.solution,
        source=Builtin.name,
        license=Builtin.license,
    )


def _make_program_problem(item: Item) -> Problem:
    return Problem(
        id=f"builtin/{item.id}",
        statement=item.prompt,
        public_tests=_make_cases(item.public),
        hidden_tests=_make_cases(item.hidden),
        reference=item.solution,
        source=Builtin.name,
        license=Builtin.license,
    )


def _make_cases(texts: tuple[str, ...]) -> tuple[Test, ...]:
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return tuple(Test(stdin=stdin, stdout=stdout) for stdin, stdout in pairs)


PLUGIN = Builtin
