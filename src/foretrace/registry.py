"""From names to objects: models, protocols, sandboxes, problem sets and sources, as users name them.

Only `api`, `cli`, `envs` and `doctor` use it: functions below take objects. Plugins are looked up in `core/plugins.py`.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from foretrace.core.errors import ForetraceWarning, ProblemError, Setting, SourceError, UsageError
from foretrace.core.plugins import check_arguments, check_members, load_plugin, make_plugin, plugin_names
from foretrace.core.problem import Problem
from foretrace.models.base import ChatModel, Server
from foretrace.problems.base import ProblemSet, UnusableRow, check_problems, collect_problems
from foretrace.protocols.base import InteractionProtocol
from foretrace.rows.base import Hub, Rows
from foretrace.rows.files import SUFFIXES, FileRows
from foretrace.rows.hub import HubRows
from foretrace.sandbox.base import Sandbox, SandboxSettings
from foretrace.sandbox.fallback import FallbackSandbox
from foretrace.sources.base import Source


def split_spec(spec: str, kinds: Collection[str]) -> tuple[str, str]:
    """`KIND:NAME` in its two parts; the name may hold colons, and may be missing (`demo`).

    A plugin of one's own is `module:Class` or `module:Class:NAME`, and its kind `module:Class`.

    Raises:
        UsageError: neither a known kind nor a plugin of one's own.
    """
    kind, _, name = spec.strip().partition(":")
    if kind in kinds:
        return kind, name
    attribute, _, rest = name.partition(":")
    if attribute.isidentifier() and all(part.isidentifier() for part in kind.split(".")) and attribute[0].isupper():
        return f"{kind}:{attribute}", rest
    raise UsageError(f"unknown model {spec!r}: give KIND:NAME, with one of {', '.join(sorted(kinds))}")


def make_model(spec: str, server: Server | None = None) -> ChatModel:
    """The model of that name, not yet asked anything.

    Raises:
        UsageError: no such kind, a missing name, or settings that do not fit.
    """
    kind, name = split_spec(spec, plugin_names("model"))
    return make_plugin("model", kind, ChatModel, name, server or Server())


def make_protocol(name: str) -> InteractionProtocol:
    """The protocol of that name, e.g. `tools`, or `module:Class`.

    Raises:
        UsageError: no such protocol, or an object that is none.
    """
    return make_plugin("protocol", name, InteractionProtocol)


def make_sandbox(names: str, settings: SandboxSettings) -> Sandbox:
    """The sandbox that a list of names, joined by commas, stands for; not started yet.

    Raises:
        UsageError: no name, one that is unknown, or an object that is no sandbox.
    """
    unique = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not unique:
        raise UsageError(Setting("sandbox"), " names nothing: name one or several, e.g. docker,local")
    # All are made before any is started: a misspelt name is found at once.
    return FallbackSandbox([(name, make_plugin("sandbox", name, Sandbox, settings)) for name in unique])


MAX_DESCRIBED_ROWS = 3
"""Rows that cannot be used that one line names."""


def split_problem_spec(name: str, path: Path | None) -> tuple[str, Path | None]:
    """The name of a set and the file of its rows, from `NAME:FILE` or `module:Class:FILE`, or from both as they are.

    Raises:
        UsageError: two files.
    """
    plain, _, file = name.partition(":")
    if plain not in plugin_names("problems"):
        class_name, _, file = file.partition(":")
        plain = f"{plain}:{class_name}"
    if not file:
        return name, path
    if path is not None:
        raise UsageError(f"{name!r} names a file, and {path} is another one: give one of them")
    return plain, Path(file)


def make_problem_set(name: str) -> ProblemSet:
    """The set of that name.

    Raises:
        UsageError: no such set, or a file without the name of its form.
    """
    if ":" not in name and name not in plugin_names("problems") and (Path(name).suffix or Path(name).exists()):
        raise UsageError(f"{name!r} is no problem set; for a file of rows give jsonl:{name}")
    return make_plugin("problems", name, ProblemSet)


def load_problems(
    name: str, path: Path | None, limit: int | None, *, on_unusable: Callable[[UnusableRow], None] | None = None
) -> list[Problem]:
    """The first problems of a set, `NAME` or `NAME:FILE`; all of them without a limit.

    Args:
        on_unusable: Called with each row before the last of these problems that cannot be used; without it, such a row
            is an error.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: it cannot be read, no row of it can be used, a problem has no tests, or two have one id.
    """
    name, path = split_problem_spec(name, path)
    problems, unusable = collect_problems(make_problem_set(name).load(path), limit)
    if unusable and on_unusable is None:
        raise ProblemError(f"{unusable[0].at}: {unusable[0].reason}")
    place = path or name
    if not problems:
        none = f"none of its {len(unusable):,} problems can be used: {_name_rows(unusable, place)}"
        raise ProblemError(f"{place}: {none if unusable else 'there is no problem in it'}")
    for row in unusable:
        assert on_unusable is not None
        on_unusable(row)
    return check_problems(problems)


def load_usable_problems(name: str, path: Path | None, limit: int | None) -> list[Problem]:
    """The first problems of a set, as `load_problems`; rows that cannot be used are left out with a ForetraceWarning
    about the line that called the caller of this function."""
    name, path = split_problem_spec(name, path)
    unusable: list[UnusableRow] = []
    problems = load_problems(name, path, limit, on_unusable=unusable.append)
    if unusable:
        left_out = describe_unusable(unusable, len(problems) + len(unusable), path or name)
        warnings.warn(left_out, ForetraceWarning, stacklevel=3)
    return problems


def describe_unusable(rows: Sequence[UnusableRow], count: int, place: Path | str) -> str:
    """Which rows, of `count` of a file (or of the Hub), were left out, and why: the first of them."""
    return f"left out {len(rows):,} of {count:,} problems of {place}: {_name_rows(rows, place)}"


def _name_rows(rows: Sequence[UnusableRow], place: Path | str) -> str:
    reasons = [f"{row.at.removeprefix(f'{place} ')}: {row.reason}" for row in rows[:MAX_DESCRIBED_ROWS]]
    return "; ".join([*reasons, *(["..."] if len(rows) > MAX_DESCRIBED_ROWS else [])])


class PluginFacts(NamedTuple):
    """What a list says of a source or a problem set."""

    name: str
    about: str
    """The first line of its module's docstring."""
    place: str | None
    """Where its rows are read from when no file is given, e.g. `org/name (train)`; `None` for local files only."""
    license: str | None
    """`None` for that of the rows."""
    problems: int | None
    """The number of problems of a set that is known by it."""


def describe_plugins(kind: Literal["source", "problems"]) -> list[PluginFacts]:
    """All sources, or problem sets, that have a name."""
    found: list[PluginFacts] = []
    for name in plugin_names(kind):
        plugin = load_plugin(kind, name)
        about = (sys.modules[plugin.__module__].__doc__ or "").strip().split("\n")[0]
        hub, count = getattr(plugin, "hub", None), getattr(plugin, "count", None)
        place = f"{hub.repo} ({hub.split})" if hub else "comes with foretrace" if count is not None else None
        found.append(PluginFacts(name, about, place, plugin.license, count))
    return found


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
            raise UsageError(f"{path}: is a traces folder already; build a dataset from it as it is")
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
