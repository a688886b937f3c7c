"""Process trees as /proc shows them: who descends from a process, how many tasks, how much memory.

`python tree.py PROGRAM ARGUMENT...` starts a program, with its standard input and output, and inherits whatever that
leaves behind, so that a test can see it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
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
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in children(todo.pop()):
            todo.append(pid)
            if alive(pid):
                found.append(pid)
    return found


def children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        texts = [Path(f"/proc/{pid}/task/{task}/children").read_text() for task in tasks]
    except OSError:
        return []
    return [int(word) for text in texts for word in text.split()]


def state(pid: int) -> str:
    """The letter of /proc/PID/stat (`R`, `S`, `T`, `Z`, ...); empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z", "X")


def first_in_its_namespace(pid: int) -> bool:
    """Whether it is the first process of a pid namespace of its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("NSpid:") and len(line.split()) > 2 and line.split()[-1] == "1" for line in lines)


def weigh(root: int) -> tuple[int, float]:
    """Threads (all tasks) and resident MiB of `root` and all processes below it."""
    tasks, megabytes = 0, 0.0
    for pid in [root, *descendants(root)]:
        try:
            tasks += len(os.listdir(f"/proc/{pid}/task"))
            megabytes += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB
        except (OSError, IndexError):
            continue
    return tasks, megabytes


def end_all(root: int) -> None:
    """Kill everything below `root`."""
    for _ in range(20):
        pids = descendants(root)
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


if __name__ == "__main__":
    keep_orphans()
    die_with_parent()
    started = subprocess.Popen(sys.argv[1:])
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.05)
