"""Makes sources and opens their rows by what a user calls them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.core.errors import Setting, SourceError, UsageError
from foretrace.core.plugins import check_arguments, check_members, load_plugin, plugin_names
from foretrace.rows.base import Hub, Rows
from foretrace.rows.files import SUFFIXES, FileRows
from foretrace.rows.hub import HubRows
from foretrace.sources.base import Source


class SourceSpec(NamedTuple):
    """A source as it is named: `swe_smith`, `swe_smith:tool`, `module:Class`, `swe_smith=FILE`."""

    name: str
    split: str | None = None
    path: Path | None = None


def parse_source_spec(text: str) -> SourceSpec:
    """Split what a user calls a source into its name, split and file."""
    name, equals, path = text.partition("=")
    first, colon, rest = name.partition(":")
    if colon and first in plugin_names("source"):
        name = first
        if not rest:
            raise UsageError(f"{text!r}: no split behind the colon")
    else:
        rest = ""
    if equals and not path:
        raise UsageError(f"{text!r}: no file behind the equals sign")
    return SourceSpec(name, rest or None, Path(path) if path else None)


def make_source(name: str, options: Mapping[str, Any] | None = None) -> Source:
    """The source of that name, made with its own options.

    Raises:
        UsageError: there is no such source, it does not take one of the options, or it is no source.
    """
    plugin = load_plugin("source", name)
    given = {k: v for k, v in (options or {}).items() if v}
    if isinstance(plugin, type):
        for option in given:
            if option not in inspect.signature(plugin).parameters:
                raise UsageError(f"source {name!r} has no ", Setting(option), "; leave it out")
        check_arguments("source", name, plugin, **given)
        plugin = plugin(**given)
    elif given:
        raise UsageError(f"source {name!r} has no ", Setting(next(iter(given))), "; leave it out")
    check_members("source", name, plugin, Source)
    return plugin


def open_files(paths: Sequence[Path]) -> list[Rows]:
    """Rows of files; of a folder, of the files directly in it whose format is known, by name."""
    inputs: list[Any] = []
    for path in paths:
        if not path.is_dir():
            inputs.append(FileRows(path))
            continue
        if (path / "manifest.json").is_file() and any(path.glob("shard-*")):
            raise UsageError(f"{path}: is a traces folder already; `foretrace build {path} ...` takes it as it is")
        found = sorted(p for p in path.iterdir() if p.name.endswith(SUFFIXES) and not p.name.startswith("."))
        if not found:
            raise SourceError(f"{path}: holds no file that ends in one of {', '.join(SUFFIXES)}")
        inputs.extend(FileRows(p) for p in found)
    return inputs


def open_hub(source: Source, *, split: str | None, revision: str | None, repo: str | None) -> Rows:
    """Rows of one split on the Hub, or of a local dataset folder named by `repo`."""
    home = getattr(source, "hub", None)
    if repo is not None:
        if repo.startswith((".", "/", "~")) and not Path(repo).is_dir():
            raise SourceError(f"{repo}: no such folder")
        if revision and Path(repo).is_dir():
            raise UsageError(Setting("revision"), " is for a repository on the Hub, not for a local folder")
        home = Hub(repo, home.split if home else "train", home.config if home else None)
    if home is None:
        raise UsageError(f"source {source.name!r} has no home on the Hub: name files, or ", Setting("repo"))
    return HubRows(home, split=split, revision=revision)
