"""A single file in an object store: written as a local one, and published as one object."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

from foretrace.core.errors import StoreError
from foretrace.core.places import check_place, find_address
from foretrace.objectstores.objects import open_objects
from foretrace.objectstores.scratch import make_scratch


class WritableFile(NamedTuple):
    """A local file, and what publishes it when it is written."""

    path: Path | None
    """`None` where no file was asked for."""
    replaces: bool
    publish: Callable[[], None]


@contextlib.contextmanager
def open_file_for_writing(place: Path | str | None) -> Generator[WritableFile]:
    """The file itself, or for one in an object store a local file that is published in the place of what stands there.

    Raises:
        StoreError: the store cannot be read or written, or another process writes there.
        UsageError: the library for such addresses is not installed.
    """
    address = None if place is None else find_address(place)
    if address is None:
        if place is not None:
            check_place(place, may_be_in_store=True)
        path = None if place is None else Path(place)
        yield WritableFile(path, path is not None and path.is_file(), lambda: None)
        return
    if not address.parent.path:
        raise StoreError(f"{address}: is a bucket; name a file in it")
    objects = open_objects(address.parent)
    there = objects.get(address.name)
    with make_scratch(address.parent) as folder:
        folder.mkdir(parents=True, exist_ok=True)

        def publish() -> None:
            objects.put(address.name, (folder / address.name).read_bytes(), instead_of=there and there.version)

        yield WritableFile(folder / address.name, there is not None, publish)
