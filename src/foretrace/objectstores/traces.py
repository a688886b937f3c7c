"""A traces folder in an object store: its manifest and segments are copied to a local folder, and what is sealed there
is published, segments first and the manifest last."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from foretrace.core.errors import StoreError
from foretrace.core.manifest import read_manifest
from foretrace.core.places import Address, check_place, find_address
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.objectstores.lock import StoreLock
from foretrace.objectstores.objects import ChangedObjectError, Objects, StoredObject, open_objects
from foretrace.objectstores.scratch import make_scratch

_MANIFEST = "manifest.json"
_TRIES = 5


class WritableFolder(NamedTuple):
    """A local traces folder, and what publishes it."""

    folder: Path
    publish: Callable[[], None] | None
    """To be called when the manifest was written, before segments are removed that it does not list any more; `None`
    where the folder is not a copy."""


@contextlib.contextmanager
def open_traces_for_writing(place: Path | str, progress: ProgressFunc = ignore_progress) -> Generator[WritableFolder]:
    """The traces folder itself, or for one in an object store a copy, for whose time its lock is held.

    Raises:
        StoreError: the store cannot be read or written, or another process writes there; what stands there is whole.
        UsageError: the library for such addresses is not installed.
    """
    address = find_address(place)
    if address is None:
        check_place(place, may_be_in_store=True)
        yield WritableFolder(Path(place), None)
        return
    objects = open_objects(address)
    with ExitStack() as stack:
        folder = stack.enter_context(make_scratch(address))
        publisher = _Publisher(objects, folder, stack, progress)
        yield WritableFolder(folder, publisher.publish)


@contextlib.contextmanager
def open_traces_for_reading(place: Path | str, progress: ProgressFunc = ignore_progress) -> Generator[Path]:
    """The traces folder itself, or a copy of one in an object store; no lock is needed for that.

    Raises:
        StoreError: the store cannot be read, or there are no traces.
        UsageError: the library for such addresses is not installed.
    """
    address = find_address(place)
    if address is None:
        check_place(place, may_be_in_store=True)
        yield Path(place)
        return
    objects = open_objects(address)
    with make_scratch(address) as folder:
        for tries_left in reversed(range(_TRIES)):
            stored = objects.get(_MANIFEST)
            if stored is None or not stored.data.strip():
                raise StoreError(f"{address}: is not a traces folder (it has no {_MANIFEST})")
            try:
                _download(objects, stored.data, folder, progress)
                break
            except FileNotFoundError as error:  # merged into others in the meantime
                if not tries_left:
                    raise StoreError(f"{error}: a segment that the manifest lists is missing") from None
        yield folder


class _Publisher:
    """Holds the lock of a traces folder, and brings what is new in its local copy into the store."""

    def __init__(self, objects: Objects, folder: Path, stack: ExitStack, progress: ProgressFunc) -> None:
        self._objects = objects
        self._folder = folder
        self._lock = StoreLock(objects)
        is_taken_over = self._lock.acquire()
        stack.callback(self._lock.release)
        stored = objects.get(_MANIFEST)
        self._version = stored and stored.version
        self._data = stored.data.strip() if stored else b""
        """The manifest that stands in the store."""
        self._segments: set[str] = set()
        """The segments that it lists."""
        names = objects.list_names()
        if self._data:
            self._segments = set(_download(objects, self._data, folder, progress))
        else:
            _refuse_strangers(objects.address, names)
        garbage = [name for name in names if name.startswith("shard-") and name not in self._segments]
        if is_taken_over or garbage:
            self._fence(stored)
            objects.remove(garbage)

    def _fence(self, stored: StoredObject | None) -> None:
        """Give the manifest another version, with the same content. The process that held the lock before may live
        all the same, and now cannot put a manifest there that lists segments which are removed here."""
        data = (stored.data if stored else b"") + b"\n"
        self._version = self._objects.put(_MANIFEST, data, instead_of=self._version)

    def publish(self) -> None:
        """Bring new segments into the store, then the manifest, and remove the segments that it lists no more."""
        self._lock.check()
        data = (self._folder / _MANIFEST).read_bytes()
        segments = {segment.path for segment in read_manifest(self._folder).segments}
        if data.strip() == self._data or not (segments or self._data):
            return
        try:
            self._objects.upload(self._folder, sorted(segments - self._segments))
            self._version = self._objects.put(_MANIFEST, data, instead_of=self._version)
        except ChangedObjectError as error:
            raise StoreError(
                f"{error}, so this one stops; what it published before is kept, run it again when the other is done"
            ) from None
        removed = sorted(self._segments - segments)
        self._data, self._segments = data.strip(), segments
        self._objects.remove(removed)


def _download(objects: Objects, manifest: bytes, folder: Path, progress: ProgressFunc) -> list[str]:
    """Copy the manifest and its segments; returns the names of these.

    Raises:
        FileNotFoundError: a segment is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MANIFEST).write_bytes(manifest)
    names = [segment.path for segment in read_manifest(folder).segments]
    missing = [name for name in names if not (folder / name).exists()]
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        progress(f"fetching {objects.address}", done, len(missing))

    objects.download(missing, folder, count)
    return names


def _refuse_strangers(address: Address, names: Sequence[str]) -> None:
    strangers = [name for name in names if not name.startswith((".", "shard-", _MANIFEST))]
    if strangers:
        raise StoreError(f"{address}: is not a traces folder and holds {strangers[0]!r}; choose another")
