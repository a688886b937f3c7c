"""The files behind one input: a file or folder, its companions, and whether any of them has changed."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

_MAX_FOLDER_FILES = 100_000
"""Most files of one folder that are looked at."""


class FileState(NamedTuple):
    """The current state of a file."""

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
