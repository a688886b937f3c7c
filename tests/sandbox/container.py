"""A seccomp filter that refuses system calls by name, as a container's profile does; run as a program before another.

`python container.py unshare,mount -- command ...` runs the command under it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Sequence

from foretrace.sandbox.inside import seccomp, syscalls

NAMESPACES = ("unshare", "mount", "umount2", "pivot_root", "setns", "clone", "clone3")
LANDLOCK = ("landlock_create_ruleset",)


def refuse(names: Sequence[str]) -> None:
    """Refuse these calls with EPERM, `clone` only where it asks for a namespace, and `clone3` with ENOSYS."""
    op = seccomp._op
    code = [op(0x20, 0)]
    for name in names:
        number = syscalls.NUMBERS[name]
        if name == "clone":
            body = [
                op(0x20, 16),
                op(0x45, sum(syscalls.NEW_NAMESPACES.values()), 0, 1),
                op(0x06, 0x50000 | errno.EPERM),
                op(0x06, 0x7FFF0000),
            ]
            code += [op(0x15, number, 0, len(body)), *body]
        else:
            code += [op(0x15, number, 0, 1), op(0x06, 0x50000 | (errno.ENOSYS if name == "clone3" else errno.EPERM))]
    program = b"".join([*code, op(0x06, 0x7FFF0000)])
    syscalls.call("prctl", syscalls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    syscalls.call("seccomp", 1, 0, ctypes.byref(Program(len(program) // 8, ctypes.addressof(buffer))))


if __name__ == "__main__":
    refuse(sys.argv[1].split(","))
    os.execv(sys.argv[3], sys.argv[3:])
