"""Harbor itself loads the tasks that foretrace writes, runs them, and judges those that need their own image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Run, run
from foretrace.api.traces import export
from foretrace.problems.harbor_job import judge_tasks
from problems.test_harbor import write_task

__all__ = ["run"]
pytestmark = pytest.mark.integration

FOLDER = "harbor_folder:FolderEnvironment"
STATE = {
    "task.toml": "",
    "environment/Dockerfile": "FROM ubuntu:24.04\n",
    "tests/test.sh": "#!/bin/bash\nif grep -q hello /app/out; then r=1; else r=0; fi\n"
    "echo $r > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "#!/bin/bash\necho hello > /app/out\n",
}


@pytest.fixture
def harbor(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Harbor's commands, on the PATH; Harbor finds the environment of these tests."""
    own = Path(sys.prefix, "harbor", "bin")
    found = own / "harbor" if (own / "harbor").is_file() else shutil.which("harbor")
    if found is None:
        pytest.skip("Harbor is not installed (make test-integrations installs it where there is a Python 3.12)")
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here, which the environment of these tests needs")
    monkeypatch.setenv("PATH", f"{Path(found).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("HARBOR_TELEMETRY", "off")
    return Path(found).resolve().parent


def test_harbor_loads_and_runs_what_foretrace_writes(harbor: Path, tmp_path: Path) -> None:
    export("builtin", format="harbor-tasks", out=tmp_path / "tasks")
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom harbor.models.task.task import Task\n"
        "tasks = [Task(folder) for folder in sorted(Path(sys.argv[1]).iterdir())]\n"
        "print(json.dumps([[task.name, task.instruction, task.config.metadata['problem']] for task in tasks]))\n"
    )
    done = subprocess.run(
        [harbor / "python", "-c", code, tmp_path / "tasks"], check=True, stdout=subprocess.PIPE, text=True
    )
    loaded = json.loads(done.stdout)
    assert len(loaded) == 18 and {name.partition("/")[0] for name, _, _ in loaded} == {"foretrace"}
    assert all("/root/solution.py" in instruction for _, instruction, _ in loaded)
    folders = [
        next((tmp_path / "tasks").glob(f"builtin-{name}-*")) for name in ("two_sum", "ledger_totals", "recent_cache")
    ]
    rewards = judge_tasks(folders, FOLDER, 2)
    assert [(one.task, one.solution, one.nothing, one.error) for one in rewards] == [(f, 1, 0, "") for f in folders]


def test_tasks_that_need_their_image_are_judged_by_harbor(harbor: Path, tmp_path: Path, run: Run) -> None:
    write_task(tmp_path / "plain")
    write_task(tmp_path / "right", STATE)
    write_task(tmp_path / "wrong", {**STATE, "solution/solve.sh": "true\n"})
    write_task(tmp_path / "done", {**STATE, "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n"})
    write_task(tmp_path / "silent", {**STATE, "tests/test.sh": "true\n"})
    result = run("problems", "check", f"harbor:{tmp_path}", "--environment", FOLDER, "--json")
    facts = result.json
    assert (result.code, facts["problems"], facts["references_passed"], facts["empty_passed"]) == (1, 5, 3, 1)
    found = {fault["problem"]: (fault["fault"], fault["detail"]) for fault in facts["findings"]}
    assert found.pop("silent")[0] == "lost"
    assert found == {
        "done": ("empty_passed", "doing nothing has the reward 1"),
        "wrong": ("reference_failed", "the reward of its solution is 0"),
    }


def test_what_harbor_says_is_the_error(harbor: Path, tmp_path: Path, run: Run) -> None:
    write_task(tmp_path / "right", STATE)
    result = run("problems", "check", f"harbor:{tmp_path}", "--environment", "nowhere")
    assert result.code == 1 and "foretrace: harbor run failed: " in result.err and "Traceback" not in result.err
