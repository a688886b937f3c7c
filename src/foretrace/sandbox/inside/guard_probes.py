"""The program of the self-test: it tries what each guard must prevent, and prints `done` or the error for each.

`forkserver.selftest` runs this file in the sandbox, with its parameters appended.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any


def make_probes(decoys: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """By guard: an action that it must prevent, which is harmless if it succeeds."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: int) -> None:
        if libc.syscall(*(ctypes.c_long(a) for a in (number, *arguments))) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    def environment() -> None:
        if decoys["variable"] not in os.environ:
            raise OSError(errno.ENOENT, "not in the environment")

    def unlimited() -> None:
        kinds = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)
        if any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds):
            raise OSError(errno.E2BIG, "limited")

    def scratch() -> None:
        Path("scratch").write_text("x")
        os.remove("scratch")

    return {
        "limits": unlimited,
        "environment": environment,
        "fork": fork,
        "execute": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
        "socket": lambda: socket.socket().close(),
        "unshare": lambda: call(decoys["unshare"], 0x10000000),
        "trace": lambda: call(decoys["vm_readv"], os.getpid(), 0, 0, 0, 0, 0),
        "metadata": lambda: os.chmod(decoys["decoy"], 0o666),
        "signal": lambda: os.kill(decoys["parent"], 0),
        "filesystem_read": lambda: Path(decoys["decoy"]).read_text(),
        "filesystem_write": lambda: Path(decoys["decoy"] + ".written").write_text("x"),
        "network": lambda: socket.create_connection(("127.0.0.1", decoys["port"]), timeout=1).close(),
        "jail": lambda: os.stat(decoys["decoy"]),
        "scratch": scratch,
    }


def main(decoys: dict[str, Any]) -> None:
    """Print one line of JSON: by guard, `done` or the name of the error."""
    outcomes: dict[str, str] = {}
    for name, act in make_probes(decoys).items():
        try:
            act()
            outcomes[name] = "done"
        except OSError as error:
            outcomes[name] = errno.errorcode.get(error.errno or 0, str(error.errno))
        except Exception as error:
            outcomes[name] = type(error).__name__
    print(json.dumps(outcomes))
