"""Process trees as psutil shows them: who descends from a process, how many tasks, how much memory.

`python tree.py PROGRAM ARGUMENT...` starts a program, with its standard input and output, and inherits whatever that
leaves behind, so that a test can see it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def keep_orphans() -> None:
    """From here on the calling process inherits the orphans below it, so that none can slip out of its tree."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """End the calling process when the thread that made it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Processes below `root`, without itself and without the dead that nobody has waited for."""
    return [pid for pid in children(root, recursive=True) if alive(pid)]


def children(pid: int, *, recursive: bool = False) -> list[int]:
    try:
        return [each.pid for each in psutil.Process(pid).children(recursive)]
    except psutil.NoSuchProcess:
        return []


def state(pid: int) -> str:
    """As psutil names it; `dead` when there is no such process."""
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


def alive(pid: int) -> bool:
    return state(pid) not in (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE)


def first_in_its_namespace(pid: int) -> bool:
    """Whether it is the first process of a pid namespace of its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("NSpid:") and len(line.split()) > 2 and line.split()[-1] == "1" for line in lines)


def weigh(root: int) -> tuple[int, float]:
    """Threads (all tasks) and resident MiB of `root` and all processes below it."""
    tasks, size = 0, 0
    for pid in [root, *descendants(root)]:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            tasks += process.num_threads()
            size += process.memory_info().rss
    return tasks, size / 1024 / 1024


def end_all(root: int) -> None:
    """Kill everything below `root`."""
    for _ in range(20):
        for pid in (pids := descendants(root)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return


if __name__ == "__main__":
    keep_orphans()
    die_with_parent()
    started = subprocess.Popen(sys.argv[1:])
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.05)
