"""Atomic files: what stands under its final name is whole."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Generator
from pathlib import Path

from foretrace.core.errors import StoreError


def replace_file(path: Path, data: bytes | memoryview) -> None:
    """Write `data` under a temporary name, sync it, and rename it to `path`; its folder is made if absent.

    Raises:
        StoreError: it cannot be written (no space, no right, ...); what stood at `path` still stands.
    """
    partial = partial_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StoreError(cannot_write(path, error)) from error
        raise


def partial_name(path: Path) -> Path:
    """Where `replace_file` writes until the file is whole; what is left there after kill -9 is garbage."""
    return path.with_name(f".{path.name}.partial")


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable; where a file system cannot, it is left to it."""
    with contextlib.suppress(OSError):
        place = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


def cannot_write(path: Path, error: OSError) -> str:
    """One line for a failed write."""
    return f"{path}: cannot write: {error.strerror or error}"


@contextlib.contextmanager
def only_writer(folder: Path) -> Generator[None]:
    """Hold the folder's lock; the system gives it back even after kill -9.

    Raises:
        StoreError: another process holds it, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise StoreError(cannot_write(folder, error)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(
                f"{folder}: another process is writing here; wait for it or choose another folder"
            ) from None
        yield


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
