"""One output file, written whole or not at all, compressed by its suffix."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

from foretrace.core.errors import StoreError, UsageError
from foretrace.core.files import cannot_write


@contextlib.contextmanager
def atomic_file(path: Path) -> Generator[BinaryIO, None, None]:
    """A file to write to, which takes the place of `path` when the block ends well.

    Raises:
        StoreError: it cannot be written, or another process is writing it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(None, "is a folder, name a file")
        partial = path.with_name(f".{path.name}.partial")
        file = _only_writer(partial, path)
    except OSError as error:
        raise StoreError(cannot_write(path, error)) from error
    try:
        yield file
        file.flush()
        os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        # pyarrow raises OSErrors without a number for files that it cannot read: those are not ours.
        if isinstance(error, OSError) and error.errno is not None:
            raise StoreError(cannot_write(path, error)) from error
        raise
    finally:
        # Closing flushes once more, which fails once more on a full disk.
        with contextlib.suppress(OSError):
            file.close()


def _only_writer(partial: Path, path: Path) -> BinaryIO:
    while True:
        file = partial.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise StoreError(f"{path}: another process is writing it; wait for it") from None
        # Whoever held the lock may have moved the file to its place in the meantime.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), partial.stat()):
                file.truncate(0)
                return file
        file.close()


@contextlib.contextmanager
def compressed(file: BinaryIO, name: str) -> Generator[Any, None, None]:
    """A stream into `file` that compresses as the suffix of `name` says (.gz, .zst), else `file` itself."""
    if name.endswith(".gz"):
        import gzip

        # No name and no time inside: the same content gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as stream:
            yield stream
    elif name.endswith(".zst"):
        import zstandard

        with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as stream:
            yield stream
    else:
        yield file


def place(path: Path | str, replaced: bool) -> str:
    """The name of a file that was written, and whether there was another by that name."""
    return f"{path} (the file that was there is replaced)" if replaced else str(path)


def check_outside(path: Path, traces: Path) -> None:
    """Refuse an output that is a folder, or inside the traces folder, whose files are its writer's alone."""
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; name a file in it, e.g. {path / f'{traces.resolve().name}.jsonl'}")
    if path.resolve().is_relative_to(traces.resolve()):
        raise UsageError(f"{path}: lies inside the traces folder; choose a place outside of {traces}")
