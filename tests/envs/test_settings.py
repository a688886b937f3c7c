"""Problems are split by a hash, in an order of their own; metrics have one definition for training and evaluation."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import pytest

from foretrace.core.errors import ProblemError, UsageError
from foretrace.core.trace import Outcome, Provenance, Task, TestCounts, Trace
from foretrace.envs.metrics import Measured
from foretrace.envs.problems import endless, load, split
from foretrace.problems.builtin import Builtin

PROBLEMS = list(Builtin().load())


def ids(problems: object) -> list[str]:
    return [problem.id for problem in problems]  # type: ignore[attr-defined]


def test_a_split_has_all_problems_once_and_depends_on_nothing_else() -> None:
    train, held = split(PROBLEMS, 0.3, 0)
    assert sorted(ids(train) + ids(held)) == sorted(ids(PROBLEMS)) and train and held
    assert ids(split(PROBLEMS[::-1], 0.3, 0)[1][::-1]) == ids(held)
    assert ids(split(PROBLEMS, 0.3, 1)[1]) != ids(held)


def test_more_problems_move_none() -> None:
    few, many = split(PROBLEMS[: len(PROBLEMS) // 2], 0.5, 0)[1], split(PROBLEMS, 0.5, 0)[1]
    assert set(ids(few)) <= set(ids(many))


def test_problems_of_one_group_stay_together() -> None:
    grouped = [msgspec.structs.replace(p, group=f"g{n % 4}") for n, p in enumerate(PROBLEMS)]
    train, held = split(grouped, 0.5, 0)
    assert not {p.group for p in train} & {p.group for p in held}


@pytest.mark.parametrize("fraction", [0.0001, 0.9999])
def test_no_side_is_empty_but_where_that_is_asked_for(fraction: float) -> None:
    assert all(split(PROBLEMS[:2], fraction, 0))
    assert split(PROBLEMS, 0.0, 0)[1] == [] and split(PROBLEMS, 1.0, 0)[0] == []


def test_a_fraction_beyond_its_bounds_is_refused() -> None:
    with pytest.raises(UsageError, match="eval_fraction"):
        split(PROBLEMS, 1.5, 0)


def test_each_round_has_all_problems_in_another_order() -> None:
    count = len(PROBLEMS)
    one, two = (ids(list(islice(endless(PROBLEMS, 0), 2 * count))[part]) for part in (slice(count), slice(count, None)))
    assert sorted(one) == sorted(two) == sorted(ids(PROBLEMS)) and one != two


def test_a_set_is_a_name_or_a_name_and_a_path(tmp_path: object) -> None:
    assert len(load("builtin", None, 3)) == 3
    with pytest.raises(ProblemError, match=r"missing\.jsonl"):
        load("jsonl:/nowhere/missing.jsonl", None, None)
    with pytest.raises(UsageError, match="unknown problems"):
        load("nothing", None, None)


def trace(task: str, success: bool, passed: int, **metrics: float) -> Trace:
    return Trace(
        key=f"k/{task}/{passed}",
        task=Task(id=task, group=task),
        messages=(),
        outcome=Outcome(
            success=success,
            reward=passed / 2 - 1,
            tests=TestCounts(passed=passed, total=4),
            metrics=metrics,
        ),
        provenance=Provenance(origin="generated", source="s"),
    )


def test_rows_that_cannot_be_used_are_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = '{"id": "a/1", "statement": "Return x + 1.", "entry_point": "f", "tests": ["assert f(1) == 2"]}'
    file = tmp_path / "p.jsonl"
    file.write_text(f"not json\n{row}\n{{}}\n")
    assert [p.id for p in load(f"jsonl:{file}", None, None)] == ["a/1"]
    assert caplog.text.count("left out: ") == 2 and "p.jsonl row 0: no JSON" in caplog.text
    file.write_text("not json\n")
    with pytest.raises(ProblemError, match="no problem in it that can be used"):
        load(f"jsonl:{file}", None, None)


def test_metrics_are_means_over_the_rollouts() -> None:
    measured = Measured()
    measured.add(trace("a", True, 4, think_count=2, has_verify=1, is_ideal=1, had_errors=1, recovered=1))
    measured.add(trace("a", False, 1, think_count=1, had_errors=1, cut_replies=2))
    measured.add(trace("b", True, 4))
    measured.failed["mismatch"] += 1
    assert measured.means("eval/") == pytest.approx(
        {
            "eval/rollouts": 3,
            "eval/problems": 2,
            "eval/failed/mismatch": 1,
            "eval/accuracy": 2 / 3,
            "eval/pass_rate": 0.75,
            "eval/mean_reward": (1 - 0.5 + 1) / 3,
            "eval/cut_rate": 1 / 3,
            "eval/think_count": 1.0,
            "eval/verify_rate": 1 / 3,
            "eval/ideal_rate": 1 / 3,
            "eval/recovery": 0.5,
        }
    )


def test_without_rollouts_there_is_nothing_to_say() -> None:
    assert Measured().means("train/") == {}
