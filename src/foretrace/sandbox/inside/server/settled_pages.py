"""Memory that nobody writes any more, but was written once: handed to a file, so that forks need not look after it.

The dynamic loader writes addresses into a page or two of each library and then makes them read-only. For the kernel
that is memory of the process' own: each fork records anew who shares it, area by area, and the longer the line of forks
(as in a session, where each state is a fork of the one before it) the dearer. The same bytes as part of a file cost a
fork nothing. Where a system refuses any of this, forks are slower and otherwise the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os

from foretrace.sandbox.inside.confine import syscalls
from foretrace.sandbox.inside.confine.syscalls import CallError
from foretrace.sandbox.inside.server.pinned_pages import MemoryPages

_MAY_MOVE_TO = 3  # MREMAP_MAYMOVE | MREMAP_FIXED
_MAX_AREA = 1 << 20


def settle_pages(pages: MemoryPages) -> int:
    """Hand the read-only memory of this process' own to a file that only this process knows; return how many bytes."""
    settled = 0
    with contextlib.suppress(OSError, AttributeError):  # macOS has no such files
        areas = [(start, end - start) for start, end in pages.find_read_only() if end - start <= _MAX_AREA]
        handle = os.memfd_create("settled")
        try:
            for start, size in areas:
                os.pwrite(handle, ctypes.string_at(start, size), settled)
                _replace_area(handle, settled, start, size)
                settled += size
        finally:
            os.close(handle)
    return settled


def _replace_area(handle: int, offset: int, start: int, size: int) -> None:
    """Put a part of a file in the place of an area of memory that has the same bytes, in one step.

    Raises:
        CallError: the kernel refused, and all is as it was.
    """
    mapped = syscalls.call("mmap", 0, size, mmap.PROT_READ, mmap.MAP_PRIVATE, handle, offset)
    try:
        syscalls.call("mremap", mapped, size, size, _MAY_MOVE_TO, start)
    except CallError:
        syscalls.call("munmap", mapped, size)
        raise
