"""From names to objects: models, protocols, sandboxes, problem sets and sources, as users name them.

Only `api`, `cli`, `envs` and `doctor` use this; lower layers take objects. `core/plugins.py` looks plugins up. A name
that does not exist, an object that is not what it should be, or a setting that does not fit is a `UsageError`; what
cannot be read is a `SourceError` or `ProblemError`.
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
from foretrace.core.plugins import (
    BUILT_IN,
    check_arguments,
    check_members,
    load_plugin,
    make_plugin,
    plugin_names,
    suggest_name,
)
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
    """
    kind, _, name = spec.strip().partition(":")
    if kind in kinds:
        return kind, name
    attribute, _, rest = name.partition(":")
    if attribute.isidentifier() and all(part.isidentifier() for part in kind.split(".")) and attribute[0].isupper():
        return f"{kind}:{attribute}", rest
    near = suggest_name(kind, kinds)
    raise UsageError(f"unknown model {spec!r}{near}: give KIND:NAME, with one of {', '.join(sorted(kinds))}")


def make_model(spec: str, server: Server | None = None) -> ChatModel:
    """The model with this name; nothing is sent to it yet."""
    kind, name = split_spec(spec, plugin_names("model"))
    return make_plugin("model", kind, ChatModel, name, server or Server())


def make_protocol(name: str) -> InteractionProtocol:
    return make_plugin("protocol", name, InteractionProtocol)


def make_predictor(name: str) -> Predictor:
    """The predictor with this name, e.g. `regression`, `markov:2`, or `module:Class`; not fitted yet."""
    kind, _, option = name.partition(":")
    if kind in plugin_names("predictor"):
        return make_plugin("predictor", kind, Predictor, *([option] if option else []))
    return make_plugin("predictor", name, Predictor)


def make_sandbox(names: str, settings: SandboxSettings) -> Sandbox:
    """The sandbox for a comma-separated list of names; not started yet."""
    unique = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not unique:
        raise UsageError(Setting("sandbox"), " names nothing: name one or several, e.g. docker,local")
    # All are made before any is started, so that a misspelled name is found at once.
    return FallbackSandbox([(name, make_plugin("sandbox", name, Sandbox, settings)) for name in unique])


def split_problem_spec(name: str, path: Path | None) -> tuple[str, Path | None]:
    """The name of a set and its file of rows, from `NAME:FILE` or `module:Class:FILE`, or else both as given."""
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
    if ":" not in name and name not in plugin_names("problems") and (Path(name).suffix or Path(name).exists()):
        kind, what = ("harbor", "Harbor tasks") if Path(name).is_dir() else ("jsonl", "a file of rows")
        raise UsageError(f"{name!r} is not a problem set; for {what} give {kind}:{name}")
    return make_plugin("problems", name, ProblemSet)


def load_problems(
    name: str, path: Path | None, limit: int | None, *, on_unusable: Callable[[UnusableRow], None] | None = None
) -> list[Problem]:
    """The first problems of a set, given as `NAME` or `NAME:FILE`; all of them without a limit. Unusable rows before
    the last of these go to `on_unusable`; without it, they are errors."""
    name, path = split_problem_spec(name, path)
    problems, unusable = collect_problems(make_problem_set(name).load(path), limit)
    if unusable and on_unusable is None:
        raise ProblemError(f"{unusable[0].at}: {unusable[0].reason}")
    if not problems:
        raise ProblemError(describe_no_problem(unusable, path or name))
    if on_unusable is not None:
        for row in unusable:
            on_unusable(row)
    return check_problems(problems)


def load_usable_problems(
    name: str, path: Path | None, limit: int | None, note: Callable[[str, int], None] | None = None
) -> list[Problem]:
    """The first problems of a set, as in `load_problems`. Unusable rows are left out with a note and their
    number, by default a ForetraceWarning at the line that called `foretrace.generate`."""
    unusable: list[UnusableRow] = []
    problems = load_problems(name, path, limit, on_unusable=unusable.append)
    if unusable:
        name, path = split_problem_spec(name, path)
        of = f"{len(unusable):,} of {len(problems) + len(unusable):,} problems of {path or name}"
        line = f"left out {of}, e.g. {_name_first(unusable, path or name)}"
        note(line, len(unusable)) if note else warnings.warn(line, ForetraceWarning, stacklevel=3)
    return problems


def describe_no_problem(unusable: Sequence[UnusableRow], place: Path | str) -> str:
    """Why nothing in a file (or on the Hub) can be used."""
    if not unusable:
        return f"{place}: there is no problem in it"
    return f"{place}: none of its {len(unusable):,} problems can be used, e.g. {_name_first(unusable, place)}"


def _name_first(rows: Sequence[UnusableRow], place: Path | str) -> str:
    return f"{rows[0].at.removeprefix(f'{place} ')}: {rows[0].reason}"


def describe_plugins(kind: Literal["source", "problems"]) -> list[dict[str, Any]]:
    """Facts about all sources, or all problem sets, that have a name; `about` is the first paragraph of the module's
    docstring, `recognized` the first sentence of that of `recognize`, by which `auto` knows files."""
    found: list[dict[str, Any]] = []
    for name in plugin_names(kind):
        plugin = load_plugin(kind, name)
        about = " ".join((sys.modules[plugin.__module__].__doc__ or "").strip().partition("\n\n")[0].split())
        hub, count = getattr(plugin, "hub", None), getattr(plugin, "count", None)
        place = f"{hub.repo} ({hub.split})" if hub else "comes with foretrace" if count is not None else None
        facts: dict[str, Any] = {"name": name, "about": about, "license": plugin.license}
        if kind == "problems":
            found.append(facts | {"problems": count, "from": place})
            continue
        recognize = getattr(plugin, "recognize", None)
        text = " ".join((getattr(recognize, "__doc__", None) or "by its own test").split())
        recognized = None if recognize is None else text.partition(". ")[0].removesuffix(".")
        found.append(facts | {"hub": place or "local files only", "recognized": recognized})
    return found


def make_format(name: str) -> TraceFormat:
    return make_plugin("format", name, TraceFormat)


AUTO = "auto"
"""In place of a source's name: every file goes to the source that recognizes it."""
_HUB_URL = re.compile(
    r"(?:https://huggingface\.co/|hf://)datasets/(?P<repo>[^/?#@]+/[^/?#@]+)(?:(?:@|/tree/)(?P<revision>[^/?#]+))?/?"
)
_MAX_FIRST_ROWS = 10
"""Rows of a dataset on the Hub that are used to recognize it."""


def split_source(text: str) -> tuple[str, str | None]:
    """Name and split of a source: `swe_smith`, `swe_smith:tool`, `module:Class`."""
    name, colon, split = text.partition(":")
    if not colon or name not in plugin_names("source"):
        return text, None
    if not split:
        raise UsageError(f"{text!r}: no split behind the colon")
    return name, split


def is_own_source(text: str) -> bool:
    """Whether the source, perhaps with a split, is one of foretrace's own, which needs no code from outside."""
    return text.partition(":")[0] in (AUTO, *BUILT_IN["source"])


def split_input(source: Any, inputs: Any) -> tuple[Any, list[Any]]:
    """Source and inputs, whichever way they are named: `SOURCE=FILE`, or an input in place of the source."""
    listed = [inputs] if isinstance(inputs, (str, Path)) or hasattr(inputs, "read") else [*inputs]
    if isinstance(source, str):
        name, equals, path = source.partition("=")
        if equals and split_source(name)[0] in (AUTO, *plugin_names("source")):
            if not path:
                raise UsageError(f"{source!r}: no file behind the equals sign")
            return name, [path, *listed]
    is_input = isinstance(source, Path) or (isinstance(source, str) and _is_input(source))
    return (AUTO, [source, *listed]) if is_input else (source, listed)


def _is_input(text: str) -> bool:
    if text == "-" or "://" in text:
        return True
    if split_source(text)[0] in (AUTO, *plugin_names("source")):
        return False
    return Path(text).exists() or (":" not in text and not text.isidentifier())


def make_source(name: str, options: Mapping[str, Any] | None = None) -> Source | FileSource:
    known = plugin_names("source")
    if ":" not in name and name not in known:
        near = suggest_name(name, known)
        raise UsageError(f"{name}: no such file or source{near or '; the command `sources` lists the sources'}")
    plugin = load_plugin("source", name)
    given = {k: v for k, v in (options or {}).items() if v}
    known = inspect.signature(plugin).parameters if isinstance(plugin, type) else {}
    if unknown := [option for option in given if option not in known]:
        raise UsageError(f"source {name!r} has no ", Setting(unknown[0]), "; leave it out")
    if isinstance(plugin, type):
        check_arguments("source", name, plugin, **given)
        plugin = plugin(**given)
    check_members("source", name, plugin, FileSource if reads_files(plugin) else Source)
    return plugin


def reads_files(source: object) -> bool:
    """Whether a source is a `FileSource`, whose files hold whole conversations."""
    return hasattr(source, "read_traces")


def make_recognizers() -> dict[str, Any]:
    """All named sources that can recognize their files. A plugin that cannot be made is left out with a warning."""
    found: dict[str, Any] = {}
    for name in plugin_names("source"):
        try:
            source = make_source(name)
        except UsageError as error:
            if name in BUILT_IN["source"]:
                raise
            warnings.warn(f"left out: {error}", ForetraceWarning, stacklevel=2)
            continue
        if isinstance(source, RecognizedSource):
            found[name] = source
    return found


class OpenedInputs(NamedTuple):
    """The opened inputs of an import."""

    groups: list[SourceInputs]
    label: str
    """The input's name in messages."""
    found: FoundFiles | None = None
    """The result of searching folders, if sources had to recognize files."""


def open_inputs(
    source: str | Path | Source | FileSource,
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
    """
    named, given = split_input(source, inputs)
    listed = [path for each in given for path in _expand_pattern(each)]
    if named == AUTO:
        _refuse_given(options, " is for a source that is named: name it in the place of auto")
        if any(map(_find_dataset, listed)) or (hub.get("repo") and not listed):
            return _recognize_datasets(listed, hub)
    else:
        named, split = _open_source(named, hub.get("split"), options)
        hub = {**hub, "split": split}
        if not reads_files(named):
            rows = _tell_apart(_open_rows(cast("Source", named), listed, hub))
            label = rows[0].label if len(rows) == 1 else f"{len(rows)} files"
            return OpenedInputs([SourceInputs(named, rows=rows)], label)
    _refuse_given(hub, " is for rows on the Hub; name local files or folders, or a source of rows")
    return _open_found(named, _check_paths(listed), since, progress)


def _open_source(
    source: str | Source | FileSource, split: str | None, options: Mapping[str, Any]
) -> tuple[Source | FileSource, str | None]:
    """The source, with these options, and the split from its name or from `split`."""
    if not isinstance(source, str):
        _refuse_given(options, " is for a source that is named: give it to the Source object itself")
        return source, split
    name, own = split_source(source)
    if own and split and own != split:
        raise UsageError(f"{source!r} and ", Setting("split", split), " name two splits")
    return make_source(name, options), split or own


def _open_rows(source: Source | None, listed: Sequence[Any], hub: Mapping[str, str | None]) -> list[Rows]:
    """The raw rows of files, or by default those at the source's place on the Hub."""
    split = hub.get("split")
    if not listed:
        return [open_hub(source, split=split, revision=hub.get("revision"), repo=hub.get("repo"))]
    rows: list[Rows] = []
    for each in listed:
        if dataset := _find_dataset(each):
            _refuse_given({"repo": hub.get("repo")}, f" and {each} are two datasets: give one of them")
            revision = dataset["revision"] or hub.get("revision")
            rows.append(open_hub(source, split=split, revision=revision, repo=dataset["repo"]))
            continue
        others = {name: value for name, value in hub.items() if name != "split"}
        if not any(map(_find_dataset, listed)):
            _refuse_given(others, " is for rows on the Hub and would be ignored for local files; leave it out")
        files: list[Any] = open_files([Path(each)]) if isinstance(each, (str, Path)) else [each]
        for file in files:
            if isinstance(file, FileRows):
                file.split = split
            elif split is not None:
                raise UsageError(Setting("split", split), f" is for files and the Hub; {file.label} has its own")
            rows.append(cast("Any", file))
    return rows


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


def _recognize_datasets(listed: Sequence[Any], hub: Mapping[str, str | None]) -> OpenedInputs:
    """Rows of datasets on the Hub, each with the source that recognizes its first rows."""
    if local := [each for each in listed if not _find_dataset(each)]:
        raise UsageError(f"{local[0]}: import it by itself, without a dataset of the Hub beside it")
    sources = {name: one for name, one in make_recognizers().items() if not reads_files(one)}
    opened, files, groups = _open_rows(None, listed, hub), list[RecognizedFile](), dict[str, list[Rows]]()
    for rows in opened:
        first = [row.value for row in itertools.islice(rows.read(), _MAX_FIRST_ROWS)]
        head = FileHead(Path(rows.label), records=tuple(row for row in first if isinstance(row, dict)))
        claims = ask_sources(head, [*sources.values()])
        if len(claims) > 1:
            raise SourceError(f"{AmbiguousFile(head.path, claims).describe()}; name the source in the place of auto")
        if not claims:
            raise SourceError(
                f"{rows.label}: {describe_head(head)}: rows of no known format; name the source, or, if the "
                "repository holds session files, download it (`hf download`) and name its folder"
            )
        ((name, reason),) = claims.items()
        files.append(RecognizedFile(head.path, name, reason))
        groups.setdefault(name, []).append(rows)
    label = opened[0].label if len(opened) == 1 else f"{len(opened)} datasets"
    return OpenedInputs([SourceInputs(sources[n], rows=groups[n]) for n in sorted(groups)], label, FoundFiles(files))


def _open_found(source: Any, paths: list[Path], since: str | None, progress: ProgressFunc) -> OpenedInputs:
    sources = make_recognizers() if source == AUTO else {source.name: source}
    since_s = None if since is None else parse_date(since)
    found = find_files(paths, [*sources.values()], is_named=source != AUTO, since=since_s, progress=progress)
    label = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files and folders"
    if not found.files:
        found.check_not_ambiguous()
        raise SourceError(f"{label}: {_describe_nothing(found, None if source == AUTO else source.name)}")
    groups = [
        SourceInputs(sources[name], files=files)
        if reads_files(sources[name])
        else SourceInputs(sources[name], rows=_tell_apart(open_files(files)))
        for name, files in found.group().items()
    ]
    return OpenedInputs(groups, label, found)


def _describe_nothing(found: FoundFiles, name: str | None) -> str:
    if found.too_old:
        return f"{count_things(found.too_old, 'known file')}, which were last changed before the date"
    if not found.unknown_count:
        return "holds no files"
    first = found.unknown[0]
    more = f"; and {found.unknown_count - 1:,} more" if found.unknown_count > 1 else ""
    return (
        f"nothing in {f'the format of {name}' if name else 'a known format'} ({first.path.name}: {first.seen}{more}); "
        "the command `sources` lists the formats; for messages of your own, use the source chat and a map of columns, "
        "or write a source (docs/sources.md)"
    )


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


def _check_paths(listed: Sequence[Any]) -> list[Path]:
    if not listed:
        raise UsageError("name the files or folders to look into")
    for each in listed:
        if not isinstance(each, (str, Path)):
            raise UsageError(f"a {type(each).__name__} is not a path: give files or folders")
        if re.match(r"\w+://", str(each)):
            raise UsageError(f"{each}: name a dataset on the Hub as hf://datasets/OWNER/NAME, or local files")
    return [Path(each) for each in listed]


def _expand_pattern(each: Any) -> list[Any]:
    """The files that match a pattern such as `logs/**/*.jsonl`, sorted; anything else unchanged."""
    if not isinstance(each, (str, Path)):
        return [each]
    address = find_address(each)
    if address is not None and address.scheme != "hf":
        raise UsageError(f"{address}: rows are read from files of this machine, or from the Hub; copy it here first")
    if not glob.has_magic(str(each)) or Path(each).exists():
        return [each]
    if not (found := sorted(glob.glob(str(each), recursive=True))):
        raise SourceError(f"{each}: no file has a name like this")
    return [*found]


def _find_dataset(each: Any) -> re.Match[str] | None:
    return _HUB_URL.fullmatch(each) if isinstance(each, str) else None


def _refuse_given(options: Mapping[str, Any], why: str) -> None:
    for name, value in options.items():
        if value:
            raise UsageError(Setting(name), why)
