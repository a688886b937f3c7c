"""Find what can be imported: walk folders, read the beginning of each file, and ask every source to recognize it.

A file that exactly one source recognizes goes to that source. One that several recognize is left out and listed with
all of them; there is no guessing. Files that no source recognizes are listed, too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.core.errors import SourceError
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.rows.files import SUFFIXES
from foretrace.rows.head import FileHead, read_head
from foretrace.sources.file_states import list_companions, list_states

MAX_FILES = 500_000
"""Most files that a walk may visit."""
_MAX_DEPTH = 64
MAX_LISTED = 1000
"""Most unrecognized files that are listed by name; the others are only counted."""
_MAX_KEYS = 8
_REPORT_EVERY = 64
"""Files between two progress reports."""
_SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules"})


class RecognizedFile(NamedTuple):
    """A file, or a folder that is read as one, and the source that recognizes it."""

    path: Path
    source: str
    reason: str
    """The evidence that the source gives."""


class UnknownFile(NamedTuple):
    """A file that no source recognizes."""

    path: Path
    size: int
    seen: str
    """Its contents: the keys of its first record, or what kind of file it is."""


class AmbiguousFile(NamedTuple):
    """A file or folder that several sources recognize, and that is not imported."""

    path: Path
    claims: dict[str, str]
    """Name of each source -> its evidence."""

    def describe(self) -> str:
        """The file with its candidates and their evidence."""
        seen = " or ".join(f"{name} ({reason})" for name, reason in self.claims.items())
        return f"{self.path}: may be {seen}"


class FoundFiles(msgspec.Struct):
    """The result of a walk."""

    files: list[RecognizedFile] = []
    unknown: list[UnknownFile] = []
    """The first unrecognized files."""
    unknown_count: int = 0
    ambiguous: list[AmbiguousFile] = []
    """Files that several sources recognize."""
    companions: int = 0
    """Files that are read together with another one."""
    too_old: int = 0
    """Files that were last changed before the given date."""

    def group(self) -> dict[str, list[Path]]:
        """Paths by source, in the order of the sources' names."""
        groups: dict[str, list[Path]] = {}
        for file in sorted(self.files, key=lambda f: f.source):
            groups.setdefault(file.source, []).append(file.path)
        return groups

    def check_not_ambiguous(self) -> None:
        """Refuse to finish an import that left files out because several sources recognize them.

        Raises:
            SourceError: there is such a file; says which sources recognize it, and that one of them must be named.
        """
        if self.ambiguous:
            more = f"; so are {len(self.ambiguous) - 1:,} others" if len(self.ambiguous) > 1 else ""
            what = "name the source instead of auto, for these files only"
            raise SourceError(f"{self.ambiguous[0].describe()}{more}; {what}")

    def add(self, path: Path, claims: dict[str, str], row_sources: Collection[str]) -> None:
        """List a file or folder; `claims` holds the evidence of each source that recognizes it, by name."""
        if len(claims) > 1:
            self.ambiguous.append(AmbiguousFile(path, claims))
            return
        ((name, reason),) = claims.items()
        if name in row_sources and not path.name.endswith(SUFFIXES):
            self.add_unknown(path, f"rows of {name} ({reason}); name it with one of {', '.join(SUFFIXES)}")
        else:
            self.files.append(RecognizedFile(path, name, reason))

    def add_unknown(self, path: Path, seen: str, size: int | None = None) -> None:
        """List a file that no source recognizes."""
        self.unknown_count += 1
        if len(self.unknown) < MAX_LISTED:
            with contextlib.suppress(OSError):
                size = path.stat().st_size if size is None else size
            self.unknown.append(UnknownFile(path, size or 0, seen))


def find_files(
    paths: Sequence[Path],
    sources: Sequence[Any],
    *,
    is_named: bool = False,
    since: float | None = None,
    progress: ProgressFunc = ignore_progress,
) -> FoundFiles:
    """The files among these, and in these folders, that the sources recognize.

    Args:
        sources: The sources that are asked: `FileSource`, or a source of rows with `recognize`.
        is_named: The user named the only source, so a file that was named too is taken without asking.
        since: Seconds since 1970; files that were last changed before are left out.

    Raises:
        SourceError: a path is missing, or there are too many files.
    """
    walk = _Walk(sources, progress)
    for path in paths:
        if not path.exists():
            raise SourceError(f"{path}: no such file or folder")
        if path.is_dir():
            walk.visit_folder(path, 0)
        elif is_named and walk.is_new(path):
            walk.add(path, {sources[0].name: "named"})
        elif not is_named:
            walk.visit_file(path)
    _remove_companions(walk.found, {source.name: source for source in sources}, since)
    return walk.found


def ask_sources(head: FileHead, sources: Sequence[Any]) -> dict[str, str]:
    """The evidence of each source that recognizes the file, by name. A general source (`is_general`) only counts if no
    other source recognizes the file."""
    general = [source for source in sources if getattr(source, "is_general", False)]
    return _ask(head, [source for source in sources if source not in general]) or _ask(head, general)


def _ask(head: FileHead, sources: Sequence[Any]) -> dict[str, str]:
    claims: dict[str, str] = {}
    for source in sources:
        with contextlib.suppress(Exception):  # no file content may break the walk
            if reason := source.recognize(head):
                claims[source.name] = str(reason)
    return claims


class _Walk:
    def __init__(self, sources: Sequence[Any], progress: ProgressFunc) -> None:
        self.found = FoundFiles()
        self._sources = sources
        self._row_sources = {source.name for source in sources if hasattr(source, "to_trace")}
        self._progress = progress
        self._seen: set[tuple[int, int]] = set()
        self._files = 0

    def add(self, path: Path, claims: dict[str, str]) -> None:
        """List a recognized file or folder."""
        self.found.add(path, claims, self._row_sources)

    def is_new(self, path: Path) -> bool:
        """Whether the file or folder was not visited before, under this name or another."""
        status = path.stat()
        place = status.st_dev, status.st_ino
        if place in self._seen:
            return False
        self._seen.add(place)
        return True

    def visit_folder(self, folder: Path, depth: int) -> None:
        """Take the folder if a source recognizes it, or else its contents."""
        if depth > _MAX_DEPTH:
            self.found.add_unknown(folder, f"a folder {depth} folders deep")
            return
        if not self.is_new(folder):
            return
        try:
            head = read_head(folder)
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (SourceError, OSError) as error:
            self.found.add_unknown(folder, f"a folder that cannot be read: {getattr(error, 'strerror', error)}", 0)
            return
        names = {entry.name for entry in entries}
        if "manifest.json" in names and any(name.startswith("shard-") for name in names):
            self.found.add_unknown(folder, "a traces folder; build a dataset from it as it is", 0)
            return
        if claims := ask_sources(head, self._sources):
            self.add(folder, claims)
            return
        for entry in entries:
            path = Path(entry.path)
            try:
                mode = entry.stat().st_mode
            except OSError as error:  # a dangling link, or one to itself
                self.found.add_unknown(path, f"a link that leads nowhere: {error.strerror}", 0)
                continue
            if stat.S_ISDIR(mode):
                if entry.name not in _SKIPPED_FOLDERS:
                    self.visit_folder(path, depth + 1)
            elif stat.S_ISREG(mode):
                self.visit_file(path)
            else:
                self.found.add_unknown(path, "no regular file", 0)

    def visit_file(self, path: Path) -> None:
        """Take the file if a source recognizes it."""
        if not self.is_new(path):
            return
        self._files += 1
        if self._files > MAX_FILES:
            raise SourceError(f"{path.parent}: more than {MAX_FILES:,} files; name the folders that hold traces")
        if self._files % _REPORT_EVERY == 0:
            self._progress("looking at files", self._files, None)
        if not path.is_file():
            self.found.add_unknown(path, "no regular file")
            return
        try:
            head = read_head(path)
        except SourceError as error:
            self.found.add_unknown(path, str(error).removeprefix(f"{path}: "))
            return
        if claims := ask_sources(head, self._sources):
            self.add(path, claims)
        else:
            self.found.add_unknown(path, describe_head(head))


def describe_head(head: FileHead) -> str:
    """The contents of an unrecognized file: the keys of its first record, or what kind of file it is."""
    if head.first:
        keys = [str(key)[:40] for key in itertools.islice(head.first, _MAX_KEYS)]
        more = ", ..." if len(head.first) > _MAX_KEYS else ""
        return f"{'a first record' if head.records else 'a document'} with {', '.join(keys)}{more}"
    if not head.start.strip():
        return "empty"
    if b"\x00" in head.start:
        return "binary"
    try:
        head.start[:-4].decode()
    except UnicodeDecodeError:
        return "binary"
    return "a JSON list without objects" if head.start.lstrip().startswith(b"[") else "text without a JSON object"


def _remove_companions(found: FoundFiles, sources: dict[str, Any], since: float | None) -> None:
    """Leave out files that are read together with another one, and files that are too old."""
    read_with = [list_companions(sources[file.source], file.path) for file in found.files]
    companions = {
        real
        for file, others in zip(found.files, read_with, strict=True)
        for real in map(os.path.realpath, others)  # `Path.resolve` raises for a link to itself
        if real != os.path.realpath(file.path)
    }

    def is_companion(path: Path) -> bool:
        """Whether a file, or a folder that contains it, is read together with another file."""
        if not companions:
            return False
        real = Path(os.path.realpath(path))
        return any(str(place) in companions for place in (real, *real.parents))

    kept: list[RecognizedFile] = []
    for file, others in zip(found.files, read_with, strict=True):
        if is_companion(file.path):
            found.companions += 1
        elif since is not None and _find_last_change([file.path, *others]) < since:
            found.too_old += 1
        else:
            kept.append(file)
    unknown = [file for file in found.unknown if not is_companion(file.path)]
    left_out = len(found.unknown) - len(unknown)
    found.ambiguous = [file for file in found.ambiguous if not is_companion(file.path)]
    found.files, found.unknown = kept, unknown
    found.unknown_count -= left_out
    found.companions += left_out


def _find_last_change(paths: Sequence[Path]) -> float:
    """Time of the last change to any of these files or to files in these folders, in seconds since 1970."""
    return max((state.changed_ns for state in list_states(paths)), default=0) / 1e9
