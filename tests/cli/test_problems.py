"""`foretrace problems`: the list, and a check that says what is wrong with a set."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Result, Run, write_rows
from foretrace.core.store import read_traces

GOOD = {"statement": "Add one.", "entry_point": "f", "tests": ["assert f(1) == 2"], "reference": "def f(n): return n+1"}
FAILS = {**GOOD, "id": "fails", "reference": "def f(n): return n"}
ASKS_NOTHING = {**GOOD, "id": "asks_nothing", "tests": ["assert not f(1) or f(1)"]}
NO_TESTS = {"statement": "x", "entry_point": "f"}
MALFORMED = {**GOOD, "tests": ["assert f(1) == 2", "assert f(1,,) == 2"]}
CHECK = "problems check jsonl --path set.jsonl"
Check = Callable[..., Result]


@pytest.fixture
def check(run: Run) -> Check:
    """Check a set of these rows."""

    def call(*rows: Any, more: str = "") -> Result:
        write_rows(Path("set.jsonl"), [*rows])
        return run(f"{CHECK} {more}")

    return call


def test_the_list(run: Run) -> None:
    result = run("problems list")
    assert (result.code, result.err) == (0, "")
    for said in ("builtin", "humaneval", "164 problems; openai/openai_humaneval (test); license MIT", "mbpp", "jsonl"):
        assert said in result.out
    sets = {row["name"]: row for row in run("problems list --json").json["sets"]}
    assert sets["builtin"]["problems"] == 18 and sets["builtin"]["from"] == "comes with foretrace"
    about = "Problems of your own: any .jsonl, .json or .parquet file, one problem a row."
    assert sets["jsonl"] == {"name": "jsonl", "about": about, "problems": None, "from": None, "license": None}


def test_a_sound_set(run: Run) -> None:
    result = run("problems check builtin --json")
    facts = result.json
    assert (result.code, facts["sound"]) == (0, True)
    assert (facts["problems"], facts["references_passed"], facts["empty_passed"]) == (18, 18, 0)
    assert facts["isolation"]["level"] >= 0 and facts["forms"]["values"] == 16 and facts["findings"] == []


def test_what_is_wrong_is_named(run: Run, check: Check) -> None:
    result = check(GOOD, FAILS, ASKS_NOTHING)
    assert result.code == 1
    assert "fails" in result.out and "test 0 (`assert f(1) == 2`): 1 is not 2" in result.out
    assert result.err.splitlines()[-1] == (
        "foretrace: jsonl: the reference fails for 1: fails; an answer that does nothing passes for 1: asks_nothing"
    )
    result = run(f"{CHECK} --json")
    assert result.code == 1 and result.json["sound"] is False
    assert [f["fault"] for f in result.json["findings"]] == ["reference_failed", "empty_passed"]


def test_rows_that_cannot_be_used_are_listed(run: Run, check: Check) -> None:
    text = check(GOOD, NO_TESTS, "{no json", FAILS).out
    assert "no test at all" in text and "not JSON" in text
    result = run(f"{CHECK} --json --quiet")
    assert (result.code, result.json["problems"], result.json["sound"]) == (1, 2, False)
    found = [(f["fault"], f["problem"]) for f in result.json["findings"]]
    assert found == [("bad_row", "row 1"), ("bad_row", "row 2"), ("reference_failed", "fails")]
    assert result.err == "foretrace: jsonl: left out 2: row 1, row 2; the reference fails for 1: fails\n"


@pytest.mark.parametrize(
    ("rows", "said", "table"),
    [
        ([{**FAILS, "id": f"p{n}"} for n in range(8)], "the reference fails for 8: p0, p1, p2, p3, p4 and 3 more", ""),
        ([GOOD, *[NO_TESTS] * 50], "left out 50: row 1, row 2, row 3, row 4, row 5 and 45 more", "\nand 47 more"),
        ([GOOD, {**NO_TESTS, "task_id": "mine/7"}], "left out 1: row 1 (mine/7)", "row 1 (mine/7)"),
        ([GOOD, MALFORMED], "left out 1: row 1", "not Python: invalid syntax (line 1: assert f(1,,) == 2)"),
    ],
)
def test_faults_are_counted_and_named(check: Check, rows: list[Any], said: str, table: str) -> None:
    result = check(*rows, more="--quiet")
    assert result.err == f"foretrace: jsonl: {said}\n" and table in result.out


def test_a_package_that_is_not_there_comes_with_what_to_do(run: Run, check: Check) -> None:
    wants = {**GOOD, "id": "wants", "reference": "import numpy, pandas\ndef f(n):\n    return n + 1\n"}
    tests = ["import numpy as np\nassert f(np.int64(1)) == 2"]
    result = check(wants, {"id": "asks", "statement": "Add one.", "entry_point": "f", "tests": tests})
    assert "installed packages are imported with --preload numpy" in result.err
    findings = run(f"{CHECK} --json").json["findings"]
    assert [(f["problem"], f["fault"], f["detail"]) for f in findings if f["tests"] == "hidden"] == [
        ("wants", "reference_failed", "ModuleNotFoundError: No module named 'numpy'"),
        ("asks", "unusable", "ModuleNotFoundError: No module named 'numpy'"),
    ]


def test_the_limits_of_a_run_can_be_raised(run: Run, check: Check) -> None:
    slow = {**GOOD, "reference": "import time\ndef f(n):\n    time.sleep(0.3)\n    return n + 1\n"}
    result = check(slow, more="--wall-s 0.2")
    assert result.code == 1 and "it ran for longer than 0.2 s" in result.out
    assert "all tests of a problem share the limits of one run: --wall-s, --cpu-s and --memory-mb raise" in result.err
    assert run(f"{CHECK} --wall-s 9").code == 0


def test_the_examples_of_the_docs_are_sound(check: Check) -> None:
    docs = (Path(__file__).resolve().parents[2] / "docs" / "problems.md").read_text("utf-8")
    result = check(*map(json.loads, re.findall(r"```json\n(.*?)```", docs, re.DOTALL)), more="--json")
    assert result.code == 0, result.err
    assert (result.json["references_passed"], result.json["forms"]["values"]) == (4, 2)


def test_a_file_is_named_with_the_form_of_its_rows(run: Run) -> None:
    write_rows(Path("mine.jsonl"), [GOOD])
    assert run("generate --protocol tools --model demo --out t --problems jsonl:mine.jsonl").code == 0
    (generated,) = read_traces("t")
    assert generated.task.statement == GOOD["statement"]
    Path("builtin").mkdir()
    assert run("problems check builtin --limit 1 --quiet").code == 0
