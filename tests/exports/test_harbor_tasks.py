"""Problems as Harbor tasks: read back equal, and judged by their own `test.sh` with nothing but bash and Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import write_rows
from foretrace.api.traces import export
from foretrace.core.errors import ProblemError, UsageError
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
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the judge needs Python 3.10
    environment: dict[str, Any] = {"cwd": root / "root", "env": {**os.environ, "PATH": path}}
    subprocess.run(["bash", root / "test.sh"], check=True, capture_output=True, timeout=60, **environment)
    (reward,) = (root / "logs" / "verifier").iterdir()
    return reward.read_text()


def judge_one(tmp_path: Path, row: dict[str, Any], answer: str) -> str:
    tmp_path.mkdir(exist_ok=True)
    write_all(tmp_path / "own", tmp_path, [row])
    (task,) = (tmp_path / "own").iterdir()
    return judge(task, answer.replace("/logs/", f"{tmp_path}/root/logs/"), tmp_path / "root")


def test_tasks_are_read_back_as_they_were(tmp_path: Path) -> None:
    report = export("builtin", format="harbor-tasks", out=tmp_path / "builtin")
    assert (report.written, getattr(report, "dropped", None)) == (18, {})
    own = write_all(tmp_path / "own", tmp_path, ROWS)
    for name, problems in (("own", own), ("builtin", load_problems("builtin", None, None))):
        back = load_problems(f"harbor:{tmp_path / name}", None, None)
        assert sorted(back, key=lambda one: one.id) == sorted(problems, key=lambda one: one.id)
    edited = next((tmp_path / "own").glob("*/instruction.md"))
    edited.write_text("Do something else.")
    with pytest.raises(ProblemError, match=r"instruction\.md was edited, and tests/problem\.json is what counts"):
        load_problems(f"harbor:{edited.parent}", None, None)


@pytest.mark.slow
def test_test_sh_passes_references_and_nothing_else(tmp_path: Path) -> None:
    export("builtin", format="harbor-tasks", out=tmp_path / "tasks")
    builtin = load_problems("builtin", None, None)
    own = write_all(tmp_path / "own", tmp_path, ROWS)
    for folder, problem in (*((tmp_path / "tasks", one) for one in builtin), *((tmp_path / "own", o) for o in own)):
        task = folder / make_file_name(problem.id)
        answers = {"right": problem.reference, "empty": make_empty_answer(problem), "absent": None}
        is_own = problem.source != "builtin" or problem.id.endswith(("two_sum", "ledger_totals"))
        for word in answers if is_own else ("right",):
            assert judge(task, answers[word], tmp_path / task.name / word) == f"{int(word == 'right')}\n", problem.id


WRONG = {
    "os._exit": "import os\nos._exit(0)\n",
    "sys.exit": "import sys\nsys.exit(0)\n",
    "SystemExit": "raise SystemExit\n",
    "word": "import os, __main__\nos.write(1, __main__.secret.encode())\nos._exit(0)\n",
    "stdin": "import os, sys\nfor fd in range(3, 20):\n    try: os.write(fd, sys.stdin.buffer.read())\n"
    "    except OSError: pass\nos._exit(0)\n",
    "reward": "open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')\n",
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
def test_an_answer_that_leaves_early_or_writes_the_reward_fails(tmp_path: Path, answer: str) -> None:
    assert judge_one(tmp_path, ROWS[2], answer) == "0\n"


ONE_MORE = "def f(n):\n    return n + 1\n"
RIGHT = {
    "a helper named as in the setup": (
        "f(1) == helper(1)",
        "def helper(n, by):\n    return n + by\n\n\ndef f(n):\n    return helper(n, 1)\n",
    ),
    "a variable of the tests named as in the answer": ("f(step) == 6", "step = 1\ndef f(n):\n    return n + step\n"),
    "a class of the setup": ("type(f(1)) is Box", "def f(n):\n    return Box()\n"),
    "a helper of the answer that the tests use": (
        "inverse(f(1)) == 1",
        "def inverse(n):\n    return n - 1\n\n\n" + ONE_MORE,
    ),
    "a lambda that is no test": ("test_close(f(1), 2)", ONE_MORE),
    "prints": ("f(1) == 2", f"import atexit, os\natexit.register(print, 'bye')\nos.write(1, b'\\xff')\n{ONE_MORE}"),
    "a function named check": ("check(1) == 2", ONE_MORE.replace("f(", "check(")),
}
"""What the tests assert, and an answer for which it holds."""


@pytest.mark.parametrize("name", RIGHT)
def test_names_of_answer_and_tests_do_not_meet(tmp_path: Path, name: str) -> None:
    asserted, answer = RIGHT[name]
    setup = "class Box:\n    size = 1\n\n\ndef helper(n):\n    return n + Box.size\n"
    code = f"test_close = lambda a, b: abs(a - b) < 1\nstep = 5\n\n\ndef test_it():\n    assert {asserted}\n"
    entry_point = "check" if "def check" in answer else "f"
    row = {**ROWS[2], "setup": setup, "check": code, "entry_point": entry_point}
    assert judge_one(tmp_path, row, answer) == "1\n"


def test_a_program_that_fails_after_printing_fails(tmp_path: Path) -> None:
    row = {"id": "p", "statement": "Print one.", "cases": [{"stdin": "", "stdout": "1\n"}]}
    assert judge_one(tmp_path / "a", row, "print(1)\n") == "1\n"
    assert judge_one(tmp_path / "b", row, "print(1)\nraise SystemExit(3)\n") == "0\n"
    assert judge_one(tmp_path / "c", row, "import os\nos.write(1, b'\\xff')\n") == "0\n"


def test_an_answer_without_end_is_stopped(tmp_path: Path) -> None:
    write_all(tmp_path / "own", tmp_path, ROWS[2:3])
    (task,) = (tmp_path / "own").iterdir()
    code = (task / "tests" / "judge.py").read_text()
    (task / "tests" / "judge.py").write_text(code.replace("LIMIT_S = 60", "LIMIT_S = 1"))
    assert judge(task, "while True: pass\n", tmp_path / "root") == "0\n"


def test_modules_beside_the_judge_do_not_stand_in_for_the_standard_library(tmp_path: Path) -> None:
    write_all(tmp_path / "own", tmp_path, ROWS[2:])
    for number, task in enumerate((tmp_path / "own").iterdir()):
        (task / "tests" / "secrets.py").write_text("import os\nos._exit(0)\n")
        (task / "tests" / "itertools.py").write_text("import os\nos._exit(0)\n")
        assert judge(task, "raise ValueError\n", tmp_path / str(number)) == "0\n"


def test_harbor_takes_the_names_and_texts_of_any_problem(tmp_path: Path) -> None:
    ids = ["日本", "_private", "range 1..n", "😀 \x7f"]
    code = 'def f(n):\n    """```\n    >>> f(1)\n    ```"""\n'
    public = {"public_tests": ["assert f(7) == 8"], "prompt": code, "license": "😀", "reference": "x = 1\r\n"}
    own = write_all(tmp_path / "own", tmp_path, [{**ROWS[2], **public, "id": id} for id in ids])
    found = {}
    for task in (tmp_path / "own").iterdir():
        config = tomllib.loads((task / "task.toml").read_text())
        found[config["metadata"]["problem"]] = config["metadata"]["license"]
        assert re.fullmatch(r"foretrace/[A-Za-z0-9][\w.-]*", config["task"]["name"]), task
        assert ".." not in task.name and os.access(task / "tests" / "test.sh", os.X_OK)
        text = (task / "instruction.md").read_text()
        assert f"````python\n{code.strip()}\n````" in text and "```python\nassert f(7) == 8\n```" in text
    assert found == dict.fromkeys(ids, "😀")
    back = load_problems(f"harbor:{tmp_path / 'own'}", None, None)
    assert sorted(back, key=lambda one: one.id) == sorted(own, key=lambda one: one.id)


def test_what_plain_python_cannot_judge_is_dropped_and_counted(tmp_path: Path) -> None:
    code = "import pytest\n\n\ndef test_it():\n    assert f(1) == pytest.approx(2)\n"
    helper = "import asyncio\n\n\nasync def ask():\n    return f(1)\n\n\n"
    plain = f"{helper}def test_it():\n    assert asyncio.run(ask()) == 2\n"
    rows = [{**ROWS[2], "id": "pytest", "check": code}, {**ROWS[2], "id": "plain", "check": plain, "reference": None}]
    report = export(f"jsonl:{write_rows(tmp_path / 'r.jsonl', rows)}", format="harbor-tasks", out=tmp_path / "out")
    assert (report.traces, report.written, report.without_solution) == (2, 1, 1)
    assert getattr(report, "dropped", {}) == {"its tests need pytest or unittest": 1}


def test_the_output_must_be_new(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="name a folder that is empty"):
        export("builtin", format="harbor-tasks", out=tmp_path)
    with pytest.raises(UsageError, match="problems have no calls"):
        export("builtin", format="harbor-tasks", out=tmp_path / "new", calls="xml")
