"""Runs real model servers as processes of their own, on a free port of this machine, until the test is over."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

NAME = "demo-model"
_START_S = 60.0


class Running:
    """A server process.

    Args:
        command: its last arguments are `--port N`, which are added here.
        health: a path that answers 200 as soon as the server is ready.
    """

    def __init__(self, command: list[str], log: Path, health: str) -> None:
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self._command = [*command, "--port", str(self.port)]
        self._health = health
        self._process: Any = None

    def _open(self) -> Any:
        """The process, as `subprocess.Popen` has it."""
        with self.log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log)

    def start(self) -> Self:
        """Start it, or start it again on the same port, and wait until it serves."""
        self._process = self._open()
        end = time.monotonic() + _START_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"{self._command[0]} does not start:\n{self.said()[-3000:]}")
            time.sleep(0.05)
        return self

    def kill(self) -> None:
        """As by `kill -9`: it has no time for anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it, if it runs."""
        self._end(signal.SIGTERM)

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _serves(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + self._health, timeout=1) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


def llama_server(program: Path, model: Path, log: Path, *, slots: int = 4, context: int = 4096) -> Running:
    """llama-server with `context` tokens for each of its slots.

    It computes with 32-bit floats throughout, as the demo model in numpy does, so that logprobs can be compared.
    """
    command = [str(program), "--model", str(model), "--alias", NAME, "--host", "127.0.0.1"]
    command += ["--parallel", str(slots), "--ctx-size", str(slots * context), "--threads", "1", "--offline"]
    command += ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off", "--no-webui"]
    return Running(command, log, "/health")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
