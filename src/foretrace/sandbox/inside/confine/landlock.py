"""Landlock: which files a process may read and write; also denies TCP and signals to processes outside."""

from __future__ import annotations

import ctypes
import os
import stat
import struct

from foretrace.sandbox.inside.confine import syscalls

_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 2, 4, 8
_FIRST_MISSING = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 4: 1 << 15}
"""By version of the interface: the first file access right that it does not have."""
_ALL = 1 << 16
_DEVICE_IOCTL = 1 << 15
_RULE_PATH = 1
_O_PATH_CLOEXEC = getattr(os, "O_PATH", 0) | os.O_CLOEXEC


def find_version() -> int:
    """Version of the kernel's interface.

    Raises:
        CallError: the kernel has no Landlock, or it is disabled.
    """
    return syscalls.call("landlock_create_ruleset", None, 0, 1)


def make_ruleset(readable: list[str], listable: list[str], writable: list[str]) -> int:
    """Make rules, and return their descriptor.

    Everything is denied except reading below `readable`, listing below `listable`, and all access below `writable`.

    Raises:
        CallError: the kernel refused.
    """
    known = find_version()
    files = _FIRST_MISSING.get(known, _ALL) - 1
    network = 3 if known >= 4 else 0
    scoped = 3 if known >= 6 else 0  # abstract sockets and signals
    attributes = struct.pack("=QQQ", files, network, scoped)
    size = 8 if known < 4 else 16 if known < 6 else 24
    handle = syscalls.call("landlock_create_ruleset", attributes, size, 0)
    os.set_inheritable(handle, False)
    for path in readable:
        _allow(handle, path, (_READ | _READ_DIR) & files)
    for path in listable:
        _allow(handle, path, _READ_DIR & files)
    for path in writable:
        _allow(handle, path, files & ~(_EXECUTE | _DEVICE_IOCTL))
    return handle


def _allow(handle: int, path: str, rights: int) -> None:
    try:
        found = os.open(path, _O_PATH_CLOEXEC)
    except OSError:
        return  # a path that does not exist needs no rule
    try:
        if not stat.S_ISDIR(os.fstat(found).st_mode):
            rights &= _WRITE | _READ | (1 << 14)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, found), 12)
        syscalls.call("landlock_add_rule", handle, _RULE_PATH, ctypes.byref(rule), 0)
    finally:
        os.close(found)
