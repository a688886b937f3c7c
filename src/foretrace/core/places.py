"""Places as a user names them: a path on this machine, or an address in an object store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from foretrace.core.errors import UsageError

SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "hf", "memory")
_ADDRESS = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}([^/].*)", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""The start of an address, up to its first slash. A Windows drive does not match: it is one letter."""


class Address(NamedTuple):
    """A folder, or a file, in an object store."""

    scheme: str
    path: str
    """Bucket and prefix, without a slash at either end."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    @property
    def parent(self) -> Address:
        return Address(self.scheme, self.path.rpartition("/")[0])

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def find_address(place: Path | str) -> Address | None:
    """The address in a text, or in a `Path` made from it (which has one slash where the address has two); `None` for a
    place on this machine."""
    found = _ADDRESS.fullmatch(str(place))
    return Address(found[1], found[2].rstrip("/")) if found else None


def write_place(place: Path | str) -> str:
    """A place as it is shown: the address with its two slashes, or the local path."""
    return str(find_address(place) or place)


def check_place(place: Path | str, *, may_be_in_store: bool = False) -> None:
    """Refuse an address where a path is needed: otherwise a local folder of that name would be created."""
    start = str(place).partition("/")[0]
    scheme, colon, rest = start.partition(":")
    if not _SCHEME.fullmatch(start) and not (colon and scheme in SCHEMES):
        return
    if find_address(place) is None:
        if scheme in SCHEMES:
            wrong = f"{place}: is not an address" if rest else f"{scheme}://: names no bucket"
            raise UsageError(f"{wrong}; write {scheme}://BUCKET/FOLDER")
        raise UsageError(f"{place}: is not a path of this machine, and addresses begin with {'://, '.join(SCHEMES)}://")
    if not may_be_in_store:
        raise UsageError(
            f"{find_address(place)}: must be a path of this machine; copy it from the object store first. Only "
            "`import`, `label` and `build` read and write object stores"
        )


def make_local_path(place: Path | str) -> Path:
    check_place(place)
    return Path(place)
