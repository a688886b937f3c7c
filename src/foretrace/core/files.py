"""Atomic files: a file under its final name is always complete."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

from foretrace.core.errors import StoreError, UsageError
from foretrace.core.places import write_place


@contextlib.contextmanager
def atomic_file(path: Path) -> Generator[BinaryIO]:
    """A file to write to, which replaces `path` if the block ends without an error. Its folder is created if absent.

    The bytes go to a temporary name next to it, are synced, and are renamed.

    Raises: StoreError: the file cannot be written, or another process is writing it. What was at `path` is still there.
    """
    partial = make_partial_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(None, "is a folder, name a file")
        file = open_locked(partial, f"{path}: another process is writing it; wait for it")
        file.truncate(0)  # leftovers of a killed writer
    except OSError as error:
        raise StoreError(describe_write_error(path, error)) from error
    try:
        yield file
        file.flush()
        os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        # pyarrow raises OSErrors without a number for files that it cannot read; those are not write errors.
        if isinstance(error, OSError) and error.errno is not None:
            raise StoreError(describe_write_error(path, error)) from error
        raise
    finally:
        # Closing flushes again, which fails again on a full disk.
        with contextlib.suppress(OSError):
            file.close()


def replace_file(path: Path, data: bytes | memoryview) -> None:
    """Write `data` to `path`, completely or not at all (see `atomic_file`)."""
    with atomic_file(path) as file:
        file.write(data)


def make_partial_name(path: Path) -> Path:
    """Where `atomic_file` writes until the file is complete. What is left there after kill -9 is garbage."""
    return path.with_name(f".{path.name}.partial")


def make_own_name(path: Path) -> Path:
    """A partial name that no other process uses, for files that two processes may write at the same time: a job is run
    again if its worker was lost, or seems to be. Rename it to `path` when the file is complete."""
    return make_partial_name(path.with_name(f"{path.name}.{secrets.token_hex(6)}"))


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable, on file systems that support it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def describe_write_error(path: Path, error: OSError) -> str:
    return f"{path}: cannot write: {error.strerror or error}"


@contextlib.contextmanager
def only_writer(folder: Path) -> Generator[None]:
    """Hold the folder's lock, which the system releases even after kill -9; another holder is a StoreError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = f"{folder}: another process is writing here; wait for it or choose another folder"
        file = open_locked(folder / ".lock", taken)
    except OSError as error:
        raise StoreError(describe_write_error(folder, error)) from error
    with file:
        yield


def open_locked(path: Path, taken: str) -> BinaryIO:
    """The file, locked and open for appending; a StoreError with the text `taken` if another process holds the lock."""
    while True:
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise StoreError(taken) from None
        # The previous holder of the lock may have renamed or removed the file in the meantime.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def open_compressed(file: BinaryIO, name: str) -> Generator[Any]:
    """A stream into `file` that compresses according to the suffix of `name` (.gz, .zst), else `file` itself."""
    if name.endswith(".gz"):
        import gzip

        # No name and no time stamp, so that the same content gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as stream:
            yield stream
    elif name.endswith(".zst"):
        import zstandard

        with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as stream:
            yield stream
    else:
        yield file


def describe_output(path: Path | str, replaced: bool) -> str:
    """The name of a written file, and whether it replaced another."""
    return f"{path} (the file that was there is replaced)" if replaced else str(path)


def check_suffix(path: Path, suffix: str) -> None:
    """Check before any work that the name of a file to write says its format."""
    if path.suffix != suffix:
        raise UsageError(f"{write_place(path)}: name it {suffix}, the format that is written")


def refuse_inside_folder(path: Path, traces: Path, *, may_be_folder: bool = False) -> None:
    """Refuse an output that is a folder or is inside the traces folder, whose files only its writer may touch."""
    if path.is_dir() and not may_be_folder:
        raise StoreError(f"{path}: is a folder; name a file in it, e.g. {path / f'{traces.resolve().name}.jsonl'}")
    if path.resolve().is_relative_to(traces.resolve()):
        raise UsageError(
            f"{write_place(path)}: lies inside the traces folder; choose a place outside of {write_place(traces)}"
        )
