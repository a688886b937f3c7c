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
HEREDOC = TASK["solution/solve.sh"]
UNTOLD = (
    "python3 /solution/write_it.py",
    "sed 's/a/b/' /solution/clamp.py > /app/clamp.py",
    f"{COPIED['solution/solve.sh']}\nsed -i 's/low/high/' /app/clamp.py",
    f"{HEREDOC}sed -i 's/low/high/' /app/clamp.py\n",
    f"{HEREDOC}cat >> /app/clamp.py << 'EOF'\nclamp = None\nEOF\n",
)


def test_a_reference_is_read_where_the_solution_shows_it(tmp_path: Path) -> None:
    (copied,) = load(write_task(tmp_path / "copied", COPIED))
    assert isinstance(copied, Problem) and copied.reference == COPIED["solution/clamp.py"]
    for number, script in enumerate(UNTOLD):
        (unknown,) = load(write_task(tmp_path / str(number), {**COPIED, "solution/solve.sh": script}))
        assert isinstance(unknown, Problem) and unknown.reference is None, script


ACCEPTED = {
    "imports beside sys": {
        "tests/test_outputs.py": TASK["tests/test_outputs.py"].replace(
            "import math\nimport sys\n", "import sys, math\n"
        )
    },
    "modules for sys.path alone": {
        "tests/test_outputs.py": TASK["tests/test_outputs.py"].replace(
            "import math\nimport sys\n",
            "import math, sys\nimport os\nfrom pathlib import Path\n"
            "sys.path.insert(0, os.path.dirname(__file__))\nsys.path.append(str(Path('/app')))\n",
        )
    },
    "an image with a command": {
        "environment/Dockerfile": 'FROM --platform=linux/amd64 python:3.10 AS base\nENV PYTHONPATH=/app\nCMD ["bash"]\n'
    },
    "a reward after &&": {
        "tests/test.sh": "python3 -m pip install pytest -q\n"
        "python3 -m pytest -q /tests/test_outputs.py > /dev/null 2>&1"
        " && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
    },
    "the usual script": {
        "tests/test.sh": "apt-get update\n"
        "apt-get install -y curl\ncurl -LsSf https://astral.sh/uv/0.9.7/install.sh | sh\n"
        'source $HOME/.local/bin/env\nif [ "$PWD" = "/" ]; then\n  echo "no WORKDIR"\n  exit 1\nfi\n'
        "uvx -p 3.13 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 "
        "pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA\n"
        "if [ $? -eq 0 ]; then\n  echo 1 > /logs/verifier/reward.txt\nfi\n"
    },
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_a_task_that_needs_only_python_and_pytest_is_a_problem(tmp_path: Path, run: Run, what: str) -> None:
    write_task(tmp_path / "clamp", ACCEPTED[what])
    facts = run("problems", "check", f"harbor:{tmp_path}", "--json").json
    assert (facts["references_passed"], facts["empty_passed"], facts["sound"]) == (1, 0, True)


WRONG = {
    'environment = "docker"': "task.toml: Expected `object`, got `str` - at `$.environment`",
    'task = "x"': "task.toml: Expected `object`, got `str` - at `$.task`",
    "[metadata]\nlicense = 3": "task.toml: Expected `str | null`, got `int` - at `$.metadata.license`",
    "[": "task.toml: Invalid",
}


@pytest.mark.parametrize("config", WRONG)
def test_a_task_toml_that_is_wrong_says_where(tmp_path: Path, config: str) -> None:
    write_task(tmp_path / "a", {"task.toml": config})
    write_task(tmp_path / "b")
    row, good = load(tmp_path)
    assert isinstance(row, UnusableRow) and row.reason.startswith(WRONG[config]) and not row.task
    assert isinstance(good, Problem)


TESTS, SCRIPT = TASK["tests/test_outputs.py"], TASK["tests/test.sh"]
REFUSED = {
    "task.toml asks for several steps": {"task.toml": '[[steps]]\nname = "one"\n'},
    "task.toml asks for a GPU or TPU": {"task.toml": "[environment]\ngpus = 1\n"},
    "its image has `FROM org/image:1`": {"task.toml": '[environment]\ndocker_image = "org/image:1"\n'},
    "environment/ has data.csv": {"environment/data.csv": "1"},
    "its image has `RUN apt-get install -y gcc`": {
        "environment/Dockerfile": "FROM python:3.12\nRUN apt-get install -y \\\n  gcc\n"
    },
    "its tests are not test.sh and one Python file": {"tests/problem.json": '{"id": 3}'},
    "tests/test.sh runs `make -C /app`": {"tests/test.sh": f"cd /app && make -C /app\n{SCRIPT}"},
    "tests/test.sh runs `python3 /app/clamp.py`": {"tests/test.sh": f"{SCRIPT}if python3 /app/clamp.py; then :; fi"},
    "tests/test.sh does not run pytest on test_outputs.py": {"tests/test.sh": "pytest /tests/test_state.py\n"},
    "tests/test.sh runs `echo $(make)`": {"tests/test.sh": f"echo $(make)\n{SCRIPT}"},
    "its tests import helper": {
        "instruction.md": "Write /app/clamp.py and /app/helper.py.",
        "tests/test_outputs.py": f"{TESTS}\nfrom helper import help_it\n",
    },
    "its tests use subprocess": {"tests/test_outputs.py": f"{TESTS}\nimport subprocess\n"},
    "its tests use open": {"tests/test_outputs.py": f"{TESTS}\n\ndef test_file():\n    assert open('/app/x').read()\n"},
    "task.toml asks for a system other than Linux": {"task.toml": "[environment]\nos = 3\n"},
    "task.toml asks for variables": {"task.toml": "[verifier.env]\nA = 'b'\n"},
    "task.toml asks for a verifier's environment": {"task.toml": "[verifier]\nenvironment_mode = 'separate'\n"},
    "its image has `ENV MODE=1`": {"environment/Dockerfile": "FROM python:3.12\nENV MODE=1\n"},
    "its image has `FROM python:3.9`": {"environment/Dockerfile": "FROM python:3.9\n"},
    "its image has `RUN pip install pytest numpy`": {
        "environment/Dockerfile": "FROM python:3.12\nRUN pip install pytest numpy\n"
    },
    "tests/test.sh runs `pytest /tests/test_outputs.py::": {
        "tests/test.sh": "pytest /tests/test_outputs.py::test_ends"
    },
    "tests/test.sh runs `pip install numpy`": {"tests/test.sh": f"pip install numpy\n{SCRIPT}"},
    "tests/test.sh runs `echo x > /app/clamp.py`": {"tests/test.sh": f"echo x > /app/clamp.py\n{SCRIPT}"},
    "tests/test.sh gives a reward whatever pytest says": {
        "tests/test.sh": "pip install pytest && pytest /tests/test_outputs.py\necho 1 > /logs/verifier/reward.txt\n"
    },
    "its tests use os": {"tests/test_outputs.py": f"import os\n{TESTS}\nassert os.listdir('/app')\n"},
    "its tests use __import__": {"tests/test_outputs.py": f"{TESTS}\nnumpy = __import__('numpy')\n"},
    "its tests name clamp in a text": {
        "tests/test_outputs.py": f"from unittest.mock import patch\n{TESTS}\n\ndef test_it():\n"
        "    with patch('clamp.max'):\n        assert clamp(1, 0, 3)\n"
    },
    "its tests import clamp": {"tests/test_outputs.py": TESTS.replace("import clamp", "import clamp as c")},
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
    assert (
        isinstance(again, UnusableRow) and again.reason.startswith("the id 'org/clamp' is used by") and not again.task
    )
    result = run("problems", "check", f"harbor:{tmp_path}", "--json")
    assert result.code == 1 and [fault["fault"] for fault in result.json["findings"]] == ["bad_row", "bad_row"]
    command = f"generate --problems harbor:{tmp_path} --model demo --protocol tools --out {tmp_path / 't'}"
    result = run(*command.split())
    assert result.code == 0
    assert "left out 2 of 3 problems" in result.err


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
