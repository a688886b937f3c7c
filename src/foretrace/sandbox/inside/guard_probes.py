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

    def connect() -> None:
        with socket.create_connection(("127.0.0.1", decoys["port"]), timeout=1):
            pass

    def read() -> None:
        with open(decoys["decoy"]) as file:
            file.read()

    def write() -> None:
        with open(decoys["decoy"] + ".written", "w") as file:
            file.write("x")

    def environment() -> None:
        if decoys["variable"] not in os.environ:
            raise OSError(errno.ENOENT, "not in the environment")

    def unlimited() -> None:
        names = ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE")
        set_ = [n for n in names if resource.getrlimit(getattr(resource, n))[0] != resource.RLIM_INFINITY]
        if set_:
            raise OSError(errno.E2BIG, " ".join(set_))

    def scratch() -> None:
        with open("scratch", "x") as file:
            file.write("x")
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
        "filesystem_read": read,
        "filesystem_write": write,
        "network": connect,
        "jail": lambda: os.stat(decoys["decoy"]),
        "scratch": scratch,
    }


def run_probes(decoys: dict[str, Any]) -> dict[str, str]:
    """By guard: `done`, or the name of the error."""
    outcomes: dict[str, str] = {}
    for name, act in make_probes(decoys).items():
        try:
            act()
            outcomes[name] = "done"
        except OSError as error:
            outcomes[name] = errno.errorcode.get(error.errno or 0, str(error.errno))
        except Exception as error:
            outcomes[name] = type(error).__name__
    return outcomes


def main(decoys: dict[str, Any]) -> None:
    """Print the outcomes as one line of JSON."""
    print(json.dumps(run_probes(decoys)))
