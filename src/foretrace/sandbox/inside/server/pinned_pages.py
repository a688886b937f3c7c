"""Have each fork copy at once the memory that a child is sure to change, which saves an eighth of a run's CPU time.

A child shares its parent's pages until one of the two writes to them; then the page is copied, at the price of a fault.
A run writes to nearly the same hundreds of pages each time. Pages that are pinned for a device Linux copies while it
forks (since 5.9), and a ring of io_uring pins what is registered with it; nothing else is done with the ring, and
children do not have it. Where a system refuses any of this, runs are slower and otherwise the same.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
from typing import Any, NoReturn

from foretrace.sandbox.inside import child
from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.confine import syscalls
from foretrace.sandbox.inside.confine.syscalls import CallError
from foretrace.sandbox.inside.server.parent_connection import move_descriptor_up
from foretrace.sandbox.inside.wire.frames import pack_frame

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _OF_FILE, _UNSHARED = 1 << 63, 1 << 61, 1 << 56
_MAX_RANGES = 1024
_MAX_BYTES = 8 << 20
"""More than a run changes: then the changed ones were not told apart, and copying all would cost more than faults."""
_REGISTER_BUFFERS = 0
_PARAMETERS = 120
"""Bytes of what io_uring_setup is given."""


def make_ring() -> int:
    """A descriptor by which memory can be pinned; -1 where the system refuses.

    To be made before new namespaces are entered: who may pin without a limit may so only there.
    """
    try:
        return move_descriptor_up(syscalls.call("io_uring_setup", 1, ctypes.create_string_buffer(_PARAMETERS)))
    except CallError:
        return -1


class PinnedPages:
    """Finds and pins pages of this process; to be made while there is a /proc.

    Args:
        ring: what `make_ring` gave; it must stay open.
    """

    def __init__(self, ring: int) -> None:
        self._ring = ring
        try:
            self._table = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            self._areas = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._ring = -1

    def pin_changed(self, confinement: Confinement, requests: list[dict[str, Any]]) -> int:
        """Pin what children change that serve these requests, and return how many bytes that is."""
        if self._ring < 0:
            return 0
        pages = set[int]().union(*(self._find_changed(confinement, request) for request in requests))
        ranges: list[list[int]] = []
        for number in sorted(pages):
            if not ranges or sum(ranges[-1]) != number * _PAGE:
                ranges.append([number * _PAGE, 0])
            ranges[-1][1] += _PAGE
        del ranges[_MAX_RANGES:]
        size = sum(length for _, length in ranges)
        if not 0 < size <= _MAX_BYTES:
            return 0
        try:
            packed = b"".join(struct.pack("=QQ", *each) for each in ranges)
            syscalls.call("io_uring_register", self._ring, _REGISTER_BUFFERS, packed, len(ranges))
        except CallError:
            return 0
        return size

    def _find_changed(self, confinement: Confinement, request: dict[str, Any]) -> set[int]:
        """The numbers of the pages that a child changes until its end; this process changes as few as it can."""
        ours, theirs = socket.socketpair()
        ended, at_end = os.pipe()
        null = os.open("/dev/null", os.O_RDWR)
        areas = self._read_areas()
        ours.sendall(pack_frame(request))
        pid = os.fork()
        if pid == 0:
            descriptors = (null, null, at_end, theirs.fileno())
            child.main(confinement, request["mode"], [(resource.RLIMIT_CORE, 0, 0)], descriptors, leave=_wait_for_end)
        os.close(at_end)
        # A child that has ended shares nothing: then all pages would count as changed.
        changed = self._find_unshared(areas) if os.read(ended, 16) == b"." else set[int]()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        theirs.close()
        ours.close()
        os.close(ended)
        os.close(null)
        return changed

    def _read_areas(self) -> list[tuple[int, int]]:
        """First page, and the one after the last, of each area of private writable memory."""
        os.lseek(self._areas, 0, os.SEEK_SET)
        text = b""
        while chunk := os.read(self._areas, 1 << 16):
            text += chunk
        lines = [line.split() for line in text.splitlines()]
        bounds = [words[0].split(b"-") for words in lines if words[1] == b"rw-p"]
        return [(int(first, 16) // _PAGE, int(end, 16) // _PAGE) for first, end in bounds]

    def _find_unshared(self, areas: list[tuple[int, int]]) -> set[int]:
        """The pages in these areas that this process does not share with a child."""
        entries = [(first, os.pread(self._table, (end - first) * 8, first * 8)) for first, end in areas]
        flags = _PRESENT | _OF_FILE | _UNSHARED
        return {
            number
            for first, part in entries
            for number, (entry,) in enumerate(struct.iter_unpack("=Q", part), first)
            if entry & flags == _PRESENT | _UNSHARED
        }

    def close(self) -> None:
        """Close the files of /proc."""
        if self._ring >= 0:
            os.close(self._table)
            os.close(self._areas)


def _wait_for_end(code: int) -> NoReturn:
    """What a child does in the place of its exit: say that it has come so far, and wait to be killed."""
    os.write(2, b".")
    while True:
        signal.pause()
