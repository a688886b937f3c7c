"""Measure what speculation saves, and what a predictor is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.core.predictions import PredictionsFile
    from foretrace.core.progress import ProgressFunc
    from foretrace.core.trace import Trace
    from foretrace.dataset.score import ScoreReport
    from foretrace.evaluation.ceiling_report import CeilingReport
    from foretrace.evaluation.effects_manifest import EffectsManifest
    from foretrace.evaluation.replay_report import ReplayReport


def ceiling(
    traces: str | Path | Iterable[Trace],
    *,
    proposer_s: float = 0.2,
    allow: Sequence[str] = (),
    seed: int = 0,
    progress: ProgressFunc | None = None,
) -> CeilingReport:
    """Measure what a perfect predictor of the next calls would save on traces (docs/speculation.md).

    Args:
        traces: A traces folder, or `Trace` objects.
        proposer_s: Seconds that one guess takes.
        allow: Effects whose calls are safe to run early beside `pure_read`: `sandbox_exec`.
        seed: Seed of the bootstrap over tasks.

    Raises:
        UsageError: a setting that cannot be served.
        StoreError: the traces cannot be read.
    """
    from foretrace.evaluation.ceiling import measure_ceiling

    found, count = _read_traces(traces, "measuring", progress)
    return measure_ceiling(found, proposer_s=proposer_s, allow=allow, seed=seed, report_traces=count)


def effects(
    traces: str | Path | Iterable[Trace], out: str | Path | None = None, *, progress: ProgressFunc | None = None
) -> EffectsManifest:
    """Collect what the calls of traces would touch, by tool and pattern of arguments (docs/effects.md).

    Args:
        traces: A traces folder, or `Trace` objects.
        out: Where the manifest is written as JSON; None writes none.

    Raises:
        StoreError: the traces cannot be read, or the file cannot be written.
    """
    import msgspec

    from foretrace.core.files import replace_file
    from foretrace.evaluation.effects_manifest import collect_effects

    found, count = _read_traces(traces, "reading", progress)
    manifest = collect_effects(found, report_traces=count)
    if out is not None:
        replace_file(Path(out), msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return manifest


def replay(
    traces: str | Path | Iterable[Trace],
    predictions: str | Path | PredictionsFile,
    *,
    proposer_s: float = 0.2,
    verifier_s: float = 0.0,
    threshold: float | None = None,
    ahead: int = 1,
    top: int = 1,
    parallel: int | None = None,
    cancel: bool = True,
    price_token: float = 0.0,
    price_tool_s: float = 0.0,
    allow: Sequence[str] = (),
    seed: int = 0,
    progress: ProgressFunc | None = None,
) -> ReplayReport:
    """Measure what a predictor would have saved on the recorded times of traces (docs/replay.md).

    Args:
        traces: A traces folder, or `Trace` objects.
        predictions: A file of predictions, or what `read_predictions` made of one.
        proposer_s: Seconds of a guess, where its prediction does not say.
        verifier_s: Seconds between a guess and its launch.
        threshold: What a guess needs to be launched: of the verifier's score, or where no guess has one of the
            confidence.
        ahead: Steps that are guessed at once.
        top: Guesses at each step that are launched at once.
        parallel: Guessed calls that run at one time at most; None is no limit.
        cancel: Whether a wrong call is ended when the reply is known; if not, it runs on and holds its place.
        price_token: Price of a token that the proposer writes.
        price_tool_s: Price of a second of a tool.
        allow: Effects whose calls are safe to run early beside `pure_read`: `sandbox_exec`.
        seed: Seed of the bootstrap over tasks.

    Raises:
        UsageError: a setting that cannot be served.
        PredictionError: predictions that cannot be read, or of which none is for a step of the traces.
        StoreError: the traces cannot be read.
    """
    from foretrace.core.predictions import read_predictions
    from foretrace.evaluation.replay import replay_traces
    from foretrace.evaluation.replay_report import ReplaySettings

    settings = ReplaySettings(
        proposer_s=proposer_s,
        verifier_s=verifier_s,
        threshold=threshold,
        ahead=ahead,
        top=top,
        parallel=parallel,
        cancel=cancel,
        price_token=price_token,
        price_tool_s=price_tool_s,
        allow=tuple(allow),
        seed=seed,
    )
    settings.check()
    found, count = _read_traces(traces, "replaying", progress)
    if isinstance(predictions, (str, Path)):
        predictions = read_predictions(Path(predictions))
    return replay_traces(found, predictions, settings, report_traces=count)


def _read_traces(
    traces: str | Path | Iterable[Trace], doing: str, progress: ProgressFunc | None
) -> tuple[Iterable[Trace], Callable[[int], None]]:
    """The traces of a folder, or those given, and what reports how many of them are done."""
    from foretrace.core.store import TraceStore

    total, doing_what = None, f"{doing} traces"
    if isinstance(traces, (str, Path)):
        store, doing_what = TraceStore(traces), f"{doing} {traces}"
        total, traces = len(store.read_columns("key")), store.read()
    return traces, (lambda done: None) if progress is None else (lambda done: progress(doing_what, done, total))


def score(predictions: str | Path, dataset: str | Path, *, seed: int = 0, allow_partial: bool = False) -> ScoreReport:
    """Score a JSON-lines file of predictions on the eval rows of a dataset.

    Args:
        predictions: Each line has `key` and `step` of an eval row, and `completion`, or `action`, `tool`, `arguments`.
        seed: Seed of the bootstrap.
        allow_partial: Score although most predictions are for rows that the dataset does not have.

    Raises:
        BuildError: no eval rows, or predictions that cannot be read, or most of which are for other rows.
    """
    from foretrace.dataset.score import score as run

    return run(Path(predictions), Path(dataset), seed=seed, allow_partial=allow_partial)
