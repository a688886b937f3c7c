"""TRL's prompt dataset: rows that name their task, and hold no hidden test in the prompt."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from episodes.generating import plus
from foretrace.core.errors import ProblemError, UsageError
from foretrace.core.problem import Problem
from foretrace.envs.trl import prompt_dataset
from foretrace.envs.trl.prompts import check_prompt, find_problem
from foretrace.protocols.interleaved import Interleaved
from foretrace.registry import load_problems, make_protocol

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "rl.md").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("prompt", ["Hello.", [], [{"role": "user", "content": "Hello."}]])
def test_a_dataset_of_another_making_is_refused(prompt: Any):
    with pytest.raises(UsageError, match="make the dataset by prompt_dataset"):
        find_problem(prompt, {"plus/3": plus(3)}, Interleaved())


def test_the_refusal_on_the_page_is_the_one_that_is_printed():
    (prompt,) = prompt_dataset("builtin", "interleaved", limit=1)["prompt"]
    with pytest.raises(UsageError) as refused:
        check_prompt(prompt, load_problems("builtin", None, 1)[0], make_protocol("tools"))
    assert f"\nUsageError: {refused.value}\n" in PAGE


def test_words_of_one_s_own_are_a_protocol_s():
    names: dict[str, Any] = {}
    (code,) = re.findall(r"```python\n((?:(?!```).)*class Brief.*?)```", PAGE, re.DOTALL)
    exec(code, names)
    brief: Interleaved = names["Brief"]()
    (prompt,) = prompt_dataset([plus(3)], brief)["prompt"]
    assert prompt[0]["content"].startswith("Think in one sentence.\n\nYou solve")
    assert find_problem(prompt, {"plus/3": plus(3)}, brief) == plus(3)
    with pytest.raises(UsageError, match=r"own opening: docs/rl\.md"):
        find_problem(prompt, {"plus/3": plus(3)}, Interleaved())
