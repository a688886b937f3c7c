"""Find what can be imported: walk folders, read the beginning of each file, and ask every source to recognize it.

A file that exactly one source recognizes goes to that source. One that several recognize is left out and listed with
all of them; there is no guessing. Files that no source recognizes are listed, too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.core.errors import SourceError
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.rows.files import SUFFIXES
from foretrace.rows.head import FileHead, read_head

MAX_FILES = 500_000
"""Most files that a walk may visit."""
MAX_LISTED = 1000
"""Most unrecognized files that are listed by name; the others are only counted."""
_MAX_FOLDER_FILES = 100_000
"""Most files of one folder that are looked at."""
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
        if path.is_dir() or not is_named:
            walk.visit(path)
        elif walk.is_new(path.stat()):
            walk.found.add(path, {sources[0].name: "named"}, walk.row_sources)
    _remove_companions(walk.found, {source.name: source for source in sources}, since)
    return walk.found


def ask_sources(head: FileHead, sources: Sequence[Any]) -> dict[str, str]:
    """The evidence of each source that recognizes the file, by name. A general source (`is_general`) only counts if no
    other source recognizes the file."""
    for is_general in (False, True):
        claims: dict[str, str] = {}
        for source in sources:
            with contextlib.suppress(Exception):  # no file content may break the walk
                if getattr(source, "is_general", False) is is_general and (reason := source.recognize(head)):
                    claims[source.name] = str(reason)
        if claims:
            return claims
    return {}


class _Walk:
    def __init__(self, sources: Sequence[Any], progress: ProgressFunc) -> None:
        self.found = FoundFiles()
        self._sources = sources
        self.row_sources = {source.name for source in sources if hasattr(source, "to_trace")}
        self._progress = progress
        self._seen: set[tuple[int, int]] = set()
        self._files = 0

    def is_new(self, status: os.stat_result) -> bool:
        """Whether the file or folder was not visited before, under this name or another."""
        place = status.st_dev, status.st_ino
        is_new = place not in self._seen
        self._seen.add(place)
        return is_new

    def visit(self, top: Path) -> None:
        """Take a file or folder if a source recognizes it, or else what is in the folder."""
        waiting = [top]
        while waiting:
            path = waiting.pop()
            self._count(path)
            try:
                status = path.stat()
                if not self.is_new(status):
                    continue
                is_folder = stat.S_ISDIR(status.st_mode)
                if not is_folder and not stat.S_ISREG(status.st_mode):
                    raise SourceError("no regular file")
                head = read_head(path)
                names = sorted(os.listdir(path)) if is_folder else []
            except (SourceError, OSError) as error:  # also a dangling link, or one to itself
                self.found.add_unknown(path, getattr(error, "strerror", None) or str(error).removeprefix(f"{path}: "))
                continue
            if "manifest.json" in names and any(name.startswith("shard-") for name in names):
                self.found.add_unknown(path, "a traces folder; build a dataset from it as it is")
            elif claims := ask_sources(head, self._sources):
                self.found.add(path, claims, self.row_sources)
            elif is_folder:
                waiting += [path / name for name in reversed(names) if name not in _SKIPPED_FOLDERS]
            else:
                self.found.add_unknown(path, describe_head(head))

    def _count(self, path: Path) -> None:
        self._files += 1
        if self._files > MAX_FILES:
            raise SourceError(f"{path.parent}: more than {MAX_FILES:,} files; name the folders that hold traces")
        if self._files % _REPORT_EVERY == 0:
            self._progress("looking at files", self._files, None)


def describe_head(head: FileHead) -> str:
    """The contents of an unrecognized file: the keys of its first record, or what kind of file it is."""
    if head.first:
        keys = [str(key)[:40] for key in itertools.islice(head.first, _MAX_KEYS)]
        more = ", ..." if len(head.first) > _MAX_KEYS else ""
        return f"{'a first record' if head.records else 'a document'} with {', '.join(keys)}{more}"
    text = head.start.decode(errors="replace").rstrip("\ufffd")  # a character may be cut off at the end
    if "\x00" in text or "\ufffd" in text:
        return "binary"
    if not head.start.strip():
        return "empty"
    return "a JSON list without objects" if text.lstrip().startswith("[") else "text without a JSON object"


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
        real = Path(os.path.realpath(path))
        return any(str(place) in companions for place in (real, *real.parents))

    kept: list[RecognizedFile] = []
    for file, others in zip(found.files, read_with, strict=True):
        if companions and is_companion(file.path):
            found.companions += 1
        elif (
            since is not None
            and max((s.changed_ns for s in list_states([file.path, *others])), default=0) < since * 1e9
        ):
            found.too_old += 1
        else:
            kept.append(file)
    found.files = kept
    if companions:
        unknown = [file for file in found.unknown if not is_companion(file.path)]
        found.companions += len(found.unknown) - len(unknown)
        found.unknown_count -= len(found.unknown) - len(unknown)
        found.unknown = unknown
        found.ambiguous = [file for file in found.ambiguous if not is_companion(file.path)]


class FileState(NamedTuple):
    name: str
    """Path relative to the folder that contains the input."""
    size: int
    changed_ns: int
    """Time of the last change, nanoseconds since 1970."""


def list_companions(source: Any, path: Path) -> list[Path]:
    """The files that the source reads together with this one; none if they cannot be listed."""
    with contextlib.suppress(OSError):
        return list(source.list_companions(path)) if hasattr(source, "list_companions") else []
    return []


def list_states(paths: Iterable[Path]) -> list[FileState]:
    """The states of these files and of all files in these folders, sorted; files that cannot be read are left out."""
    states: list[FileState] = []
    for top in paths:
        inside = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)  # does not follow links
        for path in itertools.islice(inside, _MAX_FOLDER_FILES) if top.is_dir() else [top]:
            with contextlib.suppress(OSError):
                found = path.stat()
                if stat.S_ISREG(found.st_mode):
                    states.append(FileState(str(path.relative_to(top.parent)), found.st_size, found.st_mtime_ns))
    return sorted(states)
