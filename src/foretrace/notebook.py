"""The same work from a notebook: names or objects and plain paths in, reports out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from foretrace.actions import StepLabel
    from foretrace.core.problem import Problem
    from foretrace.core.trace import Trace
    from foretrace.dataset.build import BuildReport
    from foretrace.episodes._status import Status
    from foretrace.episodes.generate import GenerateReport
    from foretrace.models.base import ChatModel, Server
    from foretrace.protocols.base import Protocol
    from foretrace.sandbox.base import Sandbox
    from foretrace.sources._importing import ImportReport
    from foretrace.sources.base import Rows, Source


def import_source(
    source: str | Source,
    inputs: str | Path | Rows | Sequence[str | Path | Rows] = (),
    *,
    out: str | Path,
    split: str | None = None,
    revision: str | None = None,
    repo: str | None = None,
    limit: int | None = None,
    replace: bool = False,
    shards: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> ImportReport:
    """Import raw rows into the traces folder `out`, which is made if absent; an interrupted import goes on.

    Args:
        source: Name of a source (`swe_smith`, `swe_smith:tool`, `module:Class`), or a `Source` object.
        inputs: Files or folders of files, or `Rows` objects; none reads the source's place on the Hub.
        split: Split on the Hub, with `revision` and `repo` (or a local dataset folder).
        limit: Rows of each input that are read at most.
        replace: Take a trace whose key is known with other content.
        shards: Number of shards of a new folder.

    Returns:
        Counts: `rows == traces + sum(drops) + already`.

    Raises:
        UsageError: an option that does not fit.
        SourceError: input that cannot be read.
        StoreError: `out` cannot be written.
    """
    from foretrace.cli._inputs import file_inputs, hub_input, make_source, read_spec
    from foretrace.core.errors import UsageError
    from foretrace.sources._importing import import_source as run

    if isinstance(source, str):
        spec = read_spec(source)
        if spec.path is not None or (split and spec.split not in (None, split)):
            raise UsageError(f"{source!r}: give files as inputs, and one split")
        source, split = make_source(spec.name), split or spec.split
    one = isinstance(inputs, (str, Path)) or hasattr(inputs, "read")
    listed: list[Any] = [inputs] if one else [*cast("Any", inputs)]
    if listed and (split or revision or repo):
        raise UsageError("split, revision and repo are for rows on the Hub; leave them out for local files")
    rows: list[Rows] = []
    for each in listed:
        rows.extend(file_inputs([Path(each)]) if isinstance(each, (str, Path)) else [each])
    if not listed:
        rows = [hub_input(source, split=split, revision=revision, repo=repo)]
    return run(source, rows, out, limit=limit, replace=replace, shards=shards, progress=progress)


def generate(
    problems: str | Sequence[Problem],
    *,
    model: str | ChatModel,
    protocol: str | Protocol,
    out: str | Path,
    path: str | Path | None = None,
    limit: int | None = None,
    server: Server | None = None,
    sandbox: str | Sandbox = "local",
    progress: Callable[[Status], None] | None = None,
    **settings: Any,
) -> GenerateReport:
    """Attempt problems with a model into the traces folder `out`, which is made if absent; the same call goes on.

    A model and a sandbox that are given as objects are closed at the end.

    Args:
        problems: Name of a problem set, or `Problem` objects.
        model: As on the command line (`ollama:qwen3-coder`, `scripted:FILE`), or a `ChatModel`.
        protocol: Name of a protocol, or a `Protocol`.
        path: File or folder of the problem set, else the Hub.
        limit: Only the first problems.
        server: Where the model server is, for a model that is named.
        sandbox: Names in order of preference, or a `Sandbox`.
        settings: Those of `GenerateSettings`: samples, seed, keep, concurrency, and the tables sampling, episode and
            budget.

    Raises:
        UsageError: a setting that is unknown or cannot be served.
        ProblemError: a problem set that cannot be used.
        ModelError: the server cannot be reached or refuses for good; what was finished is kept.
        SandboxError: no sandbox serves; what was finished is kept.
        StoreError: `out` cannot be written.
    """
    import msgspec

    from foretrace.cli import _generating as names
    from foretrace.core.errors import UsageError
    from foretrace.episodes._plan import GenerateSettings

    try:
        chosen = msgspec.convert(msgspec.to_builtins(settings), GenerateSettings, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"generate settings: {error}") from None
    if isinstance(problems, str):
        problems = names.problems_of(problems, None if path is None else Path(path), limit)
    elif path is not None:
        raise UsageError("path is for a problem set that is named; leave it out for Problem objects")
    talk = names.protocol_of(protocol) if isinstance(protocol, str) else protocol
    box = names.sandbox_for(sandbox, chosen.concurrency) if isinstance(sandbox, str) else sandbox
    asked = names.model_of(model, server) if isinstance(model, str) else model
    return names.run(problems[:limit], talk, asked, box, Path(out), chosen, progress)


def label(trace: Trace) -> list[StepLabel]:
    """One label for each assistant message of the trace: its action (null where it is no step), rule, effect."""
    from foretrace.actions.classify import label_trace

    return label_trace(trace)


def build(
    traces: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    workers: int = 1,
    overwrite: bool = False,
    progress: Callable[[str, int], None] | None = None,
    **settings: Any,
) -> BuildReport:
    """Build a dataset from traces folders; `settings` are those of `foretrace.dataset.settings.BuildSettings`.

    Raises:
        UsageError: a setting that is unknown or cannot be served; traces of the demo model without `allow_demo=True`.
        BuildError: the dataset cannot be built, or is there already.
        GateError: a gate failed; nothing was written.
    """
    import msgspec

    from foretrace.core.errors import UsageError
    from foretrace.dataset.build import build as run
    from foretrace.dataset.settings import BuildSettings

    folders = [Path(traces)] if isinstance(traces, (str, Path)) else [Path(t) for t in traces]
    try:
        chosen = msgspec.convert(settings, BuildSettings, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"build settings: {error}") from None
    chosen.check()
    return run(folders, Path(out), chosen, workers=workers, overwrite=overwrite, progress=progress)
