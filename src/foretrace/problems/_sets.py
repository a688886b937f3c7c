"""Finds a problem set by what a user calls it: `NAME`, `NAME:FILE` or `module:Class`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretrace.core.errors import UsageError
from foretrace.core.plugins import names, resolve


def apart(name: str, path: Path | None) -> tuple[str, Path | None]:
    """The name of a set and the file of its rows, from `NAME:FILE`, or from both as they are.

    Raises:
        UsageError: two files.
    """
    form, _, file = name.partition(":")
    if not file or form not in names("problems"):
        return name, path
    if path is not None:
        raise UsageError(f"{name!r} names a file, and {path} is another one: give one of them")
    return form, Path(file)


def problem_set(name: str) -> Any:
    """The plugin of a set.

    Raises:
        UsageError: no such set, or a file without its form.
    """
    if ":" not in name and name not in names("problems") and (Path(name).suffix or Path(name).exists()):
        raise UsageError(f"{name!r} is no problem set; for a file of rows give jsonl:{name}")
    return resolve("problems", name)
