"""Measure what speculation saves, and what a predictor is worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.core.progress import ProgressFunc
    from foretrace.core.trace import Trace
    from foretrace.evaluation.ceiling_report import CeilingReport
    from foretrace.evaluation.score_report import ScoreReport


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


def score(
    predictions: str | Path,
    dataset: str | Path,
    *,
    against: str | Path | None = None,
    allow: Sequence[str] = (),
    seed: int = 0,
    allow_partial: bool = False,
    allow_other_version: bool = False,
) -> ScoreReport:
    """Score a file of predictions on the eval rows of a dataset (docs/score.md).

    Args:
        predictions: JSON lines, each with `key` and `step` of an eval row, and `prediction`, `completion`, or `action`,
            `tool`, `arguments`; further guesses at a step have `rank` 2, 3, ...
        against: Another such file: by how much are the predictions better?
        allow: Effects whose calls are safe to run early beside `pure_read`: `sandbox_exec`.
        seed: Seed of the bootstrap.
        allow_partial: Score although most predictions are for rows that the dataset does not have.
        allow_other_version: Score although the file names another version of the dataset.

    Raises:
        UsageError: a setting that cannot be served.
        PredictionError: no eval rows, or predictions that cannot be read, or that are for other rows.
    """
    from foretrace.evaluation.score import score as run

    return run(
        predictions,
        dataset,
        against=against,
        allow=allow,
        seed=seed,
        allow_partial=allow_partial,
        allow_other_version=allow_other_version,
    )
