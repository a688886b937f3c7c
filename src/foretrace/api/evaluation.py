"""Measure what speculation saves, and what a predictor is worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.core.progress import ProgressFunc
    from foretrace.core.trace import Trace
    from foretrace.dataset.score import ScoreReport
    from foretrace.evaluation.ceiling_report import CeilingReport


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
