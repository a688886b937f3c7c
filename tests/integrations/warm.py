"""Python programs whose libraries take many seconds to import: each runs in a process of its own, which is forked from
one that has imported them."""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

_HEAVY = [
    "foretrace.envs.atropos.environment",
    "atroposlib.cli.run_api",
    "verifiers.v1.cli.eval.main",
    "foretrace.envs.verifiers.environment",
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_tokenizers",
    "uvicorn",
    "wandb",
]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(_HEAVY)
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}


class WarmProcess:
    """`python -m MODULE ARGUMENTS`, as far as tests use `subprocess.Popen`.

    Args:
        module: or `MODULE:FUNCTION`, the function of a command.
        setup: Python code that is run first.
        environment: variables beside those of this process.
    """

    def __init__(
        self,
        module: str,
        arguments: list[str],
        *,
        folder: Path,
        log: Path,
        setup: str = "",
        environment: dict[str, str] | None = None,
    ) -> None:
        given = dict(os.environ) | OFFLINE | (environment or {})
        self._process = _CONTEXT.Process(target=_run, args=(module, arguments, str(folder), str(log), setup, given))
        with mock.patch.dict(os.environ, OFFLINE):  # the libraries look at these when they are imported
            self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self._process.exitcode is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _run(module: str, arguments: list[str], folder: str, log: str, setup: str, environment: dict[str, str]) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [module, *arguments]
    sys.path.insert(0, folder)
    exec(setup, {})
    try:
        name, _, function = module.partition(":")
        if function:
            sys.exit(getattr(importlib.import_module(name), function)())
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # which a process of multiprocessing leaves out
        sys.stdout.flush()
        sys.stderr.flush()
