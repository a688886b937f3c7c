"""Problems are read, split by a hash, and repeated in an order of their own."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import pytest

from foretrace.core.errors import ProblemError, UsageError
from foretrace.envs.problems import load_problems, repeat_shuffled, split_problems
from foretrace.problems.builtin import Builtin

PROBLEMS = list(Builtin().load())


def ids(problems: object) -> list[str]:
    return [problem.id for problem in problems]  # type: ignore[attr-defined]


def test_a_split_has_all_problems_once_and_depends_on_nothing_else() -> None:
    train, held = split_problems(PROBLEMS, 0.3, 0)
    assert sorted(ids(train) + ids(held)) == sorted(ids(PROBLEMS)) and train and held
    assert ids(split_problems(PROBLEMS[::-1], 0.3, 0)[1][::-1]) == ids(held)
    assert ids(split_problems(PROBLEMS, 0.3, 1)[1]) != ids(held)


def test_more_problems_move_none() -> None:
    few, many = split_problems(PROBLEMS[: len(PROBLEMS) // 2], 0.5, 0)[1], split_problems(PROBLEMS, 0.5, 0)[1]
    assert set(ids(few)) <= set(ids(many))


def test_problems_of_one_group_stay_together() -> None:
    grouped = [msgspec.structs.replace(p, group=f"g{n % 4}") for n, p in enumerate(PROBLEMS)]
    train, held = split_problems(grouped, 0.5, 0)
    assert not {p.group for p in train} & {p.group for p in held}


@pytest.mark.parametrize("fraction", [0.0001, 0.9999])
def test_no_side_is_empty_but_where_that_is_asked_for(fraction: float) -> None:
    assert all(split_problems(PROBLEMS[:2], fraction, 0))
    assert split_problems(PROBLEMS, 0.0, 0)[1] == [] and split_problems(PROBLEMS, 1.0, 0)[0] == []


def test_a_fraction_beyond_its_bounds_is_refused() -> None:
    with pytest.raises(UsageError, match="eval_fraction"):
        split_problems(PROBLEMS, 1.5, 0)


def test_each_round_has_all_problems_in_another_order() -> None:
    count = len(PROBLEMS)
    one, two = (
        ids(list(islice(repeat_shuffled(PROBLEMS, 0), 2 * count))[part]) for part in (slice(count), slice(count, None))
    )
    assert sorted(one) == sorted(two) == sorted(ids(PROBLEMS)) and one != two


def test_rows_that_cannot_be_used_are_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = '{"id": "a/1", "statement": "Return x + 1.", "entry_point": "f", "tests": ["assert f(1) == 2"]}'
    file = tmp_path / "p.jsonl"
    file.write_text(f"not json\n{row}\n{{}}\n")
    assert [p.id for p in load_problems(f"jsonl:{file}", None, None)] == ["a/1"]
    assert caplog.text.count("left out: ") == 2 and "p.jsonl row 0: not JSON" in caplog.text
    file.write_text("not json\n")
    with pytest.raises(ProblemError, match=r"none of its 1 problems can be used, e\.g\. row 0: not JSON"):
        load_problems(f"jsonl:{file}", None, None)
