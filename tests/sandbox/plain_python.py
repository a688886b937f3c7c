"""The verdict of plain Python: the answer and its tests in one process, without a sandbox. The oracle of the corpus.

As a program it reads jobs as JSON from stdin and writes one verdict each; every job runs in a fork with a folder of its
own. Only for code that we wrote ourselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SECONDS = 30


def verdicts(jobs: list[dict[str, Any]]) -> list[bool]:
    """Whether each job passes its tests: `code`, `tests`, and for functions `prompt`, `setup` and `entry_point`."""
    command = [sys.executable, str(Path(__file__).resolve())]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, check=True)
    found: list[bool] = json.loads(done.stdout)
    return found


def passes(job: dict[str, Any]) -> bool:
    """Run one job here."""
    if isinstance(job["tests"][0], dict):
        return all(prints(job["code"], **test) for test in job["tests"])
    return in_fork(lambda: run_tests(**job))


def run_tests(
    code: str, tests: list[str], prompt: str = "", setup: str = "", entry_point: str = "", seconds: int = SECONDS
) -> None:
    """Raise where a test fails: the answer is executed below its prompt, and each test sees what that left."""
    signal.alarm(seconds)
    world: dict[str, Any] = {"__name__": "__main__"}
    body = "    pass\n" if prompt.rstrip().endswith('"""') else ""
    exec(compile(f"{prompt}{body}\n{code}", "main.py", "exec", dont_inherit=True), world)
    exec(compile(setup, "setup.py", "exec", dont_inherit=True), world)
    for test in tests:
        names = dict(world)
        exec(compile(test, "test.py", "exec", dont_inherit=True), names)
        if "check" in names and "check" not in world:
            names["check"](world[entry_point])


def prints(code: str, stdin: str, stdout: str) -> bool:
    """Whether a program prints what it should, but for spaces at the ends of lines."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.py").write_text(code, encoding="utf-8")
        command = [sys.executable, "main.py"]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=folder, timeout=SECONDS)
    lines = [line.split() for line in done.stdout.rstrip().splitlines()]
    return done.returncode == 0 and lines == [line.split() for line in stdout.rstrip().splitlines()]


def in_fork(work: Any) -> bool:
    """Whether `work` raises nothing, in a process and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                os.chdir(folder)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                os.dup2(1, 2)
                work()
                os._exit(0)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


if __name__ == "__main__":
    sys.setrecursionlimit(5_000)
    print(json.dumps([passes(job) for job in json.load(sys.stdin)]))
