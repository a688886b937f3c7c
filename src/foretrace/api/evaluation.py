"""Measure what speculation saves: the ceiling, guesses of a predictor, and their replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.core.errors import Setting, UsageError
from foretrace.core.places import make_local_path
from foretrace.core.progress import ignore_progress

if TYPE_CHECKING:
    from foretrace.core.predictions import PredictionsFile
    from foretrace.core.progress import ProgressFunc
    from foretrace.core.trace import Trace
    from foretrace.evaluation.ceiling_report import CeilingReport
    from foretrace.evaluation.effects_manifest import EffectsManifest
    from foretrace.evaluation.predict import PredictedRows, PredictReport, PredictSettings
    from foretrace.evaluation.predictors.base import Predictor
    from foretrace.evaluation.replay_report import ReplayReport
    from foretrace.evaluation.step_times import AssumedTimes
    from foretrace.models.base import ChatModel, Server


def ceiling(
    traces: str | Path | Iterable[Trace],
    *,
    guess_latency: float = 0.2,
    assume_times: str | Path | Mapping[str, float] | AssumedTimes | None = None,
    allow: Sequence[str] = (),
    seed: int = 0,
    progress: ProgressFunc | None = None,
) -> CeilingReport:
    """Measure what a perfect predictor of the next calls would save on traces (docs/speculation.md).

    Args:
        traces: A traces folder, or `Trace` objects.
        guess_latency: Seconds that one guess takes.
        assume_times: Times for steps that have none: `tracelab` (published medians), `model=6,tool=0.5,verifier=12`
            (seconds; or a table of them), or a TOML file with such keys.
        allow: Effects whose calls are safe to run early beside `pure_read`: `sandbox_exec`.
        seed: Seed of the bootstrap over tasks.

    Raises:
        UsageError: a setting that cannot be served.
        StoreError: the traces cannot be read.
    """
    from foretrace.evaluation.ceiling import measure_ceiling

    found, count = _read_traces(traces, "measuring", progress)
    return measure_ceiling(
        found,
        guess_latency=guess_latency,
        assume_times=_read_times(assume_times),
        allow=allow,
        seed=seed,
        report_traces=count,
    )


def effects(
    traces: str | Path | Iterable[Trace], out: str | Path | None = None, *, progress: ProgressFunc | None = None
) -> EffectsManifest:
    """Collect what the calls of traces would touch, by tool and pattern of arguments (docs/speculation.md).

    Args:
        traces: A traces folder, or `Trace` objects.
        out: Where the manifest is written as JSON; None writes none.

    Raises:
        StoreError: the traces cannot be read, or the file cannot be written.
    """
    import msgspec

    from foretrace.core.files import replace_file
    from foretrace.evaluation.effects_manifest import collect_effects

    file = None if out is None else make_local_path(out)
    found, count = _read_traces(traces, "reading", progress)
    manifest = collect_effects(found, report_traces=count)
    if file is not None:
        replace_file(file, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return manifest


def replay(
    traces: str | Path | Iterable[Trace],
    predictions: str | Path | PredictionsFile,
    *,
    guess_latency: float | None = None,
    assume_times: str | Path | Mapping[str, float] | AssumedTimes | None = None,
    verifier_s: float | None = None,
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
    """Measure what a predictor would have saved on the recorded times of traces (docs/speculation.md).

    Args:
        traces: A traces folder, or `Trace` objects.
        predictions: A file of predictions, or what `read_predictions` made of one.
        guess_latency: Seconds of every guess; None takes what its prediction says, else 0.2.
        assume_times: Times for steps that have none, as for `ceiling`.
        verifier_s: Seconds between a guess and its launch; None takes what the predictions say of their scores.
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
    given = locals()
    from foretrace.api.settings import pick_settings
    from foretrace.core.predictions import read_predictions
    from foretrace.evaluation.replay import replay_traces
    from foretrace.evaluation.replay_report import ReplaySettings

    settings = pick_settings(ReplaySettings, given, allow=tuple(allow), assume_times=_read_times(assume_times))
    settings.check()
    found, count = _read_traces(traces, "replaying", progress)
    if isinstance(predictions, (str, Path)):
        predictions = read_predictions(predictions)
    return replay_traces(found, predictions, settings, report_traces=count)


def _read_times(given: str | Path | Mapping[str, float] | AssumedTimes | None) -> AssumedTimes | None:
    from foretrace.evaluation.step_times import read_assumed_times

    return None if given is None else read_assumed_times(given)


def _read_traces(
    traces: str | Path | Iterable[Trace], doing: str, progress: ProgressFunc | None
) -> tuple[Iterable[Trace], Callable[[int], None]]:
    """The traces of a folder, or those given, and what reports how many of them are done."""
    from foretrace.core.store import TraceStore

    total, doing_what = None, f"{doing} traces"
    if isinstance(traces, (str, Path)):
        store, doing_what = TraceStore(make_local_path(traces)), f"{doing} {traces}"
        total, traces = len(store.read_columns("key")), store.read()
    return traces, (lambda done: None) if progress is None else (lambda done: progress(doing_what, done, total))


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
    rows: PredictedRows = "eval",
    k: int = 5,
    limit: int | None = None,
    seed: int = 0,
    folds: int | None = None,
    times: bool = True,
    progress: ProgressFunc | None = None,
) -> PredictReport:
    """Let a predictor or a model guess at the rows of a dataset, and write a file of predictions (docs/speculation.md).

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
        rows: `eval`, by what was learnt from all train rows; `proposer`: the train rows, in `folds` parts of groups,
            each by what was learnt from the others; or `validation`: the validation rows of `proposer`, by what was
            learnt from all train rows. A model learns nothing here.
        k: Guesses at a row at most.
        limit: Only the first rows.
        seed: Assigns groups to folds, and gives each answer its own seed.
        folds: With the train rows and a predictor: 5 where it is None.
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
    doing = f"predicting with {model}" if isinstance(model, str) else "predicting"
    count = (lambda done, total: None) if progress is None else (lambda done, total: progress(doing, done, total))
    if (predictor is None) == (model is None):
        raise UsageError("name one that guesses: ", Setting("predictor"), " or ", Setting("model"))
    how = {"samples": samples, "logprobs": logprobs, "temperature": temperature, "max_tokens": max_tokens}
    how |= {"concurrency": concurrency}
    if predictor is not None:
        _refuse_model_settings(how)
        local, written = make_local_path(dataset), make_local_path(out)
        return _run_predictor(local, predictor, written, settings, progress or ignore_progress)
    if folds is not None:
        raise UsageError(Setting("folds", folds), " is for a predictor: a model learns nothing here")
    return _run_model(make_local_path(dataset), model, server, make_local_path(out), settings, how, count)


def _refuse_model_settings(how: dict[str, Any]) -> None:
    """Refuse what only a model would heed."""
    from foretrace.evaluation.predict_with_model import ModelSettings

    for name, value in how.items():
        if value != getattr(ModelSettings(), name):
            raise UsageError(Setting(name, value), " is for a model: name it with ", Setting("model"))


def _run_predictor(
    dataset: Path,
    predictor: str | Callable[[], Predictor],
    out: Path,
    settings: PredictSettings,
    progress: ProgressFunc,
) -> PredictReport:
    from foretrace.evaluation.predict import predict
    from foretrace.registry import make_predictor

    if isinstance(predictor, str):
        return predict(dataset, predictor, lambda: make_predictor(predictor), out, settings, progress)
    name = getattr(predictor, "__name__", type(predictor).__name__)
    return predict(dataset, name, predictor, out, settings, progress)


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
