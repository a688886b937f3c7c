"""HumanEval: 164 functions to be completed from a signature and a docstring.

Rows have `task_id`, `prompt`, `entry_point`, `canonical_solution` and `test`, which defines `check(candidate)`. Sets in
the same form are read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foretrace.core.problem import Problem, Test
from foretrace.problems.base import ProblemRow, UnusableError, UnusableRow, get_text, make_problems
from foretrace.problems.public_tests.extract import extract_public_tests
from foretrace.problems.rows import read_problem_rows
from foretrace.rows.base import Hub

WRONG_EXAMPLES: dict[str, frozenset[str]] = {
    "HumanEval/47": frozenset({"assert median([-10, 4, 6, 1000, 10, 20]) == 15.0"}),
    "HumanEval/116": frozenset(
        {
            "assert sort_array([1, 5, 2, 3, 4]) == [1, 2, 3, 4, 5]",
            "assert sort_array([-2, -3, -4, -5, -6]) == [-6, -5, -4, -3, -2]",
        }
    ),
}
"""Examples of the published prompts that contradict HumanEval's own solutions and tests; they are not public tests."""


class HumanEval:
    """The set `openai/openai_humaneval`, from a file or the Hub."""

    name = "humaneval"
    license = "MIT"
    hub = Hub("openai/openai_humaneval", "test", "openai_humaneval")
    count = 164

    def load(self, path: Path | None = None) -> Iterator[Problem | UnusableRow]:
        """See `ProblemSet.load`."""
        return make_problems(read_problem_rows(path, self.hub), self._make_problem)

    def _make_problem(self, row: ProblemRow) -> Problem:
        own, prompt = get_text(row, "task_id"), get_text(row, "prompt")
        entry_point, test = get_text(row, "entry_point"), get_text(row, "test")
        if "def check(" not in test:
            raise UnusableError("`test` defines no check(candidate); read other forms with the set jsonl")
        solution = row.value.get("canonical_solution")
        if solution is not None and not isinstance(solution, str):
            raise UnusableError("`canonical_solution` must be text")
        wrong = WRONG_EXAMPLES.get(own, frozenset())
        return Problem(
            id=own,
            statement=prompt,
            entry_point=entry_point,
            prompt=prompt,
            setup=prompt,  # some tests call its helpers
            public_tests=tuple(t for t in extract_public_tests(prompt, entry_point) if t.code not in wrong),
            hidden_tests=(Test(code=test),),
            reference=prompt + solution if solution else None,
            source=self.name,
            license=self.license,
        )


PLUGIN = HumanEval
