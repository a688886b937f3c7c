"""One writer of a folder in an object store: a lock object, held while it is renewed."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import StoreError
from foretrace.objectstores.objects import ChangedObjectError, Objects

LOCK = ".lock"
LEASE_S = 120.0
"""A lock that was not renewed for so long is free."""


class _Owner(msgspec.Struct, frozen=True):
    """Who holds a lock, as the lock object says it."""

    host: str
    pid: int
    space: str
    """The boot of the machine, and the space of process numbers that `pid` is of."""
    token: str
    renewed: str
    """ISO 8601, for people: whether a lock is old is asked of the store's own clock."""


class StoreLock:
    """The lock of a folder, held from `acquire` to `release`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._me = _Owner(socket.gethostname(), os.getpid(), _name_process_space(), secrets.token_hex(8), "")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._lost = False
        self._version = ""

    def acquire(self) -> bool:
        """Take the lock, and renew it from time to time; whether it was taken from a process that is gone.

        Raises:
            StoreError: another process holds it.
        """
        there = self._objects.get(LOCK)
        if there is not None:
            self._check_free(there.data)
        try:
            self._version = self._objects.put(LOCK, self._write(), instead_of=there and there.version)
        except ChangedObjectError:
            raise StoreError(
                f"{self._objects.address}: another process has just begun to write here; wait for it or choose another "
                "folder"
            ) from None
        self._thread.start()
        return there is not None

    def check(self) -> None:
        """Refuse to go on where the lock was lost.

        Raises:
            StoreError: another process has taken it.
        """
        if self._lost:
            raise StoreError(
                f"{self._objects.address}: another process took over, since this one had not answered for "
                f"{LEASE_S:.0f} s; what this one published before is kept, run it again when the other is done"
            )

    def release(self) -> None:
        """Give the lock back; what fails here is made good by its end."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(StoreError):
            there = None if self._lost else self._objects.get(LOCK)
            if there is not None and there.version == self._version:
                self._objects.remove([LOCK])

    def _renew(self) -> None:
        while not self._ended.wait(LEASE_S / 4):
            try:
                self._version = self._objects.put(LOCK, self._write(), instead_of=self._version)
            except ChangedObjectError:
                self._lost = True
                return
            except StoreError:
                continue  # the store may answer again before the lock is free

    def _write(self) -> bytes:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return msgspec.json.encode(msgspec.structs.replace(self._me, renewed=now)) + b"\n"

    def _check_free(self, data: bytes) -> None:
        try:
            owner = msgspec.json.decode(data, type=_Owner)
        except msgspec.DecodeError:
            owner = None
        if owner is not None and _is_gone(owner):
            return
        age = self._objects.measure_age(LOCK)
        if age is None or age > LEASE_S:
            return
        who = "another process" if owner is None else f"process {owner.pid} on {owner.host}"
        raise StoreError(
            f"{self._objects.address}: {who} is writing here; wait for it or choose another folder (if it was killed, "
            f"the lock is free in {LEASE_S - age:.0f} s)"
        )


def _is_gone(owner: _Owner) -> bool:
    """Whether the owner was a process of this machine that is no more."""
    if (owner.host, owner.space) != (socket.gethostname(), _name_process_space()):
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _name_process_space() -> str:
    parts: list[Any] = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts) if len(parts) == 2 else secrets.token_hex(8)
