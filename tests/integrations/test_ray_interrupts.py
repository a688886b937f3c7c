"""Ctrl-C, which a terminal sends to the whole group, at a command that runs on a Ray of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sources.raw_rows import swe_rows, write_jsonl

pytestmark = pytest.mark.integration
pytest.importorskip("ray", reason="Ray is not installed (make test-integrations)")
LONGEST_S = 60.0


def run_until(command: list[str], is_time: Callable[[psutil.Process], bool]) -> tuple[int, str, int]:
    """The code, the last line of stderr, and the session of a command that gets Ctrl-C when it is time."""
    process = subprocess.Popen(
        [sys.executable, "-m", "foretrace", *command, "--engine", "ray"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    own = psutil.Process(process.pid)
    deadline = time.monotonic() + LONGEST_S
    while not is_time(own):
        assert process.poll() is None, "it ended before it was interrupted"
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=LONGEST_S)
    return process.returncode, errors.splitlines()[-1], process.pid


def list_left(session: int) -> list[str]:
    """Processes of a session that are there two seconds later."""
    time.sleep(2)
    left: list[str] = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                left.append(f"{process.pid} {process.name()}")
        except (OSError, psutil.Error):
            continue
    return left


def has_child(process: psutil.Process, name: str) -> bool:
    return any(child.name().startswith(name) for child in process.children())


def test_nothing_is_left_of_a_ray_that_was_interrupted_as_it_started(tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "rows.jsonl", swe_rows(40))
    command = ["import", "swe_smith", str(rows), "--out", str(tmp_path / "traces")]
    code, said, session = run_until(command, lambda own: has_child(own, "raylet"))
    assert (code, list_left(session)) == (130, [])
    assert said.startswith("foretrace: interrupted; ")


def test_nothing_is_left_of_a_build_that_was_interrupted(tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "rows.jsonl", swe_rows(400))
    command = ["build", f"swe_smith={rows}", "--out", str(tmp_path / "dataset")]
    scratch = tmp_path / ".dataset.building" / "scratch"
    code, said, session = run_until(command, lambda _: scratch.is_dir())
    assert (code, list_left(session)) == (130, [])
    assert said == f"foretrace: interrupted; {tmp_path / 'dataset'} is as it was before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset-traces", "rows.jsonl"]
