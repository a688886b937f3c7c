"""TRL's prompt dataset: rows that name their task, and hold no hidden test in the prompt."""

from __future__ import annotations

import json

import msgspec
import pytest

from episodes.generating import plus
from foretrace.core.errors import ProblemError
from foretrace.core.problem import Problem
from foretrace.envs.trl import prompt_dataset


def test_a_prompt_says_its_task_and_no_hidden_test():
    rows = prompt_dataset([plus(3), plus(4)], "interleaved")
    assert rows.column_names == ["prompt", "task", "problem"]
    for row, problem in zip(rows, (plus(3), plus(4)), strict=True):
        assert msgspec.json.decode(row["problem"], type=Problem) == problem
        assert {message["task"] for message in row["prompt"]} == {row["task"]} == {problem.id}
        text = json.dumps(row["prompt"])
        assert problem.public_tests[0].code in text
        assert not any(test.code in text for test in problem.hidden_tests)


def test_sets_come_by_name_and_problems_must_be_usable():
    assert prompt_dataset("builtin", "tools", limit=4).num_rows == 4
    with pytest.raises(ProblemError, match="two problems have the id"):
        prompt_dataset([plus(3), plus(3)], "tools")
    with pytest.raises(ProblemError, match="no tests"):
        prompt_dataset([Problem(id="x", statement="x")], "tools")
    with pytest.raises(ProblemError, match="no problem"):
        prompt_dataset([], "tools")
