"""The Atropos environment on transformers 4: the extra installs 5, and atroposlib takes both.

transformers 4 and what it pins (135 MB, got once in some seconds) are kept beside llama-server (`llama_build.py`), and
stand before the other packages of the environment, which stay as they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="atroposlib is not installed (make test-integrations installs it)")

from integrations.atropos_runs import Env, check_group, rows
from integrations.llama_build import Say, cache_folder

pytestmark = pytest.mark.integration
VERSION = "4.57.6"
PACKAGES = (f"transformers=={VERSION}", "tokenizers==0.22.2", "huggingface-hub==0.36.2")


@pytest.fixture(scope="module")
def packages(say: Say) -> Path:
    """A folder with these packages alone."""
    made = cache_folder() / f"transformers-{VERSION}-{sys.implementation.cache_tag}-{os.uname().machine}"
    if not made.is_dir():
        say(f"getting {', '.join(PACKAGES)}")
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*pip, "--target", f"{folder}/new", *PACKAGES], check=True)
            shutil.move(f"{folder}/new", made)
    return made


def test_process_writes_exact_groups(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filter(None, [str(packages), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    which = [sys.executable, "-c", "from importlib.util import find_spec; print(find_spec('transformers').origin)"]
    assert subprocess.check_output(which, text=True).startswith(str(packages))
    env = Env("process", tmp_path, total_steps=1, group_size=2, protocol="tools").start(cold=True)
    assert env.wait() == 0, env.said()
    (group,) = rows(tmp_path / "data" / "code_trace.jsonl")
    check_group(group, 2, differ=False)
