"""Problems of benchmarks, from the forms in which people have them."""

from __future__ import annotations

import base64
import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset.little import says, trace, user
from foretrace.clean.benchmarks import BenchmarkProblem
from foretrace.core.errors import ProblemError, UsageError
from foretrace.dataset.filters import benchmark_sets
from foretrace.dataset.filters.benchmark_sets import (
    FINGERPRINTS,
    list_known_problems,
    parse_benchmark,
    read_benchmarks,
    write_benchmarks,
)
from foretrace.dataset.filters.benchmarks import BenchmarkFilter
from foretrace.dataset.settings import BuildSettings

DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n import os\n-old = 1\n+new = 1\n+more = 2\n"
ROW = {"instance_id": "o__r-12", "problem_statement": "It breaks.", "patch": DIFF, "repo": "o/r"}
EXPECTED = BenchmarkProblem(benchmark="mine", id="o__r-12", statement="It breaks.", solution="new = 1\nmore = 2")


def write(path: Path, row: dict[str, Any]) -> Path:
    """A row in the format that the name says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows([row.keys(), row.values()])
    else:
        path.write_text(json.dumps([row] if path.suffix == ".json" else row))
    return path


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.json", "mine.parquet", "mine.csv"])
def test_rows_of_every_format(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, ROW)
    assert read_benchmarks([str(path)]) == ([EXPECTED], [])
    ((named,), _) = read_benchmarks([f"swebench={path}"])
    assert (named.benchmark, named.id) == ("swebench", "o__r-12")


@pytest.mark.parametrize(
    ("name", "text"), [("ids.txt", "o__r-12\n\no__r-13\n"), ("ids.json", '["o__r-12", "o__r-13"]')]
)
def test_list_of_ids(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    problems, _ = read_benchmarks([str(tmp_path / name)])
    assert [(each.benchmark, each.id, each.statement) for each in problems] == [
        ("ids", f"o__r-{n}", "") for n in (12, 13)
    ]


def test_rows_with_nothing_to_look_for_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f'{json.dumps(ROW)}\nno json\n\n[1]\n{{"foo": 1}}\n')
    (problem,), (said,) = read_benchmarks([str(path)])
    assert problem.id == "o__r-12"
    assert said.startswith(f"{path}: 3 of 4 rows hold nothing to look for, first row 2: JSON is malformed")
    path.with_suffix(".txt").write_text("o__r-12\n\n")
    assert read_benchmarks([str(path.with_suffix(".txt"))])[1] == []


def test_humaneval_and_mbpp_by_their_problem_sets(tmp_path: Path) -> None:
    own = {
        "task_id": "HumanEval/0",
        "prompt": 'def f(a):\n    """Twice."""\n',
        "entry_point": "f",
        "canonical_solution": "    return 2 * a\n",
        "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(1) == 2\n",
    }
    (problem,), _ = read_benchmarks([f"humaneval={write(tmp_path / 'h.jsonl', own)}"])
    assert problem.solution == "    return 2 * a\n"
    assert problem.tests.startswith("def check(candidate)")
    row = {
        "task_id": 7,
        "text": "Write a function to double a number.",
        "code": "def f(a):\n    return 2 * a",
        "test_list": ["assert f(1) == 2", "assert f(2) == 4"],
    }
    (problem,), _ = read_benchmarks([f"mbpp={write(tmp_path / 'm.jsonl', row)}"])
    assert (problem.id, problem.statement) == ("mbpp/7", row["text"])
    assert problem.tests == "assert f(1) == 2\nassert f(2) == 4"


def test_what_was_read_goes_to_a_file_for_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(name: str, path: Path | None) -> list[BenchmarkProblem]:
        return [EXPECTED]

    monkeypatch.setattr(benchmark_sets, "_read", read)
    problems, _ = read_benchmarks(["swebench"])
    written = write_benchmarks(problems, tmp_path)
    monkeypatch.undo()
    found = BenchmarkFilter(BuildSettings(decontaminate=("swebench",)), written)
    assert found.examine(trace("a", user("Go."), says("Done."), task="o__r-12"), ()) is not None
    assert write_benchmarks([], tmp_path) != written  # another name for other problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("humanevall", "is not a file; give one, or a benchmark that is known: humaneval, mbpp, swebench"),
        ("mine=nothing.jsonl", "nothing.jsonl is not a file"),
        ("=nothing.jsonl", "the name before the = is empty"),
        ("", "names no benchmark"),
        (__file__, "cannot tell the format"),
    ],
)
def test_what_is_no_benchmark_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_benchmark(text)


def test_file_without_problems_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no row has an id, a statement"):
        read_benchmarks([str(write(tmp_path / "a.jsonl", {"x": 1}))])
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ProblemError, match=r"b\.parquet"):
        read_benchmarks([str(tmp_path / "b.parquet")])


def test_known_problems_are_those_of_benchmarks_that_were_not_given() -> None:
    (first, *others) = list_known_problems(but=["mbpp"])
    assert {each.benchmark for each in (first, *others)} == {"humaneval"}
    assert (first.id, len(others)) == ("HumanEval/0", 163)
    assert first.list_fields() == ["statement", "solution"]
    ids = list_known_problems(but=["humaneval"])
    assert (ids[0].id, len(ids), ids[0].list_fields()) == ("mbpp/1", 974, [])


def test_fingerprints_hold_no_text() -> None:
    for path in FINGERPRINTS.glob("*.jsonl"):
        _, *rows = (json.loads(line) for line in path.read_text().splitlines())
        texts = [text for row in rows for each in row["fingerprints"].values() for text in each.values()]
        assert all(isinstance(text, int) or base64.b64decode(text, validate=True) for text in texts if text)
