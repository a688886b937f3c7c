"""Measure what speculation saves, and what a predictor is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.core.errors import Setting, UsageError

if TYPE_CHECKING:
    from foretrace.core.progress import ProgressFunc
    from foretrace.core.trace import Trace
    from foretrace.dataset.score import ScoreReport
    from foretrace.evaluation.ceiling_report import CeilingReport
    from foretrace.evaluation.predict import PredictedConfig, PredictReport, PredictSettings
    from foretrace.evaluation.predictors.base import Predictor
    from foretrace.models.base import ChatModel, Server


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
    out: str | Path,
    predictor: str | Callable[[], Predictor] | None = None,
    model: str | ChatModel | None = None,
    server: Server | None = None,
    samples: int = 5,
    logprobs: bool = False,
    temperature: float = 0.7,
    max_tokens: int = 1024,
    concurrency: int | None = None,
    rows: PredictedConfig = "eval",
    k: int = 5,
    limit: int | None = None,
    seed: int = 0,
    folds: int = 5,
    times: bool = True,
    progress: ProgressFunc | None = None,
) -> PredictReport:
    """Let a predictor or a model guess at the rows of a dataset, and write a file of predictions (docs/predict.md).

    A model that is given as an object is closed at the end.

    Args:
        dataset: Folder that `build` wrote.
        out: File of predictions, for `score`. The answers of a model stand in a journal beside it until all are there:
            the same call again goes on from them.
        predictor: `majority`, `markov:1` to `markov:3`, `regression`, `memory`, `module:Class`, or a class.
        model: Instead of a predictor: as on the command line (`openai:NAME`), or a `ChatModel`.
        server: Where the model server is, for a model that is named.
        samples: Answers of the model to each prompt.
        logprobs: The confidence is the probability of the model's reply, and not its share of the samples.
        temperature: Of the model's sampling.
        max_tokens: Tokens of one answer at most.
        concurrency: Requests at a time; None finds out what the server can do.
        rows: `eval`, by what was learnt from all train rows; or `proposer`: the train rows, in `folds` parts of
            groups, each by what was learnt from the others (a model learns nothing here).
        k: Guesses at a row at most.
        limit: Only the first rows.
        seed: Assigns groups to folds, and gives each answer its own seed.
        times: Write how long each row took; without, the same guesses give the same bytes.

    Raises:
        UsageError: a setting that cannot be served.
        PredictionError: no dataset, no rows, or a predictor or model that fails at every row.
        ModelError: the server cannot be reached, or refuses for good; what was answered is kept.
        StoreError: `out` cannot be written.
    """
    from foretrace.api.settings import make_settings
    from foretrace.evaluation.predict import PredictSettings

    settings = make_settings(PredictSettings, rows=rows, k=k, limit=limit, seed=seed, folds=folds, times=times)
    count = (
        (lambda done, total: None) if progress is None else (lambda done, total: progress("predicting", done, total))
    )
    if (predictor is None) == (model is None):
        raise UsageError("name one that guesses: ", Setting("predictor"), " or ", Setting("model"))
    if predictor is not None:
        return _run_predictor(Path(dataset), predictor, Path(out), settings, count)
    how = {"samples": samples, "logprobs": logprobs, "temperature": temperature, "max_tokens": max_tokens}
    return _run_model(Path(dataset), model, server, Path(out), settings, how | {"concurrency": concurrency}, count)


def _run_predictor(
    dataset: Path,
    predictor: str | Callable[[], Predictor],
    out: Path,
    settings: PredictSettings,
    count: Callable[[int, int], None],
) -> PredictReport:
    from foretrace.evaluation.predict import predict
    from foretrace.registry import make_predictor

    if isinstance(predictor, str):
        return predict(dataset, predictor, lambda: make_predictor(predictor), out, settings, count)
    name = getattr(predictor, "__name__", type(predictor).__name__)
    return predict(dataset, name, predictor, out, settings, count)


def _run_model(
    dataset: Path,
    model: Any,
    server: Server | None,
    out: Path,
    settings: PredictSettings,
    how: dict[str, Any],
    count: Callable[[int, int], None],
) -> PredictReport:
    from foretrace.api.event_loop import run_in_event_loop
    from foretrace.api.settings import make_settings
    from foretrace.evaluation.predict_with_model import ModelSettings, predict_with_model
    from foretrace.registry import make_model

    model_settings = make_settings(ModelSettings, **how)
    asked: ChatModel = make_model(model, server) if isinstance(model, str) else model

    async def work() -> PredictReport:
        try:
            return await predict_with_model(dataset, asked, out, settings, model_settings, count)
        finally:
            await asked.close()

    return run_in_event_loop(work)


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
