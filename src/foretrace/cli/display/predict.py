"""What was predicted, how fast, and what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.cli.output import Output

if TYPE_CHECKING:
    from foretrace.evaluation.predict import PredictReport

_FAULTS = {
    "raised": "failed at",
    "bad_guess": "what was returned is no guess at",
    "no_guess": "nothing was guessed at",
}


_LOST = {"failed": "failed", "no_action": "name no action"}


def describe_rows(config: str, split: str) -> str:
    """Which rows were predicted: `eval`, `proposer`, `validation`."""
    return split if (config, split) == ("proposer", "validation") else config


def show_predictions(output: Output, report: PredictReport) -> None:
    """One line, and one for each kind of fault; rows without a guess count as wrong when the file is scored."""
    latency = report.latency_s
    speed = f"; {1000 * latency['p50']:.1f} ms a row (p95 {1000 * latency['p95']:.1f})" if latency else ""
    learnt = f", learnt from {report.learnt_rows:,} train rows" if report.learnt_rows else ""
    output.print(
        (f"{report.out}", "bold"), f": {report.guesses:,} guesses of {report.predictor} at {report.steps:,} rows"
    )
    asked = f", {report.requests:,} requests, {report.completion_tokens:,} tokens" if report.requests else ""
    if not report.requests and not report.learnt_rows:
        asked = ", all answered by an earlier run"
    output.print(f"{describe_rows(report.config, report.split)} rows{learnt}{asked}{speed}")
    for fault, count in report.faults.items():
        output.warn(f"warning: {_FAULTS.get(fault, fault)} {count:,} of {report.steps:,} rows", "yellow")
    for loss, count in report.lost_samples.items():
        output.warn(f"warning: {count:,} samples at rows with a guess {_LOST[loss]}", "yellow")
    if report.example is not None:
        output.warn(f"  e.g. {report.example}", "yellow")
