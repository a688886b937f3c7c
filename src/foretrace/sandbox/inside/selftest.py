"""What the self-test tries from within: the same acts in the sandbox, and unguarded as a positive control.

This file is run as a program by `_guards`, with its parameters appended; each act answers `done`, or why it was not.
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


def acts(given: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Each act by name; harmless where it is not prevented."""
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
        with socket.create_connection(("127.0.0.1", given["port"]), timeout=1):
            pass

    def read() -> None:
        with open(given["decoy"]) as file:
            file.read()

    def write() -> None:
        with open(given["decoy"] + ".written", "w") as file:
            file.write("x")

    def environment() -> None:
        if given["variable"] not in os.environ:
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
        "unshare": lambda: call(given["unshare"], 0x10000000),
        "trace": lambda: call(given["vm_readv"], os.getpid(), 0, 0, 0, 0, 0),
        "metadata": lambda: os.chmod(given["decoy"], 0o666),
        "signal": lambda: os.kill(given["parent"], 0),
        "filesystem_read": read,
        "filesystem_write": write,
        "network": connect,
        "jail": lambda: os.stat(given["decoy"]),
        "scratch": scratch,
    }


def attempt(given: dict[str, Any]) -> dict[str, str]:
    """The outcome of every act."""
    outcomes: dict[str, str] = {}
    for name, act in acts(given).items():
        try:
            act()
            outcomes[name] = "done"
        except OSError as error:
            outcomes[name] = errno.errorcode.get(error.errno or 0, str(error.errno))
        except Exception as error:
            outcomes[name] = type(error).__name__
    return outcomes


def main(given: dict[str, Any]) -> None:
    """Print the outcomes as one line of JSON."""
    print(json.dumps(attempt(given)))
