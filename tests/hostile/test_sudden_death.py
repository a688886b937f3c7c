"""A parent that is killed with SIGKILL in the middle of running code: nothing that it started lives on.

All of it would for 20 s.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile import tree
from hostile.harness import HERE, SETTINGS
from timing import AT_ONCE_S

_TOUGH = """
import os, signal, time
for number in (1, 2, 3, 15):
    signal.signal(number, signal.SIG_IGN)
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(20)
        os._exit(0)
except OSError:
    pass
"""
_RUNS = {
    "sleeps": ("run", "import time\ntime.sleep(20)\n"),
    "loops": ("run", "import time\nend = time.time() + 20\nwhile time.time() < end:\n    pass\n"),
    "will not die with its parent": ("run", "import ctypes, time\nctypes.CDLL(None).prctl(1, 0)\ntime.sleep(20)\n"),
    "forks twice and waits": ("run", f"{_TOUGH}\ntime.sleep(20)\n"),
    "forks twice and ends": ("run", _TOUGH),
    "judged": ("values", f"def f(x):\n    {_TOUGH.strip().replace(chr(10), chr(10) + '    ')}\n    time.sleep(20)\n"),
    "session": ("session", f"x = 1\n#---\n{_TOUGH}\n#---\nimport time\ntime.sleep(20)\n"),
}


@pytest.fixture
def keeper(linux: None) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for one in started:
        tree.end_all(one.pid)
        one.kill()
        one.wait()
        for pipe in (one.stdin, one.stdout):
            if pipe:
                pipe.close()


def _keep(keeper: list[subprocess.Popen[bytes]], folder: Path, *program: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(HERE / "tree.py"), sys.executable, *program]
    environment = {**os.environ, "TMPDIR": str(folder)}
    keeper.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment))
    return keeper[-1]


def _wait_for(keeping: subprocess.Popen[bytes], processes: int) -> None:
    until = time.monotonic() + 20
    while len(tree.descendants(keeping.pid)) < processes and time.monotonic() < until:
        time.sleep(0.05)
    assert len(tree.descendants(keeping.pid)) >= processes


def _kill_and_count(keeping: subprocess.Popen[bytes], within_s: float = AT_ONCE_S) -> list[str]:
    os.kill(tree.children(keeping.pid)[0], signal.SIGKILL)  # the first is the parent; orphans come after it
    until = time.monotonic() + within_s
    left: list[int] = []
    empty = 0  # looks in a row: one that is taken while orphans change hands may miss them all
    while empty < 3 and time.monotonic() < until:
        time.sleep(0.05)
        left = tree.descendants(keeping.pid)
        empty = 0 if left else empty + 1
    return [f"{pid}: {Path(f'/proc/{pid}/cmdline').read_text()}" for pid in left]


@pytest.mark.parametrize(
    "setting", [name if name in ("L3", "L0") else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]
)
def test_nothing_outlives_a_killed_parent(keeper: list[subprocess.Popen[bytes]], setting: str, tmp_path: Path) -> None:
    settings = {**SETTINGS[setting], "workers": len(_RUNS)}
    keeping = _keep(keeper, tmp_path, str(HERE / "host.py"), json.dumps(settings))
    assert keeping.stdin and keeping.stdout
    assert "isolation" in json.loads(keeping.stdout.readline())
    for number, (form, code) in enumerate(_RUNS.values()):
        job = {"id": number, "form": form, "code": code, "setup": "", "tests": [{"code": "assert f(3) == 12345"}]}
        keeping.stdin.write(json.dumps({**job, "limits": {"wall_s": 20, "cpu_s": 20}}).encode() + b"\n")
    keeping.stdin.flush()
    # The parent, and a fork server and a process for each run but the one that ends: its server may take the next one.
    _wait_for(keeping, 2 * len(_RUNS) - 1)
    time.sleep(0.3)  # in the middle of it
    assert not _kill_and_count(keeping)
    assert list(tmp_path.glob("foretrace-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.4])
def test_nor_one_that_is_killed_while_it_starts(
    keeper: list[subprocess.Popen[bytes]], delay: float, tmp_path: Path
) -> None:
    keeping = _keep(keeper, tmp_path, str(HERE / "host.py"), json.dumps({**SETTINGS["L1"], "workers": len(_RUNS)}))
    _wait_for(keeping, 2)  # the parent, and a fork server
    time.sleep(delay)
    assert not _kill_and_count(keeping)
    assert list(tmp_path.glob("foretrace-scratch-*")) == []


def test_without_a_sandbox_they_outlive_it(keeper: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    keeping = _keep(keeper, tmp_path, "-I", "-S", "-c", f"{_TOUGH}\ntime.sleep(20)\n")
    _wait_for(keeping, 2)  # the parent, and what it forks
    assert _kill_and_count(keeping, within_s=1.0)
