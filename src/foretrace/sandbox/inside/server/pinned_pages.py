"""Memory that every child changes: found once, and then copied as a whole by each fork.

A child shares its parent's pages, and whoever of the two is first to write to one faults and gets a copy. A run writes
to some hundreds of pages, nearly the same ones each time, and their faults were a third of its CPU time. Pages that
are pinned for a device Linux copies while it forks (since 5.9), which is cheaper and spares both sides the faults. A
ring of io_uring pins pages that are registered with it; nothing else is done with the ring, and children lose it with
all descriptors but their own. Where a system refuses any of this, runs are slower and otherwise the same.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from foretrace.sandbox.inside.confine import syscalls
from foretrace.sandbox.inside.confine.syscalls import CallError
from foretrace.sandbox.inside.server.parent_connection import move_descriptor_up

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _OF_FILE, _UNSHARED = 1 << 63, 1 << 61, 1 << 56
_MAX_RANGES = 1024
_MAX_BYTES = 8 << 20
"""More than a run changes: then the changed ones were not told apart, and copying all would cost more than faults."""
_REGISTER_BUFFERS = 0
_PARAMETERS = 120
"""Bytes of what io_uring_setup is given."""


class MemoryPages:
    """The pages of this process' memory, as /proc shows them; to be made while there is a /proc."""

    def __init__(self) -> None:
        try:
            self._map = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self._areas = os.open("/proc/self/smaps", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._map = self._areas = -1

    def find_areas(self) -> list[tuple[int, int]]:
        """Numbers of the first page and the one after the last of private writable memory that children get."""
        found: list[tuple[int, int]] = []
        area: tuple[int, int] | None = None
        for words in map(str.split, self._read_areas().splitlines()):
            if words[0] == "VmFlags:" and area is not None and "wf" not in words:  # wiped in children
                found.append(area)
            elif not words[0].endswith(":"):
                first, end = (int(part, 16) // _PAGE for part in words[0].split("-"))
                area = (first, end) if words[1] == "rw-p" else None
        return found

    def find_read_only(self) -> list[tuple[int, int]]:
        """First address, and the one after the last, of read-only areas with memory of this process' own."""
        found: list[tuple[int, int]] = []
        area: tuple[int, int] | None = None
        for words in map(str.split, self._read_areas().splitlines()):
            if words[0] == "Anonymous:" and area is not None and words[1] != "0":
                found.append(area)
            elif not words[0].endswith(":"):
                first, end = (int(part, 16) for part in words[0].split("-"))
                area = (first, end) if words[1] == "r--p" else None
        return found

    def find_unshared(self, areas: list[tuple[int, int]]) -> set[int]:
        """Numbers of the pages in these areas that this process does not share with a child."""
        entries = [(first, os.pread(self._map, (end - first) * 8, first * 8)) for first, end in areas]
        found = set[int]()
        for first, part in entries:
            for number, (entry,) in enumerate(struct.iter_unpack("=Q", part), first):
                if entry & (_PRESENT | _OF_FILE | _UNSHARED) == _PRESENT | _UNSHARED:
                    found.add(number)
        return found

    def _read_areas(self) -> str:
        if self._areas < 0:
            return ""
        os.lseek(self._areas, 0, os.SEEK_SET)
        text = bytearray()
        while chunk := os.read(self._areas, 1 << 16):
            text += chunk
        return text.decode("ascii", "replace")

    def close(self) -> None:
        """Close the files of /proc."""
        for descriptor in (self._map, self._areas):
            if descriptor >= 0:
                os.close(descriptor)


def make_ring() -> int:
    """A descriptor by which memory can be pinned; -1 where the system refuses.

    To be made before new namespaces are entered: who may pin without a limit may so only there. For all others the
    limit on locked memory counts for all processes of a user.
    """
    try:
        return move_descriptor_up(syscalls.call("io_uring_setup", 1, ctypes.create_string_buffer(_PARAMETERS)))
    except CallError:
        return -1


def pin_pages(ring: int, pages: Iterable[int]) -> int:
    """Have these pages copied by each fork from now on; return how many bytes they are (0 where the system refuses).

    Args:
        ring: what `make_ring` gave; it must stay open.
    """
    ranges: list[list[int]] = []
    for number in sorted(pages):
        if not ranges or sum(ranges[-1]) != number * _PAGE:
            ranges.append([number * _PAGE, 0])
        ranges[-1][1] += _PAGE
    del ranges[_MAX_RANGES:]
    size = sum(length for _, length in ranges)
    if ring < 0 or not 0 < size <= _MAX_BYTES:
        return 0
    ranges_bytes = b"".join(struct.pack("=QQ", *each) for each in ranges)
    try:
        syscalls.call("io_uring_register", ring, _REGISTER_BUFFERS, ranges_bytes, len(ranges))
    except CallError:
        return 0
    return size
