"""Addresses of folders in object stores, as they are given in the place of a local folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "hf", "memory")
_ADDRESS = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}([^/].*)", re.DOTALL)


class Address(NamedTuple):
    """A folder, or a file, in an object store."""

    scheme: str
    path: str
    """Bucket and prefix, without a slash at either end."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    @property
    def parent(self) -> Address:
        """The folder that it lies in."""
        return Address(self.scheme, self.path.rpartition("/")[0])

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


def find_address(place: Path | str) -> Address | None:
    """The address that a text, or a `Path` made of it, stands for; `None` for a place on this machine. A `Path` has one
    slash where the address has two."""
    found = _ADDRESS.fullmatch(str(place))
    return Address(found[1], found[2].rstrip("/")) if found else None


def write_place(place: Path | str) -> str:
    """A place as it is to be shown: the address with its two slashes, or the local path."""
    return str(find_address(place) or place)
