"""The same work from a notebook: names or objects and plain paths in, reports out."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from foretrace.actions import StepLabel
    from foretrace.core.problem import Problem
    from foretrace.core.trace import Trace
    from foretrace.dataset.build import BuildReport
    from foretrace.episodes.generate.engine import GenerateReport
    from foretrace.episodes.generate.progress import RunProgress
    from foretrace.episodes.generate.resume import GenerateSettings
    from foretrace.models.base import ChatModel, Server
    from foretrace.protocols.base import InteractionProtocol
    from foretrace.rows.base import Rows
    from foretrace.sandbox.base import Sandbox
    from foretrace.sources.base import Source
    from foretrace.sources.importing import ImportReport

MAX_SESSIONS = 128
"""Sessions of the sandbox at one time, where the number of attempts is not given: each is a process that stays."""


class TerminatedError(Exception):
    """The process was asked to end (SIGTERM), and what was finished is sealed."""


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
    from foretrace.core.errors import UsageError
    from foretrace.sources.importing import import_source as run
    from foretrace.sources.registry import file_inputs, hub_input, make_source, read_spec

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
    protocol: str | InteractionProtocol,
    out: str | Path,
    path: str | Path | None = None,
    limit: int | None = None,
    server: Server | None = None,
    sandbox: str | Sandbox = "local",
    progress: Callable[[RunProgress], None] | None = None,
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

    from foretrace.core.errors import UsageError
    from foretrace.episodes.generate.resume import GenerateSettings
    from foretrace.models.registry import resolve_model
    from foretrace.problems.registry import problems_of
    from foretrace.protocols.registry import make_protocol
    from foretrace.sandbox.base import Settings
    from foretrace.sandbox.registry import make_sandbox

    try:
        chosen = msgspec.convert(msgspec.to_builtins(settings), GenerateSettings, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"generate settings: {error}") from None
    if isinstance(problems, str):
        problems = problems_of(problems, None if path is None else Path(path), limit)
    elif path is not None:
        raise UsageError("path is for a problem set that is named; leave it out for Problem objects")
    protocol = make_protocol(protocol) if isinstance(protocol, str) else protocol
    if isinstance(sandbox, str):
        sandbox = make_sandbox(sandbox, Settings(max_sessions=chosen.concurrency or MAX_SESSIONS))
    model = resolve_model(model, server) if isinstance(model, str) else model
    return run_generate(problems[:limit], protocol, model, sandbox, Path(out), chosen, progress)


def run_generate(
    problems: Sequence[Problem],
    protocol: InteractionProtocol,
    model: ChatModel,
    sandbox: Sandbox,
    out: Path,
    settings: GenerateSettings,
    progress: Callable[[RunProgress], None] | None = None,
    *,
    failed: Callable[[GenerateReport], None] | None = None,
    ends_on_sigterm: bool = False,
) -> GenerateReport:
    """Generate, in a loop of its own: in another thread where one is running here, as in a notebook.

    Args:
        failed: See `generate`.
        ends_on_sigterm: SIGTERM ends the run as an interrupt does, where the process has no other use for it.

    Raises:
        TerminatedError: SIGTERM came.
    """
    from concurrent.futures import ThreadPoolExecutor

    from foretrace.core.version import __version__
    from foretrace.episodes.generate.engine import generate

    terminated: list[bool] = []

    async def work() -> GenerateReport:
        if ends_on_sigterm:
            _on_sigterm(asyncio.current_task(), terminated)
        try:
            return await generate(
                problems,
                protocol,
                model,
                sandbox,
                out,
                settings,
                versions={"foretrace": __version__},
                progress=progress,
                failed=failed,
            )
        finally:
            await model.close()
            await sandbox.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return asyncio.run(work())
        except asyncio.CancelledError:
            if terminated:
                raise TerminatedError from None
            raise
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work()).result()


def _on_sigterm(task: asyncio.Task[Any] | None, came: list[bool]) -> None:
    """Cancel the task when SIGTERM comes, and note that it came."""

    def end() -> None:
        came.append(True)
        if task is not None:
            task.cancel()

    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread, or no Unix
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)  # taken off when the loop is closed


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
