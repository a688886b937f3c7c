"""A seccomp filter that refuses what a container without user namespaces refuses: new namespaces and mounts."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}
_CALLS = {
    "x86_64": {
        "unshare": 272,
        "clone": 56,
        "clone3": 435,
        "setns": 308,
        "mount": 165,
        "umount2": 166,
        "pivot_root": 155,
    },
    "aarch64": {"unshare": 97, "clone": 220, "clone3": 435, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41},
}


def _line(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _program(numbers: dict[str, int]) -> bytes:
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    lines = [_line(load, 0, 0, 0)]  # the number of the call
    for name, number in numbers.items():
        if name in ("unshare", "clone"):  # refused only where the first argument asks for a namespace
            lines += [
                _line(equal, 0, 4, number),
                _line(load, 0, 0, 16),
                _line(any_bit, 0, 1, _NEW_NAMESPACES),
                _line(give, 0, 0, _ERRNO | errno.EPERM),
                _line(give, 0, 0, _ALLOW),
            ]
        else:
            refusal = errno.ENOSYS if name == "clone3" else errno.EPERM
            lines += [_line(equal, 0, 1, number), _line(give, 0, 0, _ERRNO | refusal)]
    return b"".join([*lines, _line(give, 0, 0, _ALLOW)])


def refuse_namespaces() -> None:
    """Refuse new namespaces and mounts to this process and all that it starts."""
    program = _program(_CALLS[platform.machine()])
    buffer = ctypes.create_string_buffer(program, len(program))

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    filter_ = Filter(len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filter_), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter of the simulated container was refused")
