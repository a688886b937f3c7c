"""Kill and reap what a run leaves behind: a module of its own, since every supervisor needs it, and the exit too."""

from __future__ import annotations

import contextlib
import os
import signal


def kill_descendants() -> None:
    """Kill and reap every process that a run left; in a pid namespace that is one call."""
    for _ in range(1000):
        if os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            for pid in _find_children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG if os.getpid() != 1 else 0)[0]:
                pass
            if not _find_children():
                return
        except ChildProcessError:
            return


def _find_children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except (OSError, ValueError):
        return []
