"""Measure what speculation saves, and what a predictor is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.core.progress import ProgressFunc
    from foretrace.core.trace import Trace
    from foretrace.dataset.score import ScoreReport
    from foretrace.evaluation.ceiling_report import CeilingReport
    from foretrace.evaluation.predict import PredictedConfig, PredictReport
    from foretrace.evaluation.predictors.base import Predictor


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
    from foretrace.core.store import TraceStore
    from foretrace.evaluation.ceiling import measure_ceiling

    total, doing = None, "measuring traces"
    if isinstance(traces, (str, Path)):
        store, doing = TraceStore(traces), f"measuring {traces}"
        total, traces = len(store.read_columns("key")), store.read()
    count = (lambda done: None) if progress is None else (lambda done: progress(doing, done, total))
    return measure_ceiling(traces, proposer_s=proposer_s, allow=allow, seed=seed, report_traces=count)


def predict(
    dataset: str | Path,
    *,
    predictor: str | Callable[[], Predictor],
    out: str | Path,
    rows: PredictedConfig = "eval",
    k: int = 5,
    limit: int | None = None,
    seed: int = 0,
    folds: int = 5,
    times: bool = True,
    progress: ProgressFunc | None = None,
) -> PredictReport:
    """Let a predictor guess at the rows of a dataset, and write a file of predictions (docs/predict.md).

    Args:
        dataset: Folder that `build` wrote.
        predictor: `majority`, `markov:1` to `markov:3`, `regression`, `memory`, `module:Class`, or a class.
        out: File of predictions, for `score`.
        rows: `eval`, by what was learnt from all train rows; or `proposer`: the train rows, in `folds` parts of
            groups, each by what was learnt from the others.
        k: Guesses at a row at most.
        limit: Only the first rows.
        seed: Assigns groups to folds.
        times: Write how long each row took; without, the same rows give the same bytes.

    Raises:
        UsageError: a setting that cannot be served.
        PredictionError: no dataset, no rows, or a predictor that fails to learn or fails at every row.
        StoreError: `out` cannot be written.
    """
    from foretrace.api.settings import make_settings
    from foretrace.evaluation.predict import PredictSettings
    from foretrace.evaluation.predict import predict as run
    from foretrace.registry import make_predictor

    settings = make_settings(PredictSettings, rows=rows, k=k, limit=limit, seed=seed, folds=folds, times=times)
    name = predictor if isinstance(predictor, str) else getattr(predictor, "__name__", type(predictor).__name__)
    make = (lambda: make_predictor(predictor)) if isinstance(predictor, str) else predictor
    count = (
        (lambda done, total: None) if progress is None else (lambda done, total: progress("predicting", done, total))
    )
    return run(Path(dataset), name, make, Path(out), settings, count)


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
