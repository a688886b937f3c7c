"""Local folders in which what lies in an object store is worked on."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path

from foretrace.core.errors import ForetraceError, Setting, UsageError
from foretrace.core.places import Address


@contextlib.contextmanager
def make_scratch(address: Address) -> Generator[Path]:
    """A folder that stands for one in a store until the block ends; it lies where `TMPDIR` says, and is not made yet.
    Errors that name it name the address.

    Raises:
        UsageError: the address could not be the name of a folder.
    """
    if {".", "..", ""} & set(address.path.split("/")):
        raise UsageError(f"{address}: has an empty part or one of only dots; give a plain name")
    with tempfile.TemporaryDirectory(prefix="foretrace-", ignore_cleanup_errors=True) as top:
        folder = Path(top, address.scheme, address.path)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield folder
        except ForetraceError as error:
            _rename(error, str(Path(top, address.scheme)), f"{address.scheme}:/")
            raise


def _rename(error: ForetraceError, local: str, shown: str) -> None:
    def change(part: str | Setting) -> str | Setting:
        if isinstance(part, str):
            return part.replace(local, shown)
        return Setting(part.name, part.value.replace(local, shown)) if isinstance(part.value, str) else part

    error.parts = tuple(change(part) for part in error.parts)
    error.args = (str(error).replace(local, shown),)
