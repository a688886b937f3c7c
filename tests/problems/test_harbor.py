"""Harbor tasks as others write them: which become problems, and why the others need their own image."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Run, run
from foretrace.core.errors import ForetraceError
from foretrace.core.problem import Problem
from foretrace.problems.base import UnusableRow
from foretrace.problems.harbor import Harbor

__all__ = ["run"]  # a fixture

TASK = {
    "task.toml": '[task]\nname = "org/clamp"\n[environment]\ncpus = 1\n',
    "instruction.md": "<!-- harbor-canary GUID 1 -->\n\nWrite `clamp(n, low, high)` to `/app/clamp.py`.\n",
    "environment/Dockerfile": "FROM python:3.12-slim\n\n# nothing else\nWORKDIR /app\nRUN mkdir -p /app /logs\n",
    "tests/test.sh": "#!/bin/bash\nset -u\ncurl -LsSf https://astral.sh/uv/install.sh | sh\n"
    "source $HOME/.local/bin/env\n"
    "uvx \\\n  -w pytest==8.4.1 \\\n  pytest /tests/test_outputs.py -rA\nRC=$?\n"
    "if [ $RC -eq 0 ]; then\n  echo 1 > /logs/verifier/reward.txt\nelse echo 0 > /logs/verifier/reward.txt; fi\n",
    "tests/test_outputs.py": 'import math\nimport sys\n\nimport pytest\n\nsys.path.insert(0, "/app")\n'
    "from clamp import clamp\n\n\n@pytest.mark.parametrize('n, at', [(5, 3), (-1, 0)])\ndef test_ends(n, at):\n"
    "    assert clamp(n, 0, 3) == at\n\n\ndef test_inside():\n    assert math.isclose(clamp(1.5, 0, 3), 1.5)\n",
    "solution/solve.sh": "#!/bin/bash\ncat > /app/clamp.py << 'EOF'\ndef clamp(n, low, high):\n"
    "    return max(low, min(n, high))\nEOF\n",
}


def write_task(folder: Path, changes: dict[str, str] | None = None) -> Path:
    for name, text in {**TASK, **(changes or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def load(path: Path) -> list[Problem | UnusableRow]:
    return list(Harbor().load(path))


def test_a_pytest_file_on_one_python_file_is_a_problem(tmp_path: Path, run: Run) -> None:
    (problem,) = load(write_task(tmp_path / "clamp"))
    assert isinstance(problem, Problem)
    assert (problem.id, problem.entry_point) == ("org/clamp", "clamp")
    assert problem.statement == "Write `clamp(n, low, high)` to `/app/clamp.py`."
    assert problem.reference == "def clamp(n, low, high):\n    return max(low, min(n, high))\n"
    facts = run("problems", "check", f"harbor:{tmp_path}", "--json").json
    assert (facts["references_passed"], facts["empty_passed"], facts["sound"]) == (1, 0, True)


COPIED = {
    "solution/solve.sh": "cp /solution/clamp.py /app/clamp.py",
    "solution/clamp.py": "def clamp(n, low, high): ...",
}


def test_a_reference_is_read_where_the_solution_shows_it(tmp_path: Path) -> None:
    (copied,) = load(write_task(tmp_path / "copied", COPIED))
    assert isinstance(copied, Problem) and copied.reference == COPIED["solution/clamp.py"]
    (unknown,) = load(write_task(tmp_path / "unknown", {"solution/solve.sh": "python3 /solution/write_it.py"}))
    assert isinstance(unknown, Problem) and unknown.reference is None


TESTS, SCRIPT = TASK["tests/test_outputs.py"], TASK["tests/test.sh"]
REFUSED = {
    "task.toml asks for several steps": {"task.toml": '[[steps]]\nname = "one"\n'},
    "task.toml asks for a GPU or TPU": {"task.toml": "[environment]\ngpus = 1\n"},
    "its image has `FROM org/image:1`": {"task.toml": '[environment]\ndocker_image = "org/image:1"\n'},
    "environment/ has data.csv": {"environment/data.csv": "1"},
    "its image has `RUN apt-get install -y gcc`": {
        "environment/Dockerfile": "FROM python:3.12\nRUN apt-get install -y \\\n  gcc\n"
    },
    "its image has `FROM ubuntu:24.04`": {"environment/Dockerfile": "FROM ubuntu:24.04\n"},
    "its tests are not test.sh and one Python file": {"tests/data.json": "{}"},
    "tests/test.sh runs `make -C /app`": {"tests/test.sh": f"cd /app && make -C /app\n{SCRIPT}"},
    "tests/test.sh runs `RC=1 make`": {"tests/test.sh": f"RC=1 make\n{SCRIPT}"},
    "tests/test.sh runs `python3 /app/clamp.py`": {"tests/test.sh": f"{SCRIPT}if python3 /app/clamp.py; then :; fi"},
    "tests/test.sh does not run pytest on test_outputs.py": {"tests/test.sh": "pytest /tests/test_state.py\n"},
    "tests/test.sh runs `echo $(make)`": {"tests/test.sh": f"echo $(make)\n{SCRIPT}"},
    "its tests import helper": {
        "instruction.md": "Write /app/clamp.py and /app/helper.py.",
        "tests/test_outputs.py": f"{TESTS}\nfrom helper import help_it\n",
    },
    "its tests use subprocess": {"tests/test_outputs.py": f"{TESTS}\nimport subprocess\n"},
    "its tests use open": {"tests/test_outputs.py": f"{TESTS}\n\ndef test_file():\n    assert open('/app/x').read()\n"},
    "its tests import numpy": {"tests/test_outputs.py": f"import numpy\n{TESTS}"},
    "its tests import no function of the answer by name": {
        "tests/test_outputs.py": "def test_it():\n    assert 1 == 2\n"
    },
    "solution/solve.sh cannot be read": {"solution/solve.sh": "\udcff"},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_only_its_own_image_can_judge_is_refused(tmp_path: Path, reason: str) -> None:
    task = tmp_path / "clamp"
    changes = {name: text for name, text in REFUSED[reason].items() if text != "\udcff"}
    write_task(task, changes)
    if len(changes) < len(REFUSED[reason]):
        (task / "solution" / "solve.sh").write_bytes(b"\xff")
    (row,) = load(tmp_path)
    assert isinstance(row, UnusableRow) and (row.at, row.id, row.task) == (str(task), "clamp", task)
    assert row.reason.startswith(f"needs its own image: {reason}")


def test_tasks_lie_at_any_depth_and_refusals_are_counted(tmp_path: Path, run: Run) -> None:
    write_task(tmp_path / "a" / "clamp")
    write_task(tmp_path / "b" / "image", {"environment/Dockerfile": "FROM ubuntu:24.04\n"})
    write_task(tmp_path / "b" / "again")
    good, again, image = load(tmp_path)
    assert isinstance(good, Problem) and isinstance(image, UnusableRow)
    assert isinstance(again, UnusableRow) and again.reason.startswith("the id 'org/clamp' stands at") and not again.task
    result = run("problems", "check", f"harbor:{tmp_path}", "--json")
    assert result.code == 1 and [fault["fault"] for fault in result.json["findings"]] == ["bad_row", "bad_row"]
    result = run(
        "generate",
        "--problems",
        f"harbor:{tmp_path}",
        "--model",
        "demo",
        "--protocol",
        "tools",
        "--out",
        tmp_path / "t",
    )
    assert result.code == 0
    assert "left out 2 of 3 problems" in result.err and "b/image: needs its own image: " in result.err


def test_a_folder_without_tasks_says_so(tmp_path: Path) -> None:
    with pytest.raises(ForetraceError, match=r"no task\.toml in it"):
        load(tmp_path)
    with pytest.raises(ForetraceError, match="read from a folder"):
        list(Harbor().load())


def test_an_environment_is_for_harbor_tasks_and_needs_harbor(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path / "image", {"environment/Dockerfile": "FROM ubuntu:24.04\n"})
    result = run("problems", "check", f"harbor:{tmp_path}")
    assert result.code == 1 and "--environment docker (or modal, daytona, ...)" in result.err
    monkeypatch.setenv("PATH", "")
    result = run("problems", "check", f"harbor:{tmp_path}", "--environment", "docker")
    assert result.code == 2 and "--environment docker needs Harbor: install it with `uv tool install" in result.err
    result = run("problems", "check", "builtin", "--environment", "docker")
    assert result.code == 2 and "--environment docker is for Harbor tasks" in result.err
