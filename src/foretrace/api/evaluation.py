"""Measure what speculation saves: the ceiling, a predictor's guesses, a verifier's scores, and their replay."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from foretrace.api.event_loop import run_with_model
from foretrace.api.settings import pick_settings
from foretrace.core.errors import Setting, UsageError
from foretrace.core.files import check_suffix, replace_file
from foretrace.core.places import make_local_path
from foretrace.core.predictions import PredictionsFile, read_predictions
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.references import FOLDER, References, write_references
from foretrace.core.store import TraceStore
from foretrace.core.trace import ToolCall, Trace

if TYPE_CHECKING:
    from foretrace.evaluation.ceiling import CeilingReport
    from foretrace.evaluation.effects_manifest import CheckedCall, EffectsManifest
    from foretrace.evaluation.predict import PredictReport
    from foretrace.evaluation.predictors.base import Predictor
    from foretrace.evaluation.replay_report import ReplayReport
    from foretrace.evaluation.step_times import AssumedTimes
    from foretrace.evaluation.verify import VerifyReport
    from foretrace.models.base import ChatModel, Server

_TRACES_PER_WORKER = 200
"""Fewer traces are measured before another process has started."""
REFERENCES = ("majority", "markov:1", "markov:2", "markov:3", "regression", "memory")
"""Predictors whose figures are shown next to every score."""


def ceiling(
    traces: str | Path | Iterable[Trace],
    *,
    guess_latency: float = 0.2,
    assume_times: str | Mapping[str, float] | AssumedTimes | None = None,
    allow: Sequence[str] = (),
    seed: int = 0,
    workers: int = 1,
    progress: ProgressFunc | None = None,
) -> CeilingReport:
    """Measure what a perfect predictor of the next calls would save on traces (docs/speculation.md).

    Args:
        traces: Traces folder.
        guess_latency: Seconds that one guess of a predictor takes.
        assume_times: Times for steps that have none: tracelab (published medians), or model=6,tool=0.5 (seconds).
        allow: Effects that are safe to run early besides pure_read: sandbox_exec; may be repeated.
        seed: Seed of the bootstrap over tasks.
        workers: Processes that measure a folder at once (1); the result is the same.

    Raises:
        UsageError: a setting is invalid.
        StoreError: the traces cannot be read.
    """
    from foretrace.engines.in_order import Job, jobs_at_once, run_in_order
    from foretrace.engines.processes import Processes
    from foretrace.evaluation.ceiling import Ceiling, measure_shard
    from foretrace.evaluation.step_times import read_assumed_times

    settings: dict[str, Any] = {"guess_latency": guess_latency, "assume_times": read_assumed_times(assume_times)}
    settings |= {"allow": allow, "seed": seed}
    found = Ceiling(**settings)
    if not isinstance(traces, (str, Path)) or workers <= 1:
        found.add_all(_read_traces(traces, "measuring", progress))
        return found.make_report()
    store, report_to = TraceStore(make_local_path(traces)), progress or ignore_progress
    useful = min(len(store.shards), 1 + len(store.read_columns("key")) // _TRACES_PER_WORKER)
    with Processes(workers).open_pool(useful=useful, helps=True) as pool:
        jobs = (Job(measure_shard, (settings, store.folder, shard), 1) for shard in store.shards)
        for number, part in enumerate(run_in_order(pool, jobs, jobs_at_once(pool)), 1):
            found.merge(part)
            report_to(f"measuring {traces}", number, len(store.shards))
    return found.make_report()


def effects(
    traces: str | Path | Iterable[Trace], out: str | Path | None = None, *, progress: ProgressFunc | None = None
) -> EffectsManifest:
    """Collect what the calls of traces would touch, by tool and pattern of arguments (docs/speculation.md).

    Args:
        traces: Traces folder.
        out: File for the manifest, NAME.json.

    Raises:
        UsageError: the file has another ending.
        StoreError: the traces cannot be read, or the file cannot be written.
    """
    from foretrace.evaluation.effects_manifest import collect_effects

    file = None if out is None else make_local_path(out)
    if file is not None:
        check_suffix(file, ".json")
    manifest = collect_effects(_read_traces(traces, "reading", progress))
    if file is not None:
        replace_file(file, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return manifest


def check_call(
    name: str | Mapping[str, Any],
    arguments: str | Mapping[str, Any] = "{}",
    *,
    manifest: str | Path | EffectsManifest | None = None,
    allow: Sequence[str] = (),
) -> CheckedCall:
    """Whether a runtime may run a call before the model has asked for it (docs/speculation.md).

    Args:
        name: Of the tool; or the whole call, {"name": ..., "arguments": {...}}.
        arguments: An object, or its JSON text.
        manifest: What `effects` wrote of the agent's own traces, or returned.
        allow: Effects that are safe to run early besides pure_read: sandbox_exec; may be repeated.

    Raises:
        UsageError: this is not a call, or an effect cannot be allowed.
        PredictionError: the file is not a manifest.
    """
    from foretrace.evaluation.effects_manifest import check_call, read_manifest
    from foretrace.evaluation.savings import choose_safe_effects

    call: Mapping[str, Any] = name if isinstance(name, Mapping) else {"name": name, "arguments": arguments}
    tool, given = call.get("name"), call.get("arguments", {})
    if not (tool and isinstance(tool, str) and isinstance(given, (str, Mapping))):
        raise UsageError('not a call: give the name of a tool and its arguments, or {"name": ..., "arguments": {...}}')
    text = given if isinstance(given, str) else json.dumps(dict(given))
    if isinstance(manifest, (str, Path)):
        manifest = read_manifest(make_local_path(manifest))
    return check_call(ToolCall(name=tool, arguments=text), choose_safe_effects(allow), manifest)


def replay(
    traces: str | Path | Iterable[Trace],
    predictions: str | Path | PredictionsFile,
    *,
    guess_latency: float | None = None,
    assume_times: str | Mapping[str, float] | AssumedTimes | None = None,
    verifier_s: float | None = None,
    threshold: float | None = None,
    ahead: int = 1,
    top: int = 1,
    allow: Sequence[str] = (),
    seed: int = 0,
    progress: ProgressFunc | None = None,
) -> ReplayReport:
    """Measure what a predictor would have saved on the recorded times of traces (docs/speculation.md).

    Args:
        traces: Traces folder.
        predictions: A file of predictions, or what `read_predictions` made of one.
        guess_latency: Seconds of every guess (default: as its prediction says, else 0.2).
        assume_times: Times for steps that have none, as for `ceiling`.
        verifier_s: Seconds between a guess and its launch (default: measured).
        threshold: Launch only guesses of this score, or of this confidence where none has a score.
        ahead: Steps that are guessed at once.
        top: Guesses at a step that are run at once.
        allow: Effects that are safe to run early besides pure_read: sandbox_exec; may be repeated.
        seed: Seed of the bootstrap over tasks.

    Raises:
        UsageError: a setting is invalid.
        PredictionError: the predictions cannot be read, or none of them is for a step of the traces.
        StoreError: the traces cannot be read.
    """
    given = locals()
    from foretrace.evaluation.replay import replay_traces
    from foretrace.evaluation.replay_report import ReplaySettings
    from foretrace.evaluation.step_times import read_assumed_times

    settings = pick_settings(ReplaySettings, given, allow=tuple(allow), assume_times=read_assumed_times(assume_times))
    settings.check()
    found = _read_traces(traces, "replaying", progress)
    if isinstance(predictions, (str, Path)):
        predictions = read_predictions(predictions)
    return replay_traces(found, predictions, settings)


def _read_traces(traces: str | Path | Iterable[Trace], doing: str, progress: ProgressFunc | None) -> Iterator[Trace]:
    total, what, report_to = None, "traces", progress or ignore_progress
    if isinstance(traces, (str, Path)):
        store, what = TraceStore(make_local_path(traces)), str(traces)
        total, traces = len(store.read_columns("key")), store.read()

    def watch() -> Iterator[Trace]:
        for number, trace in enumerate(traces, 1):
            yield trace
            report_to(f"{doing} {what}", number, total)

    return watch()


def predict(
    dataset: str | Path,
    *,
    out: str | Path,
    predictor: str | Predictor | Callable[[], Predictor] | None = None,
    model: str | ChatModel | None = None,
    server: Server | None = None,
    samples: int = 5,
    logprobs: bool = False,
    temperature: float = 0.7,
    max_tokens: int = 1024,
    concurrency: int | None = None,
    rows: Literal["eval", "proposer", "validation"] = "eval",
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
        dataset: What `foretrace build` wrote.
        out: File of predictions, NAME.jsonl, for `score`. The answers of a model are kept beside it.
        predictor: majority, markov:1 to markov:3, regression, memory, or module:Class; or an object, or what makes one.
        model: Instead of a predictor, e.g. openai:NAME or ollama:NAME (docs/models.md).
        server: Where the model server is, for a model that is named.
        samples: Answers of the model to each prompt.
        logprobs: Confidence from the probability of the reply, and not from its share of the samples.
        temperature: Of the model's sampling.
        max_tokens: Tokens of one answer at most; thinking counts.
        concurrency: Requests at a time; auto, the default, finds out what the server can do.
        rows: Rows to predict: eval; proposer, its train rows, each learned from other groups; or its validation rows.
        k: Guesses at a row at most.
        limit: Only the first N rows.
        seed: Assigns groups to folds, and gives each answer its own seed.
        folds: With train rows and a predictor: parts of the groups (default: 5).
        times: Write how long each row took; without, the same guesses give the same bytes.

    Raises:
        UsageError: a setting is invalid.
        PredictionError: there is no dataset or no row, or the predictor or model fails on every row.
        ModelError: the server cannot be reached, or refuses permanently; answers so far are kept.
        StoreError: `out` cannot be written.
    """
    given = locals()
    from foretrace.evaluation.predict import PredictSettings
    from foretrace.evaluation.predict import predict as run
    from foretrace.evaluation.predict_with_model import ModelSettings, predict_with_model
    from foretrace.registry import make_predictor

    settings, asking = pick_settings(PredictSettings, given), pick_settings(ModelSettings, given)
    if model is None and server is not None:
        raise UsageError(Setting(server.list_settings_except()[0]), " is for a model: name it with ", Setting("model"))
    if (predictor is None) == (model is None):
        raise UsageError("name one that guesses: ", Setting("predictor"), " or ", Setting("model"))
    dataset, out, report_to = make_local_path(dataset), make_local_path(out), progress or ignore_progress
    check_suffix(out, ".jsonl")
    if model is not None:
        if folds is not None:
            raise UsageError(Setting("folds", folds), " is for a predictor: a model learns nothing here")
        return run_with_model(
            model, server, lambda asked: predict_with_model(dataset, asked, out, settings, asking, report_to)
        )
    for name in ModelSettings.__struct_fields__:
        if given[name] != getattr(ModelSettings(), name):
            raise UsageError(Setting(name, given[name]), " is for a model: name it with ", Setting("model"))
    if isinstance(predictor, str):
        return run(dataset, predictor, lambda: make_predictor(predictor), out, settings, report_to)
    assert predictor is not None
    name = getattr(predictor, "__name__", type(predictor).__name__)
    factory = predictor if callable(predictor) else lambda: copy.deepcopy(predictor)  # a fresh one for each fold
    return run(dataset, name, factory, out, settings, report_to)


def add_references(dataset: str | Path, *, progress: ProgressFunc | None = None) -> References:
    """Add the results of free predictors to a dataset: their predictions to `references/NAME.jsonl`, the figures to
    `references.json`, and a table to its card. `build(..., references=True)` does this. Predictions of other
    predictors in that folder are included.

    Raises:
        PredictionError: predictions cannot be made or scored.
    """
    from foretrace.dataset.card import put_references
    from foretrace.evaluation.score import score_references

    dataset = make_local_path(dataset)
    folder = dataset / FOLDER
    folder.mkdir(exist_ok=True)
    for predictor in REFERENCES:  # without times, so that the same dataset has the same bytes
        out = folder / f"{predictor.replace(':', '-')}.jsonl"
        predict(dataset, out=out, predictor=predictor, times=False, progress=progress)
    references = score_references(dataset)
    write_references(dataset, references)
    card = dataset / "README.md"
    replace_file(card, put_references(card.read_text("utf-8"), references).encode())
    return references


def verify(
    predictions: str | Path,
    dataset: str | Path,
    *,
    out: str | Path,
    model: str | ChatModel | None = None,
    server: Server | None = None,
    scores: str | Path | None = None,
    concurrency: int = 8,
    max_tokens: int = 8,
    allow_other_version: bool = False,
    progress: ProgressFunc | None = None,
) -> VerifyReport:
    """Write predictions to the file `out` with a verifier's score of each; a call that was interrupted goes on.

    Args:
        out: File to write, NAME.jsonl.
        model: Model that says yes or no, e.g. openai:NAME; the score is the probability of a yes.
        server: Where the model server is, for a model that is named.
        scores: Instead of a model, JSON lines with key, step, rank and score, such as of a reward model.
        concurrency: Requests at one time.
        max_tokens: Tokens of an answer; a model that thinks first needs more.
        allow_other_version: Verify even if the file names another version of the dataset.

    Raises:
        UsageError: neither a model nor scores are given, or both, or a setting is invalid.
        PredictionError: the predictions, scores or dataset cannot be read or do not match.
        ModelError: the server cannot be reached or refuses permanently; answers so far are kept.
    """
    from foretrace.evaluation.verify import Asking, add_scores, verify_predictions

    predictions, dataset, out = make_local_path(predictions), make_local_path(dataset), make_local_path(out)
    check_suffix(out, ".jsonl")
    if model is None and server is not None:
        raise UsageError(Setting(server.list_settings_except()[0]), " is for ", Setting("model"))
    if (model is None) == (scores is None):
        raise UsageError("verify takes either ", Setting("model"), " or ", Setting("scores"))
    asking = Asking(concurrency=concurrency, max_tokens=max_tokens)
    allowed: Any = {"allow_other_version": allow_other_version}
    if model is None:
        report = add_scores(predictions, dataset, out, make_local_path(scores or ""), **allowed)
    else:
        allowed["progress"] = progress or ignore_progress
        report = run_with_model(
            model, server, lambda asked: verify_predictions(predictions, dataset, out, asked, asking, **allowed)
        )
    return msgspec.structs.replace(report, dataset=str(dataset))


def verify_pairs(
    dataset: str | Path,
    *,
    out: str | Path,
    model: str | ChatModel,
    server: Server | None = None,
    concurrency: int = 8,
    max_tokens: int = 8,
    progress: ProgressFunc | None = None,
) -> VerifyReport:
    """Write a model's scores of both actions of each test pair to the file `out`, for `score_pairs`.

    Args and errors are those of `verify`.
    """
    from foretrace.evaluation.verify import Asking
    from foretrace.evaluation.verify import verify_pairs as run

    dataset, out = make_local_path(dataset), make_local_path(out)
    check_suffix(out, ".jsonl")
    asking = Asking(concurrency=concurrency, max_tokens=max_tokens)
    report_to = progress or ignore_progress
    report = run_with_model(model, server, lambda asked: run(dataset, out, asked, asking, progress=report_to))
    return msgspec.structs.replace(report, dataset=str(dataset), what="pairs")
