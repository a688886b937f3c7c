"""From names to objects: models, protocols, sandboxes, problem sets and sources, as users name them.

Only `api`, `cli`, `envs` and `doctor` use this; lower layers take objects. `core/plugins.py` looks plugins up.
"""

from __future__ import annotations

import glob
import inspect
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from foretrace.core.errors import ForetraceWarning, ProblemError, Setting, SourceError, UsageError, count_things
from foretrace.core.places import find_address
from foretrace.core.plugins import BUILT_IN, check_arguments, check_members, load_plugin, make_plugin, plugin_names
from foretrace.core.problem import Problem
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.evaluation.predictors.base import Predictor
from foretrace.exports.base import TraceFormat
from foretrace.models.base import ChatModel, Server
from foretrace.problems.base import ProblemSet, UnusableRow, check_problems, collect_problems
from foretrace.protocols.base import InteractionProtocol
from foretrace.rows.base import Hub, Rows
from foretrace.rows.files import SUFFIXES, FileRows
from foretrace.rows.head import FileHead
from foretrace.rows.hub import HubRows
from foretrace.sandbox.base import Sandbox, SandboxSettings
from foretrace.sandbox.fallback import FallbackSandbox
from foretrace.sources.base import FileSource, RecognizedSource, Source
from foretrace.sources.importing import SourceInputs, parse_date
from foretrace.sources.recognizing import (
    AmbiguousFile,
    FoundFiles,
    RecognizedFile,
    ask_sources,
    describe_head,
    find_files,
)


def split_spec(spec: str, kinds: Collection[str]) -> tuple[str, str]:
    """Split `KIND:NAME` into its two parts; the name may contain colons, and may be missing (`demo`).

    The user's own plugin is `module:Class` or `module:Class:NAME`, where the kind is `module:Class`.

    Raises:
        UsageError: neither a known kind nor a plugin.
    """
    kind, _, name = spec.strip().partition(":")
    if kind in kinds:
        return kind, name
    attribute, _, rest = name.partition(":")
    if attribute.isidentifier() and all(part.isidentifier() for part in kind.split(".")) and attribute[0].isupper():
        return f"{kind}:{attribute}", rest
    raise UsageError(f"unknown model {spec!r}: give KIND:NAME, with one of {', '.join(sorted(kinds))}")


def make_model(spec: str, server: Server | None = None) -> ChatModel:
    """The model with this name; nothing is sent to it yet.

    Raises:
        UsageError: no such kind, a missing name, or settings that do not fit.
    """
    kind, name = split_spec(spec, plugin_names("model"))
    return make_plugin("model", kind, ChatModel, name, server or Server())


def make_protocol(name: str) -> InteractionProtocol:
    """The protocol with this name, e.g. `tools`, or `module:Class`.

    Raises:
        UsageError: no such protocol, or an object that is not one.
    """
    return make_plugin("protocol", name, InteractionProtocol)


def make_predictor(name: str) -> Predictor:
    """The predictor with this name, e.g. `regression`, `markov:2`, or `module:Class`; not fitted yet.

    Raises:
        UsageError: no such predictor, or an object that is not one.
    """
    kind, _, option = name.partition(":")
    if kind in plugin_names("predictor"):
        return make_plugin("predictor", kind, Predictor, *([option] if option else []))
    return make_plugin("predictor", name, Predictor)


def make_sandbox(names: str, settings: SandboxSettings) -> Sandbox:
    """The sandbox for a comma-separated list of names; not started yet.

    Raises:
        UsageError: no name, an unknown name, or an object that is not a sandbox.
    """
    unique = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not unique:
        raise UsageError(Setting("sandbox"), " names nothing: name one or several, e.g. docker,local")
    # All are made before any is started, so that a misspelled name is found at once.
    return FallbackSandbox([(name, make_plugin("sandbox", name, Sandbox, settings)) for name in unique])


MAX_DESCRIBED_ROWS = 3
"""Most reasons in one line, and most unusable rows that it names for each."""


def split_problem_spec(name: str, path: Path | None) -> tuple[str, Path | None]:
    """The name of a set and its file of rows, from `NAME:FILE` or `module:Class:FILE`, or else both as given.

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
    """The problem set with this name.

    Raises:
        UsageError: no such set, or a path without `jsonl:` or `harbor:`.
    """
    if ":" not in name and name not in plugin_names("problems") and (Path(name).suffix or Path(name).exists()):
        given = (
            f"for Harbor tasks give harbor:{name}" if Path(name).is_dir() else f"for a file of rows give jsonl:{name}"
        )
        raise UsageError(f"{name!r} is not a problem set; {given}")
    return make_plugin("problems", name, ProblemSet)


def load_problems(
    name: str, path: Path | None, limit: int | None, *, on_unusable: Callable[[UnusableRow], None] | None = None
) -> list[Problem]:
    """The first problems of a set, given as `NAME` or `NAME:FILE`; all of them without a limit.

    Args:
        on_unusable: Called with each unusable row before the last of these problems; such a row is an error without it.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: it cannot be read, it has no usable row, a problem has no tests, or two have the same id.
    """
    name, path = split_problem_spec(name, path)
    problems, unusable = collect_problems(make_problem_set(name).load(path), limit)
    if unusable and on_unusable is None:
        raise ProblemError(f"{unusable[0].at}: {unusable[0].reason}")
    place = path or name
    if not problems:
        raise ProblemError(describe_no_problem(unusable, place))
    for row in unusable:
        assert on_unusable is not None
        on_unusable(row)
    return check_problems(problems)


def load_usable_problems(name: str, path: Path | None, limit: int | None) -> list[Problem]:
    """The first problems of a set, as in `load_problems`. Unusable rows are left out with a ForetraceWarning at the
    line that called `foretrace.generate`."""
    name, path = split_problem_spec(name, path)
    unusable: list[UnusableRow] = []
    problems = load_problems(name, path, limit, on_unusable=unusable.append)
    if unusable:
        left_out = describe_unusable(unusable, len(problems) + len(unusable), path or name)
        warnings.warn(left_out, ForetraceWarning, stacklevel=4)
    return problems


def describe_unusable(rows: Sequence[UnusableRow], count: int, place: Path | str) -> str:
    """Which of `count` rows of a file (or of the Hub) were left out, and why; names only the first ones."""
    return f"left out {len(rows):,} of {count:,} problems of {place}: {_name_rows(rows, place)}"


def describe_no_problem(unusable: Sequence[UnusableRow], place: Path | str) -> str:
    """Why nothing in a file (or on the Hub) can be used."""
    if not unusable:
        return f"{place}: there is no problem in it"
    return f"{place}: none of its {len(unusable):,} problems can be used: {_name_rows(unusable, place)}"


def _name_rows(rows: Sequence[UnusableRow], place: Path | str) -> str:
    """The first rows with each of the first reasons."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row.reason, []).append(row.at.removeprefix(f"{place} "))
    parts: list[str] = []
    for reason, places in [*by_reason.items()][:MAX_DESCRIBED_ROWS]:
        more = len(places) - MAX_DESCRIBED_ROWS
        listed = ", ".join(places[:MAX_DESCRIBED_ROWS]) + (f" and {more:,} more" if more > 0 else "")
        parts.append(f"{listed}: {reason}")
    return "; ".join([*parts, *(["..."] if len(by_reason) > MAX_DESCRIBED_ROWS else [])])


class PluginFacts(NamedTuple):
    """A source or a problem set, as described in a list."""

    name: str
    about: str
    """The first paragraph of its module's docstring."""
    place: str | None
    """Where its rows are read from by default, e.g. `org/name (train)`; `None` if it only reads local files."""
    license: str | None
    """`None` if the rows have their own license."""
    problems: int | None
    """The number of problems in a set, if it is fixed."""
    recognized: str | None
    """How a source recognizes its files, for `auto`; `None` if it does not."""


def describe_plugins(kind: Literal["source", "problems"]) -> list[PluginFacts]:
    """All sources, or all problem sets, that have a name."""
    found: list[PluginFacts] = []
    for name in plugin_names(kind):
        plugin = load_plugin(kind, name)
        about = " ".join((sys.modules[plugin.__module__].__doc__ or "").strip().partition("\n\n")[0].split())
        hub, count = getattr(plugin, "hub", None), getattr(plugin, "count", None)
        place = f"{hub.repo} ({hub.split})" if hub else "comes with foretrace" if count is not None else None
        found.append(PluginFacts(name, about, place, plugin.license, count, _describe_recognition(plugin)))
    return found


def _describe_recognition(plugin: Any) -> str | None:
    """The first sentence of the docstring of the plugin's `recognize`."""
    recognize = getattr(plugin, "recognize", None)
    if recognize is None:
        return None
    text = " ".join((recognize.__doc__ or "").split())
    return text.partition(". ")[0].removesuffix(".") or "by its own test"


class SourceSpec(NamedTuple):
    """A parsed source name: `swe_smith`, `swe_smith:tool`, `module:Class`; with a file: `swe_smith:tool=FILE`."""

    name: str
    split: str | None = None
    path: Path | None = None


def parse_source_spec(text: str) -> SourceSpec:
    """Split the user's name for a source into name, split and file."""
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


_HUB_URL = re.compile(
    r"(?:https://huggingface\.co/|hf://)datasets/(?P<repo>[^/?#@]+/[^/?#@]+)(?:(?:@|/tree/)(?P<revision>[^/?#]+))?/?"
)
_URL = re.compile(r"\w+://")
_MAX_FIRST_ROWS = 10
"""Rows of a dataset on the Hub that are used to recognize it."""
AUTO = "auto"
"""In place of a source's name: every file goes to the source that recognizes it."""


def is_path(text: str) -> bool:
    """Whether a text in place of a source's name is an input instead, so that the source was omitted."""
    if text == "-" or "://" in text:
        return True
    if parse_source_spec(text).name in (AUTO, *plugin_names("source")):
        return False
    return Path(text).exists() or (":" not in text and not text.isidentifier())


def make_source(name: str, options: Mapping[str, Any] | None = None) -> Source | FileSource:
    """The source with this name and these options.

    Raises:
        UsageError: there is no such source, it does not take one of the options, or it is not a source.
    """
    if ":" not in name and name not in plugin_names("source"):
        raise UsageError(f"{name}: no such file or source; the command `sources` lists the sources")
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
    check_members("source", name, plugin, FileSource if reads_files(plugin) else Source)
    return plugin


def make_format(name: str) -> TraceFormat:
    """The export format with this name.

    Raises:
        UsageError: there is no such format, or it is not a format.
    """
    return make_plugin("format", name, TraceFormat)


def reads_files(source: object) -> bool:
    """Whether a source is a `FileSource`, whose files hold whole conversations."""
    return hasattr(source, "read_traces")


def make_recognizers() -> list[Any]:
    """All named sources that can recognize their files. A plugin that cannot be made is left out with a warning."""
    found: list[Any] = []
    for name in plugin_names("source"):
        try:
            source = make_source(name)
        except UsageError as error:
            if name in BUILT_IN["source"]:
                raise
            warnings.warn(f"left out: {error}", ForetraceWarning, stacklevel=2)
            continue
        if isinstance(source, RecognizedSource):
            found.append(source)
    return found


class OpenedInputs(NamedTuple):
    """The opened inputs of an import."""

    groups: list[SourceInputs]
    label: str
    """The input's name in messages."""
    found: FoundFiles | None = None
    """The result of searching folders, if sources had to recognize files."""


def open_inputs(
    source: str | Source | FileSource,
    inputs: str | Path | Rows | Sequence[str | Path | Rows],
    *,
    hub: Mapping[str, str | None],
    options: Mapping[str, Any],
    since: str | None = None,
    progress: ProgressFunc = ignore_progress,
) -> OpenedInputs:
    """Open what an import reads: rows of files or of the Hub, session files, or with `auto` whatever is recognized.

    Args:
        hub: `split`, `revision` and `repo`.
        options: Options of the source itself, e.g. `columns`.
        since: ISO 8601 date; session files that were last changed before are left out.

    Raises:
        UsageError: no such source, or settings that do not fit.
        SourceError: a file that cannot be read, or nothing that exactly one source recognizes.
    """
    single = isinstance(inputs, (str, Path)) or hasattr(inputs, "read")
    given = [inputs] if single else [*cast("Any", inputs)]
    if isinstance(source, str) and (spec := parse_source_spec(source)).path is not None:
        source, given = f"{spec.name}:{spec.split}" if spec.split else spec.name, [spec.path, *given]
    listed = [path for each in given for path in _expand_pattern(each)]
    if source != AUTO:
        source, split = _open_source(source, hub.get("split"), options)
        if not reads_files(source):
            rows = _tell_apart(_open_rows(cast("Source", source), listed, {**hub, "split": split}))
            label = rows[0].label if len(rows) == 1 else f"{len(rows)} files"
            return OpenedInputs([SourceInputs(source, rows=rows)], label)
        hub = {**hub, "split": split}
    else:
        _refuse_given(options, " is for a source that is named: name it in the place of auto")
        if (hub.get("repo") and not listed) or any(map(_is_address, listed)):
            return _open_datasets(listed, hub)
    _refuse_given(hub, " is for rows on the Hub; name local files or folders, or a source of rows")
    return _open_found(source, [Path(each) for each in _check_paths(listed)], since, progress)


def _open_datasets(addresses: Sequence[Any], hub: Mapping[str, str | None]) -> OpenedInputs:
    """Rows of datasets on the Hub, each with the source that recognizes its first rows.

    Raises:
        UsageError: there are also local files.
        SourceError: no source recognizes the rows, or several do.
    """
    if local := [each for each in addresses if not _is_address(each)]:
        raise UsageError(f"{local[0]}: import it by itself, without a dataset of the Hub beside it")
    opened = [_open_address(None, each, hub) for each in addresses] or [open_hub(None, **hub)]
    sources = {one.name: one for one in make_recognizers() if not reads_files(one)}
    found = [_recognize_rows(rows, [*sources.values()]) for rows in opened]
    groups: dict[str, list[Rows]] = {}
    for rows, file in zip(opened, found, strict=True):
        groups.setdefault(file.source, []).append(rows)
    label = opened[0].label if len(opened) == 1 else f"{len(opened)} datasets"
    inputs = [SourceInputs(sources[name], rows=groups[name]) for name in sorted(groups)]
    return OpenedInputs(inputs, label, FoundFiles(files=found))


def _recognize_rows(rows: Rows, sources: Sequence[Any]) -> RecognizedFile:
    first = [row.value for row in itertools.islice(rows.read(), _MAX_FIRST_ROWS)]
    head = FileHead(Path(rows.label), records=tuple(row for row in first if isinstance(row, dict)))
    claims = ask_sources(head, sources)
    if len(claims) > 1:
        raise SourceError(f"{AmbiguousFile(head.path, claims).describe()}; name the source in the place of auto")
    if not claims:
        raise SourceError(
            f"{rows.label}: {describe_head(head)}: rows of no known format; name the source, or, if the repository "
            "holds session files, download it (`hf download`) and name its folder"
        )
    ((name, reason),) = claims.items()
    return RecognizedFile(head.path, name, reason)


def _open_found(source: Any, paths: list[Path], since: str | None, progress: ProgressFunc) -> OpenedInputs:
    sources = {one.name: one for one in make_recognizers()} if source == AUTO else {source.name: source}
    since_s = None if since is None else parse_date(since)
    found = find_files(paths, [*sources.values()], is_named=source != AUTO, since=since_s, progress=progress)
    label = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files and folders"
    if not found.files:
        found.check_not_ambiguous()
        raise SourceError(_describe_nothing(label, found, None if source == AUTO else source.name))
    groups: list[SourceInputs] = []
    for name, files in found.group().items():
        if reads_files(sources[name]):
            groups.append(SourceInputs(sources[name], files=files))
        else:
            groups.append(SourceInputs(sources[name], rows=_tell_apart(open_files(files))))
    return OpenedInputs(groups, label, found)


def _tell_apart(inputs: list[Rows]) -> list[Rows]:
    """The same inputs; files with the same base name are renamed to include the folders that differ."""
    files = [each for each in inputs if isinstance(each, FileRows)]
    parts, count = {file.path: file.path.absolute().parts for file in files}, 1
    while same := [name for name, n in Counter(file.name for file in files).items() if n > 1]:
        count += 1
        named = [file for file in files if file.name in same and len(parts[file.path]) > count]
        if not named:  # one file, named twice
            break
        for file in named:
            file.name = "/".join(parts[file.path][-count:])
    return inputs


def _describe_nothing(label: str, found: FoundFiles, name: str | None) -> str:
    if found.too_old:
        return f"{label}: {count_things(found.too_old, 'known file')}, which were last changed before the date"
    if not found.unknown_count:
        return f"{label}: holds no files"
    first = found.unknown[0]
    what = f"files of {name}" if name else "files of a known format"
    return (
        f"{label}: holds no {what}, but {count_things(found.unknown_count, 'other')}, e.g. "
        f"{first.path.name}: {first.seen}; see the list of sources"
    )


def _check_paths(listed: Sequence[Any]) -> Sequence[str | Path]:
    if not listed:
        raise UsageError("name the files or folders to look into")
    if urls := [each for each in listed if isinstance(each, str) and _URL.match(each)]:
        raise UsageError(f"{urls[0]}: name a dataset on the Hub as hf://datasets/OWNER/NAME, or local files")
    if strange := [each for each in listed if not isinstance(each, (str, Path))]:
        raise UsageError(f"a {type(strange[0]).__name__} is not a path: give files or folders")
    return listed


def _expand_pattern(each: Any) -> list[Any]:
    """The files that match a pattern such as `logs/**/*.jsonl`, sorted; anything else unchanged."""
    address = find_address(each) if isinstance(each, (str, Path)) else None
    if address is not None and address.scheme != "hf":
        raise UsageError(f"{address}: rows are read from files of this machine, or from the Hub; copy it here first")
    if not isinstance(each, (str, Path)) or not glob.has_magic(str(each)) or Path(each).exists():
        return [each]
    if not (found := sorted(glob.glob(str(each), recursive=True))):
        raise SourceError(f"{each}: no file has a name like this")
    return found


def _refuse_given(options: Mapping[str, Any], why: str) -> None:
    for name, value in options.items():
        if value:
            raise UsageError(Setting(name), why)


def _open_source(
    source: str | Source | FileSource, split: str | None, options: Mapping[str, Any]
) -> tuple[Source | FileSource, str | None]:
    """The source, with these options, and the split from its name or from `split`."""
    given = {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items() if value}
    if not isinstance(source, str):
        _refuse_given(given, " is for a source that is named: give it to the Source object itself")
        return source, split
    spec = parse_source_spec(source)
    if spec.split and split and spec.split != split:
        raise UsageError(f"{source!r} and ", Setting("split", split), " name two splits")
    return make_source(spec.name, given), split or spec.split


def _open_rows(source: Source, listed: Sequence[Any], hub: Mapping[str, str | None]) -> list[Rows]:
    """The raw rows of files, or by default those at the source's place on the Hub."""
    if not listed:
        return [open_hub(source, split=hub.get("split"), revision=hub.get("revision"), repo=hub.get("repo"))]
    split, others = hub.get("split"), {name: value for name, value in hub.items() if name != "split"}
    if not all(map(_is_address, listed)):
        _refuse_given(others, " is for rows on the Hub and would be ignored for local files; leave it out")
    rows: list[Rows] = []
    for each in listed:
        if _is_address(each):
            rows.append(_open_address(source, each, hub))
            continue
        opened = open_files([Path(each)]) if isinstance(each, (str, Path)) else [each]
        for file in opened:
            if isinstance(file, FileRows):
                file.split = split
            elif split is not None:
                raise UsageError(Setting("split", split), f" is for files and the Hub; {file.label} has its own")
        rows.extend(opened)
    return rows


def _is_address(each: Any) -> bool:
    """Whether an input is the address of a dataset on the Hub."""
    return isinstance(each, str) and _HUB_URL.fullmatch(each) is not None


def _open_address(source: Source | None, address: str, hub: Mapping[str, str | None]) -> Rows:
    """Rows of the dataset at an address on the Hub, of the given split and revision."""
    found = _HUB_URL.fullmatch(address)
    assert found is not None
    _refuse_given({"repo": hub.get("repo")}, f" and {address} are two datasets: give one of them")
    revision = found["revision"] or hub.get("revision")
    return open_hub(source, split=hub.get("split"), revision=revision, repo=found["repo"])


def open_files(paths: Sequence[Path]) -> list[Rows]:
    """Rows of files; for a folder, of the files directly in it whose format is known, sorted by name."""
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


def open_hub(source: Source | None, *, split: str | None, revision: str | None, repo: str | None) -> Rows:
    """Rows of one split on the Hub, or of a local dataset folder given as `repo`."""
    home = getattr(source, "hub", None)
    if repo is not None:
        if repo.startswith((".", "/", "~")) and not Path(repo).is_dir():
            raise SourceError(f"{repo}: no such folder")
        if revision and Path(repo).is_dir():
            raise UsageError(Setting("revision"), " is for a repository on the Hub, not for a local folder")
        home = Hub(repo, home.split if home else "train", home.config if home else None)
    if home is None:
        raise UsageError(f"source {source and source.name!r} has no home on the Hub: name files, or ", Setting("repo"))
    return HubRows(home, split=split, revision=revision)
