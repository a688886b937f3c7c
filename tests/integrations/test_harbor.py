"""Harbor itself loads and runs the tasks that foretrace writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foretrace.api.traces import export
from integrations.harbor_job import judge_tasks

pytestmark = pytest.mark.integration

FOLDER = "harbor_folder:FolderEnvironment"


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
