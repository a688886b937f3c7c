"""Measure what predictions are worth, and serve them: `ceiling`, `effects`, `predict`, `verify`, `score`, `replay`,
`serve`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretrace.cli.display import show_report
from foretrace.cli.output import Output
from foretrace.core.errors import ModelError, Setting, UsageError, count_things


def ceiling(output: Output, traces: Path, *, workers: int | None = None, **settings: Any) -> None:
    """Measure what a perfect predictor of the next call would save on your traces.

    Needs no model: the upper limit of prefetching calls and of running steps ahead, from the times that the traces
    have. Times are assumed only with --assume-times. Intervals are 95%, a bootstrap over tasks.

    Args:
        workers: Processes that measure at once (default: all cores).
    """
    output.stay_small()
    from foretrace.api.evaluation import ceiling
    from foretrace.engines.processes import usable_cores

    output.warn_unsealed(traces)
    report = output.work(f"measuring {traces}", ceiling, traces, workers=workers or usable_cores(), **settings)
    show_report(output, report, {"traces_folder": str(traces)})


def effects(
    output: Output,
    traces: Path | None = None,
    *,
    out: Path | None = None,
    check: str | None = None,
    manifest: Path | None = None,
    allow: Sequence[str] = (),
) -> None:
    """Write down which calls a runtime may run early, or check one call.

    For each tool, and for each pattern of its arguments: read_only, idempotent, unsafe or unknown, with counts as
    evidence and the hints that MCP's tool annotations have. What was seen to write is never called read-only.

    Args:
        traces: Traces folder.
        out: Manifest: .json.
        check: A call, {"name": ..., "arguments": {...}}: say whether it may run ahead. - reads calls from stdin, one a
            line, and answers each with a line of JSON.
        manifest: With --check: what was seen of such calls.
        allow: With --check: effects that are safe to run early besides pure_read: sandbox_exec.
    """
    output.stay_small()
    if check is not None:
        if traces is not None or out is not None:
            raise UsageError(Setting("check"), " takes no traces and writes no file: give ", Setting("manifest"))
        _check_calls(output, check, manifest, allow)
        return
    if traces is None or out is None or manifest is not None or allow:
        raise UsageError("effects takes a traces folder and ", Setting("out"), ", or ", Setting("check"))
    from foretrace.api.evaluation import effects
    from foretrace.core.files import refuse_inside_folder

    refuse_inside_folder(out, traces)
    output.warn_unsealed(traces)
    replaced = out.exists()
    found = output.work(f"reading {traces}", effects, traces, out)
    show_report(output, found, {"file": str(out), "replaced": replaced}, out, replaced=replaced)


def _check_calls(output: Output, check: str, manifest: Path | None, allow: Sequence[str]) -> None:
    from foretrace.api.evaluation import check_call
    from foretrace.evaluation.effects_manifest import read_manifest

    seen = None if manifest is None else read_manifest(manifest)
    if check != "-":
        show_report(output, check_call(_read_call(check), manifest=seen, allow=allow))
        return
    output.json = True
    for line in sys.stdin:
        try:
            show_report(output, check_call(_read_call(line), manifest=seen, allow=allow))
        except UsageError as error:
            output.write_json({"error": str(error)})


def _read_call(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(call := json.loads(text), dict):
            return call
    raise UsageError(f'{text.strip()[:80]!r} is not a call: write {{"name": ..., "arguments": {{...}}}}')


def predict(output: Output, dataset: Path, *, out: Path, **settings: Any) -> None:
    """Guess at the next action of each row of a dataset, with a predictor that costs nothing or with your own model.

    A predictor learns only from the train rows. The same command with a model continues where an interrupted one
    stopped. The file is what `foretrace score` reads: a line for each guess, best first.
    """
    from foretrace.api.evaluation import predict

    output.interrupt_message = (
        f"interrupted; nothing was written to {out}"
        if settings["model"] is None
        else f"interrupted; what was answered is kept beside {out}, the same command goes on from there"
    )
    report = output.work(f"predicting {dataset}", predict, dataset, out=out, **settings)
    show_report(output, report, {"dataset": str(dataset)})


def verify(output: Output, inputs: Sequence[Path], *, pairs: bool = False, **settings: Any) -> None:
    """Add a verifier's score to each prediction.

    A model is shown the prompt and the predicted action, and asked whether it is what comes next: the score is
    the probability of a yes. An interrupted run continues where it stopped. `foretrace score` measures the scores.

    Args:
        inputs: Predictions and their dataset; with --pairs only the dataset.
        pairs: Score the test pairs of the dataset instead.
    """
    from foretrace.api.evaluation import verify, verify_pairs

    if not pairs and len(inputs) != 2:
        raise UsageError(
            "verify takes a file of predictions and the dataset that they are for, or the dataset with ",
            Setting("pairs"),
        )
    if pairs and len(inputs) != 1:
        raise UsageError(Setting("pairs"), " takes one folder, the dataset")
    if pairs and (settings["scores"] is not None or settings["model"] is None):
        why = "; scores of pairs that a reward model gave go to `foretrace score` as they are"
        raise UsageError(Setting("pairs"), " wants ", Setting("model"), why)
    function: Any = verify
    if pairs:
        function = verify_pairs
        del settings["scores"], settings["allow_other_version"]
    output.interrupt_message = "interrupted; what was answered is kept, the same command goes on"
    try:
        report = output.work(f"verifying {inputs[0]}", function, *inputs, **settings)
    except ModelError:
        output.note("what was answered is kept, the same command goes on")
        raise
    show_report(output, report)


def score(
    output: Output,
    predictions: Path,
    dataset: Path,
    *,
    details: bool = False,
    out: Path | None = None,
    **settings: Any,
) -> None:
    """Score predictions on the eval rows of a dataset.

    Whether action type, tool and call are right, also among the first three guesses and where the call is
    safe to run early, and whether confidences are what they say. Each figure has a 95% interval: a
    bootstrap that resamples by group, the unit that the splits keep whole; --against resamples by task.
    Scores that `foretrace verify` added, to predictions or to pairs, are measured too.

    Args:
        predictions: JSON lines, Parquet or a folder of both: `key`, `step` and the guess; or scores of pairs.
        details: Show every figure.
        out: File to write all figures to, as --json has them.
    """
    from foretrace.evaluation.pair_accuracy import is_pair_scores, score_pairs
    from foretrace.evaluation.score import score

    how: dict[str, Any] = {}
    with output.progress(f"scoring {predictions}"):
        if not is_pair_scores(predictions):
            report: Any = score(predictions, dataset, **settings)
            how["details"] = details
        else:
            for_predictions = ("against", "validation", "allow", "cascade")
            if unfit := [name for name in for_predictions if settings.pop(name) not in (None, ())]:
                raise UsageError(Setting(unfit[0]), f" is for predictions; {predictions} holds scores of pairs")
            report = score_pairs(predictions, dataset, **settings)
    facts = {"predictions": str(predictions), "dataset": str(dataset)}
    show_report(output, report, facts, predictions, file=out, **how)


def replay(
    output: Output,
    traces: Path,
    *,
    predictions: Path,
    out: Path | None = None,
    **settings: Any,
) -> None:
    """Measure what a predictor would have saved on your traces.

    Runs its guesses while the model writes, on the recorded times: what is right is used, what is wrong is wasted. Only
    guessed calls that are safe to run early are launched. Intervals are 95%, a bootstrap over tasks.

    Args:
        predictions: Guesses at the calls of steps.
        out: File to write all figures to, as --json has them.
    """
    output.stay_small()
    from foretrace.api.evaluation import replay

    output.warn_unsealed(traces)
    report = output.work(f"replaying {traces}", replay, traces, predictions, **settings)
    show_report(output, report, {"traces_folder": str(traces), "predictions": str(predictions)}, file=out)


def serve(output: Output, predictor: str, dataset: Path, **settings: Any) -> None:
    """Serve predictions of the next action to other agents, as JSON lines.

    The predictor learns from the train rows of a dataset; a model is asked as it is. A client sends `turn_begins` with
    the messages so far, `text`, `call` and `turn_ends`; it gets predictions with their confidence, and whether
    each call may run before the model has asked for it. Serves on stdin and stdout, or with --socket many clients.
    """
    from foretrace.api.serving import serve

    if output.json and settings["socket"] is None:
        raise UsageError(
            Setting("json"), " needs ", Setting("socket"), ": stdout has the answers, one JSON object a line"
        )

    def report_ready(where: str) -> None:
        progress.stop()
        output.note(f"serving predictions of {predictor} on {where}; Ctrl-C ends it")

    with output.progress(f"preparing {predictor}") as progress:
        counts = serve(predictor, dataset, report_ready=report_ready, progress=progress, **settings)
    output.write_json(counts)
    output.note(
        f"served {count_things(counts.turns, 'turn')}: {count_things(counts.calls, 'call')}, {counts.predicted:,} of "
        f"them predicted ({counts.first:,} by the first prediction); {count_things(counts.errors, 'line')} refused"
    )
