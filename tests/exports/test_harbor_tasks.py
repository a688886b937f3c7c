"""Problems as Harbor tasks: read back equal, and judged by their own `test.sh` with nothing but bash and Python."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import write_rows
from foretrace.api.traces import export
from foretrace.core.errors import UsageError
from foretrace.core.problem import Problem
from foretrace.episodes.validate import make_empty_answer
from foretrace.exports.export_traces import make_file_name
from foretrace.registry import load_problems

METHOD = "class Solution:\n    def twice(self, n):\n        return 2 * n\n"
ROWS: list[dict[str, Any]] = [
    {
        "id": "check",
        "statement": "Write root(n).",
        "entry_point": "root",
        "setup": "def near(a, b):\n    return abs(a - b) < 1e-6\n",
        "check": "def check(candidate):\n    assert near(candidate(4), 2)\n",
        "reference": "def root(n):\n    return n ** 0.5\n",
    },
    {
        "id": "method",
        "statement": "Write Solution.twice.",
        "entry_point": "Solution().twice",
        "tests": ["assert candidate(2) == 4", "assert Solution().twice(0) == 0"],
        "reference": METHOD,
    },
    {
        "id": "functions",
        "statement": "Write f(n).",
        "entry_point": "f",
        "setup": "zero = f(0)\n",
        "check": "from solution import f\n\n\ndef test_one():\n    assert f(1) == 2 and zero == 1\n",
        "reference": "def f(n):\n    return n + 1\n",
    },
    {
        "id": "tolerance",
        "statement": "Print half of a number.",
        "cases": [{"stdin": "1\n", "stdout": "0.5\n"}, {"stdin": "", "stdout": ""}],
        "tolerance": 1e-6,
        "reference": "text = __import__('sys').stdin.read()\nprint(float(text) / 2 + 1e-9 if text else '')\n",
    },
]


def write_all(out: Path, tmp_path: Path, rows: list[dict[str, Any]]) -> list[Problem]:
    spec = f"jsonl:{write_rows(tmp_path / 'rows.jsonl', rows)}"
    export(spec, format="harbor-tasks", out=out)
    return load_problems(spec, None, None)


def judge(task: Path, answer: str | None, root: Path) -> str:
    """The reward that the task's `test.sh` writes, its absolute paths moved below `root`."""
    for folder in ("root", "logs"):
        (root / folder).mkdir(parents=True)
    script = (task / "tests" / "test.sh").read_text()
    script = script.replace("/tests/", f"{task}/tests/").replace("/root/", f"{root}/root/")
    (root / "test.sh").write_text(script.replace("/logs/", f"{root}/logs/"))
    if answer is not None:
        (root / "root" / "solution.py").write_text(answer)
    subprocess.run(["bash", root / "test.sh"], cwd=root / "root", check=True, capture_output=True)
    return (root / "logs" / "verifier" / "reward.txt").read_text()


def test_tasks_are_read_back_as_they_were(tmp_path: Path) -> None:
    report = export("builtin", format="harbor-tasks", out=tmp_path / "builtin")
    assert (report.written, getattr(report, "dropped", None)) == (18, {})
    own = write_all(tmp_path / "own", tmp_path, ROWS)
    back = load_problems(f"harbor:{tmp_path / 'own'}", None, None)
    assert sorted(back, key=lambda one: one.id) == sorted(own, key=lambda one: one.id)
    builtin = load_problems("builtin", None, None)
    assert {one.id: one for one in load_problems(f"harbor:{tmp_path / 'builtin'}", None, None)} == {
        one.id: one for one in builtin
    }


def test_test_sh_passes_references_and_nothing_else(tmp_path: Path) -> None:
    export("builtin", format="harbor-tasks", out=tmp_path / "tasks")
    builtin = [one for one in load_problems("builtin", None, None) if one.id.endswith(("two_sum", "ledger_totals"))]
    own = write_all(tmp_path / "own", tmp_path, ROWS)
    for folder, problem in (*((tmp_path / "tasks", one) for one in builtin), *((tmp_path / "own", o) for o in own)):
        task = folder / make_file_name(problem.id)
        answers = {"right": problem.reference, "empty": make_empty_answer(problem), "absent": None}
        for word in answers:
            assert judge(task, answers[word], tmp_path / task.name / word) == f"{int(word == 'right')}\n", problem.id


@pytest.mark.parametrize("answer", ["import os\nos._exit(0)\n", "import sys\nsys.exit(0)\n", "raise SystemExit\n"])
def test_an_answer_that_leaves_early_fails(tmp_path: Path, answer: str) -> None:
    (problem,) = write_all(tmp_path / "own", tmp_path, ROWS[2:3])
    assert judge(tmp_path / "own" / make_file_name(problem.id), answer, tmp_path / "root") == "0\n"


def test_what_plain_python_cannot_judge_is_dropped_and_counted(tmp_path: Path) -> None:
    code = "import pytest\n\n\ndef test_it():\n    assert f(1) == pytest.approx(2)\n"
    rows = [{**ROWS[2], "id": "pytest", "check": code}, {**ROWS[2], "id": "plain", "reference": None}]
    report = export(f"jsonl:{write_rows(tmp_path / 'r.jsonl', rows)}", format="harbor-tasks", out=tmp_path / "out")
    assert (getattr(report, "problems", 0), report.written, getattr(report, "without_solution", 0)) == (2, 1, 1)
    assert getattr(report, "dropped", {}) == {"its tests need pytest or unittest": 1}


def test_the_output_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="name a folder that is empty"):
        export("builtin", format="harbor-tasks", out=tmp_path)
    with pytest.raises(UsageError, match="problems have no calls"):
        export("builtin", format="harbor-tasks", out=tmp_path / "new", calls="xml")
