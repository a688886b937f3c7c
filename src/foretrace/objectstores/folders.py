"""Traces, datasets and files in an object store: used in a local folder, and published with the manifest last.

There is no lock. A manifest is only replaced if it is still the version that was read. So if two processes write to one
folder at the same time, one fails when it publishes, and what it would have listed is never visible.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

from foretrace.core.errors import BuildError, ForetraceError, Setting, StoreError, UsageError
from foretrace.core.manifest import read_manifest
from foretrace.core.places import Address, check_place, find_address
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.objectstores.objects import ChangedObjectError, Objects, StoredObject, open_objects

_MANIFEST = "manifest.json"
_CARD = "README.md"
_TRIES = 5


class WritableFolder(NamedTuple):
    """A local folder to write to, and the function that publishes it."""

    folder: Path
    publish: Callable[[], None] | None
    """For traces, call it after the manifest was written, before the segments that it no longer lists are removed; for
    a dataset, once it is built. `None` if the folder is not a copy."""


class WritableFile(NamedTuple):
    """A local file, and the function that publishes it once it is written."""

    path: Path | None
    replaces: bool = False
    publish: Callable[[], None] = lambda: None


@contextlib.contextmanager
def open_traces_for_writing(place: Path | str, progress: ProgressFunc = ignore_progress) -> Generator[WritableFolder]:
    """The traces folder itself, or a copy of one in an object store."""
    with _open_place(place) as (folder, objects):
        yield WritableFolder(folder, None if objects is None else _Publisher(objects, folder, progress).publish)


@contextlib.contextmanager
def open_traces_for_reading(place: Path | str, progress: ProgressFunc = ignore_progress) -> Generator[Path]:
    """The traces folder itself, or a copy of one in an object store."""
    with _open_place(place) as (folder, objects):
        if objects is not None:
            _download_current(objects, folder, progress)
        yield folder


@contextlib.contextmanager
def open_dataset_for_writing(
    place: Path | str, *, overwrite: bool = False, progress: ProgressFunc = ignore_progress
) -> Generator[WritableFolder]:
    """The dataset's folder itself, or a local folder for one in an object store, where an empty manifest reserves the
    place. What is not published when the block ends is lost."""
    with _open_place(place) as (folder, objects):
        if objects is None:
            yield WritableFolder(folder, None)
            return
        version = _reserve(objects, overwrite=overwrite)
        try:
            yield WritableFolder(folder, lambda: _publish_dataset(objects, folder, version, progress))
        finally:
            with contextlib.suppress(StoreError):  # the next build removes what is left
                there = objects.get(_MANIFEST)
                if there is not None and there.version == version and objects.list_names() == [_MANIFEST]:
                    objects.remove([_MANIFEST])


@contextlib.contextmanager
def open_file_for_writing(place: Path | str | None) -> Generator[WritableFile]:
    """The file itself, or a local file for one in an object store; publishing it replaces what is there."""
    if place is None:
        yield WritableFile(None)
        return
    address = find_address(place)
    if address is not None and not address.parent.path:
        raise StoreError(f"{address}: is a bucket; name a file in it")
    with _open_place(place if address is None else str(address.parent)) as (folder, objects):
        if address is None or objects is None:
            yield WritableFile(folder, folder.is_file())
            return
        file, there = folder / address.name, objects.get(address.name)
        folder.mkdir(parents=True, exist_ok=True)

        def publish() -> None:
            objects.put(address.name, file.read_bytes(), instead_of=there and there.version)

        yield WritableFile(file, there is not None, publish)


@contextlib.contextmanager
def _open_place(place: Path | str) -> Generator[tuple[Path, Objects | None]]:
    """The folder itself, or a local folder that stands in for one in a store, and the objects there."""
    address = find_address(place)
    if address is None:
        check_place(place, may_be_in_store=True)
        yield Path(place), None
        return
    objects = open_objects(address)
    with make_scratch(address) as folder:
        yield folder, objects


@contextlib.contextmanager
def make_scratch(address: Address) -> Generator[Path]:
    """A local folder (in `TMPDIR`, not there yet) that stands in for one in a store until the block ends. Errors that
    mention it show the address instead."""
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


class _Publisher:
    """Uploads what is new in the local copy of a traces folder to the store."""

    def __init__(self, objects: Objects, folder: Path, progress: ProgressFunc) -> None:
        self._objects, self._folder = objects, folder
        stored, names = objects.get(_MANIFEST), objects.list_names()
        self._version = stored and stored.version
        self._data = stored.data.strip() if stored else b""
        """The manifest that is in the store."""
        self._segments: set[str] = set()
        if self._data:
            self._segments = set(_download(objects, self._data, folder, progress))
        elif strangers := [name for name in names if not name.startswith(("shard-", _MANIFEST))]:
            raise StoreError(
                f"{objects.address}: is not a traces folder (it contains {strangers[0]!r}); choose another folder"
            )
        if garbage := [name for name in names if name.startswith("shard-") and name not in self._segments]:
            self._version = _fence(objects, stored)
            objects.remove(garbage)

    def publish(self) -> None:
        """Upload new segments, then the manifest, and remove the segments that it no longer lists."""
        data = (self._folder / _MANIFEST).read_bytes()
        segments = {segment.path for segment in read_manifest(self._folder).segments}
        if data.strip() == self._data or not (segments or self._data):
            return
        with _report_changes("what it published before is kept, run it again when the other is done"):
            self._objects.upload(self._folder, sorted(segments - self._segments))
            self._version = self._objects.put(_MANIFEST, data, instead_of=self._version)
        removed = sorted(self._segments - segments)
        self._data, self._segments = data.strip(), segments
        self._objects.remove(removed)


@contextlib.contextmanager
def _report_changes(remedy: str) -> Generator[None]:
    try:
        yield
    except ChangedObjectError as error:
        raise StoreError(f"{error}, so this one stops; {remedy}") from None


def _fence(objects: Objects, stored: StoredObject | None) -> str:
    """Give the manifest a new version with the same content. A process that read the old version can then no longer
    publish a manifest that lists what is about to be removed."""
    return objects.put(_MANIFEST, (stored.data if stored else b"") + b"\n", instead_of=stored and stored.version)


def _download(objects: Objects, manifest: bytes, folder: Path, progress: ProgressFunc) -> list[str]:
    """Download the manifest and its segments; returns the names of the segments. FileNotFoundError if one is
    missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MANIFEST).write_bytes(manifest)
    names = [segment.path for segment in read_manifest(folder).segments]
    missing = [name for name in names if not (folder / name).exists()]
    objects.download(missing, folder, _count_to(len(missing), f"fetching {objects.address}", progress))
    return names


def _download_current(objects: Objects, folder: Path, progress: ProgressFunc) -> None:
    """Download the traces that the manifest lists now, which another process may replace meanwhile."""
    for tries_left in reversed(range(_TRIES)):
        stored = objects.get(_MANIFEST)
        if stored is None or not stored.data.strip():
            raise StoreError(f"{objects.address}: is not a traces folder (it has no {_MANIFEST})")
        try:
            _download(objects, stored.data, folder, progress)
            return
        except FileNotFoundError as error:  # the segment was merged with others in the meantime
            if not tries_left:
                raise StoreError(f"{error}: a segment that the manifest lists is missing") from None


def _reserve(objects: Objects, *, overwrite: bool) -> str:
    """Put an empty manifest where a dataset will be, and remove what a killed process had published there; returns the
    manifest's version."""
    names, there = objects.list_names(), objects.get(_MANIFEST)
    if names and (there is None or there.data.strip()):
        remedy = " (in a store a dataset is not overwritten: readers would see half of each)" if overwrite else ""
        raise BuildError(f"{objects.address}: contains {names[0]!r}; choose another folder, or delete that{remedy}")
    version = _fence(objects, there)
    objects.remove([name for name in names if name != _MANIFEST])
    return version


def _publish_dataset(objects: Objects, folder: Path, version: str, progress: ProgressFunc) -> None:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    files = [name for name in names if name not in (_CARD, _MANIFEST)]
    with _report_changes("build into another folder"):
        objects.upload(folder, files, _count_to(len(files), f"publishing {objects.address}", progress))
        objects.upload(folder, [_CARD])  # `datasets` finds a dataset by its card, foretrace by its manifest
        objects.put(_MANIFEST, (folder / _MANIFEST).read_bytes(), instead_of=version)


def _count_to(total: int, doing: str, progress: ProgressFunc) -> Callable[[], None]:
    """A function that reports one more as done to `progress` each time it is called."""
    done = itertools.count(1)
    return lambda: progress(doing, next(done), total)
