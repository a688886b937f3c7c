"""A dataset in an object store: built in a local folder, and published whole, its manifest last."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

from foretrace.core.errors import BuildError, StoreError
from foretrace.core.places import check_place, find_address
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.objectstores.lock import LOCK, StoreLock
from foretrace.objectstores.objects import ChangedObjectError, Objects, open_objects
from foretrace.objectstores.scratch import make_scratch

_MANIFEST = "manifest.json"
_CARD = "README.md"


class DatasetFolder(NamedTuple):
    """A local folder for a dataset, and what publishes it when it is built."""

    folder: Path
    publish: Callable[[], None]


@contextlib.contextmanager
def open_dataset_for_writing(
    place: Path | str, *, overwrite: bool = False, progress: ProgressFunc = ignore_progress
) -> Generator[DatasetFolder]:
    """The dataset's folder itself, or for one in an object store a local folder, for whose time the lock there is held.
    What was not published when the block ends is gone.

    Raises:
        BuildError: there is something at the address already.
        StoreError: the store cannot be read or written, or another process writes there.
        UsageError: the library for such addresses is not installed.
    """
    address = find_address(place)
    if address is None:
        check_place(place, may_be_in_store=True)
        yield DatasetFolder(Path(place), lambda: None)
        return
    objects = open_objects(address)
    _check_free(objects, overwrite=overwrite)
    lock = StoreLock(objects)
    lock.acquire()
    try:
        fence = _remove_remnants(objects, overwrite=overwrite)
        with make_scratch(address) as folder:
            yield DatasetFolder(folder, lambda: _publish(objects, folder, lock, fence, progress))
    finally:
        lock.release()


def _remove_remnants(objects: Objects, *, overwrite: bool) -> str | None:
    """Remove what a process that was killed had published without a manifest; returns the version of the empty manifest
    by which it cannot put its own there, should it live all the same."""
    remnants = _check_free(objects, overwrite=overwrite)  # again: now nobody else writes
    if not remnants:
        return None
    there = objects.get(_MANIFEST)
    fence = objects.put(_MANIFEST, (there.data if there else b"") + b"\n", instead_of=there and there.version)
    objects.remove([name for name in remnants if name not in (LOCK, _MANIFEST)])
    return fence


def _check_free(objects: Objects, *, overwrite: bool) -> list[str]:
    """Names at the address, which are those of an unfinished dataset.

    Raises:
        BuildError: there is something else.
    """
    names = objects.list_names()
    if not names or (LOCK in names and _MANIFEST not in names):
        return [name for name in names if name != LOCK]
    if _MANIFEST in names and (there := objects.get(_MANIFEST)) is not None and not there.data.strip():
        return names
    remedy = " (in a store a dataset is not overwritten: readers would see half of each)" if overwrite else ""
    raise BuildError(f"{objects.address}: holds {names[0]!r}; choose another folder, or remove it there{remedy}")


def _publish(objects: Objects, folder: Path, lock: StoreLock, fence: str | None, progress: ProgressFunc) -> None:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    files = [name for name in names if name not in (_CARD, _MANIFEST)]
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        progress(f"publishing {objects.address}", done, len(files))

    try:
        objects.upload(folder, files, count)
        objects.upload(folder, [_CARD])  # `datasets` goes by the card, foretrace by the manifest
        lock.check()
        objects.put(_MANIFEST, (folder / _MANIFEST).read_bytes(), instead_of=fence)
    except ChangedObjectError as error:
        raise StoreError(f"{error}, so this one stops; build into another folder") from None
