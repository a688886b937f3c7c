"""What both parents of snippets have to hide, and how they fill in a snippet's `WORLD`."""

from __future__ import annotations

import ctypes
import fcntl
import os

from hostile import tree

SECRET_FD, FOLDER_FD = 40, 41
"""Inheritable descriptors of a parent: a file with a secret, and the decoy folder."""
_kept: list[ctypes.Array[ctypes.c_char]] = []


def take(descriptors: str) -> None:
    """Begin as a parent: put what was passed (two numbers, by comma) at the known descriptors; die with one's own."""
    tree.die_with_parent()
    given = [int(word) for word in descriptors.split(",")]
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in given]  # out of each other's way
    os.closerange(3, 100)
    for descriptor, target in zip(high, (SECRET_FD, FOLDER_FD), strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)


def hold(secret: str) -> None:
    """Keep a secret in this process's memory, at an address that snippets are told."""
    _kept.append(ctypes.create_string_buffer(secret.encode()))


def fill(code: str) -> str:
    """The code with the pid of this process and the address of its secret."""
    address = ctypes.addressof(_kept[-1]) if _kept else 0
    return code.replace("'@PARENT@'", str(os.getpid())).replace("'@ADDRESS@'", str(address))
