"""Print what was predicted and how good it is: one table of the main figures, and all others with `--details`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from foretrace.cli.display.speculation import write_points
from foretrace.cli.output import Cell, Output
from foretrace.core.errors import count_things
from foretrace.evaluation.savings import write_share
from foretrace.evaluation.score_report import Share

if TYPE_CHECKING:
    from foretrace.core.references import References, ScoreRow
    from foretrace.evaluation.pair_accuracy import PairReport
    from foretrace.evaluation.predict import PredictReport
    from foretrace.evaluation.score_report import (
        Calibration,
        CascadeRow,
        Comparison,
        Difference,
        ScoreReport,
        VerifierScore,
    )
    from foretrace.evaluation.verify import VerifyReport

_ROWS = 10
"""Most rows of a table that are shown; `--json` has all."""
_FEW_GROUPS = 10
"""With fewer groups than this, bootstrap intervals are too narrow."""
_DECISIVE = (
    ("action type", "natural", "type_accuracy"),
    ("macro-F1", "natural", "macro_f1"),
    ("tool", "natural", "tool"),
    ("exact call", "natural", "exact_call"),
    ("in 3 guesses", "natural", "exact_call@3"),
    ("exact, safe early", "eligible", "exact_call"),
)
"""Columns of the first table, with slice and metric."""


def show_scores(output: Output, report: ScoreReport, predictions: Path | None = None, *, details: bool = False) -> None:
    """Print the table of main figures, what was left out, and with `details` all other figures."""
    name = report.predictor or (predictions.name if predictions is not None else "this file")
    steps, tasks = count_things(report.rows, "eval step"), count_things(report.tasks, "task")
    output.print((f"{name} on {steps} of {tasks}", "bold"))
    output.print()
    _show_table(output, name, report)
    if report.target == "call":
        safe = " or ".join(report.allow)
        output.print(
            f"calls are over the steps with one; safe early: the {report.eligible:,} steps whose calls are {safe} and "
            "were answered"
        )
    if report.references_left_out is not None:
        output.print(f"references are left out: {report.references_left_out}; build it with references again")
    warn_few_groups(output, report.groups)
    if report.calibration:
        whole = 0 if report.predicted == "type" else -1  # the confidence is that of the whole guess
        output.print(_describe_calibration(report.calibration[whole]))
    if "p50" in report.latency_s:
        output.print(f"a guess takes {_write_seconds(report.latency_s['p50'])} (median)")
    if report.verifier is not None:
        output.print()
        _show_verifier(output, report.verifier, report.groups)
    if report.cascade:
        output.print()
        _show_cascade(output, report.cascade, details=details)
    if report.against is not None:
        output.print()
        _show_comparison(output, report.against)
    output.print()
    output.print(_count_rows(report))
    if details:
        _show_details(output, report)
    else:
        output.print("--details shows each class, tool, source and argument, and how far ahead it is right")


def warn_few_groups(output: Output, groups: int) -> None:
    """Print that intervals are too narrow with few groups, or missing with one."""
    if groups == 1:
        output.print("without intervals: all steps are of one group")
    elif groups < _FEW_GROUPS:
        output.print(f"the intervals are too narrow: they are drawn from only {count_things(groups, 'group')}")


def _show_table(output: Output, name: str, report: ScoreReport) -> None:
    lines: list[tuple[str, Sequence[ScoreRow]]] = [(name, report.scores)]
    if report.against is not None:
        lines.append((report.against.predictor or Path(report.against.other).name, report.against.scores))
    lines += [(f"{each.predictor} (reference)", each.scores) for each in report.references]
    show_lines(output, lines, report.groups)


def show_references(output: Output, references: References) -> None:
    """Print the table of main figures of each predictor."""
    show_lines(output, [(each.predictor, each.scores) for each in references.predictors])


def show_lines(output: Output, lines: Sequence[tuple[str, Sequence[ScoreRow]]], groups: int | None = None) -> None:
    """Print the main figures, one line per predictor; with a single group there are no intervals."""
    tables = [(line, {(row.slice, row.metric): row for row in rows}) for line, rows in lines]
    columns = [column for column in _DECISIVE if any(column[1:] in found for _, found in tables)]
    output.print_table(
        ("predictor", *(title for title, _, _ in columns)),
        [(line, *(_write_row(found.get(column[1:]), groups) for column in columns)) for line, found in tables],
    )


def _write_row(row: ScoreRow | None, groups: int | None) -> str:
    if row is None:
        return "-"
    return write_share(row.value) if groups == 1 else write_estimate(row.value, row.low, row.high)


def write_estimate(value: float, low: float, high: float) -> str:
    """A share with its interval: `18 % [12, 24]`."""
    return f"{write_share(value)} [{write_points(low)}, {write_points(high)}]"


def _write(share: Share) -> str:
    if share.value is None or share.low is None or share.high is None:
        return "-"
    return write_estimate(share.value, share.low, share.high)


def _write_seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def _describe_calibration(calibration: Calibration) -> str:
    text = f"confidence that the {calibration.of} is right: off by {write_points(calibration.ece)} points (ECE)"
    best = next((row for row in calibration.coverage if row.coverage), None)
    if best is None:
        risk = write_share(calibration.coverage[-1].risk)
        return f"{text}; even of the most confident guesses {risk} or more are wrong"
    return f"{text}; of the most confident {write_share(best.coverage)}, at most {write_share(best.risk)} are wrong"


def _show_cascade(output: Output, rows: Sequence[CascadeRow], *, details: bool) -> None:
    """Print the predictions' curve, and each reference's row that accepts every guess; all rows with `details`."""
    output.print(
        "a cascade: guesses above a threshold are taken, otherwise the large model is asked (cost 1, always right):"
    )
    shown = [row for row in rows if details or row.predictor == rows[0].predictor or row.threshold is None]
    output.print_table(
        ("predictor", "by", "from", "accepted", "precision", "accuracy", "cost"),
        [
            (
                row.predictor,
                row.by,
                "-" if row.threshold is None else f"{row.threshold:.3f}",
                _write(row.accepted),
                _write(row.precision),
                _write(row.accuracy),
                "-" if row.cost.value is None else f"{row.cost.value:.2f} [{row.cost.low:.2f}, {row.cost.high:.2f}]",
            )
            for row in shown
        ],
    )
    output.print(
        f"over {rows[0].accepted.n:,} steps as they come; right: the action type, and in a dataset of calls the calls"
    )
    if all(row.predictor == rows[0].predictor for row in rows):
        output.print("free predictors stand beside it where the dataset was built with references")


def _show_comparison(output: Output, against: Comparison) -> None:
    output.print(f"against {against.other}, both on the same draws of {count_things(against.tasks, 'task')}:")
    if against.missing:
        output.print(f"of {against.missing:,} eval rows it has no prediction: they count as wrong there")
    found = {(each.slice, each.metric): each for each in against.differences}
    columns = [column for column in _DECISIVE if column[1:] in found]
    output.print_fields([(column[0], write_difference(found[column[1:]], against.tasks)) for column in columns])


def write_difference(each: Difference, tasks: int) -> str:
    """`better by 3.1 points [1.2, 5.0]`."""
    sign = -1 if each.value < 0 else 1
    # + 0.0 turns -0.0 into 0.0
    value, *ends = (round(100 * sign * number, 1) + 0.0 for number in (each.value, each.low, each.high))
    low, high = sorted(ends)
    if value == low == high == 0:
        return "the same"
    text = f"{'worse' if sign < 0 else 'better'} by {value:.1f} points"
    if tasks < 2:
        return f"{text}, on one task: it may be chance"
    return f"{text} [{low:.1f}, {high:.1f}]" + ("" if low > 0 else ", which may be chance")


def _show_verifier(output: Output, found: VerifierScore, groups: int) -> None:
    output.print((f"verifier {found.verifier or ''}".rstrip(), "bold"))
    output.print(
        f"AUROC of its scores {_write_auroc(found.auroc)}, of the confidences {_write_auroc(found.auroc_confidence)}"
    )
    if found.without_score:
        output.print(f"{found.without_score:,} first guesses have no score: they are left out")
    if not found.policies:
        if found.thresholds_from == "validation":
            why = "no first guess at a test step has a score"
        elif groups == 1:
            why = "with one test group there is no half to choose a threshold on; give --validation"
        else:
            why = "no first guess has a score in the half of the test groups that is measured; give --validation"
        output.print(f"nothing is accepted: {why}")
        return
    output.print_table(
        ("accepts by", "for precision", "from", "guesses", "of them right", "of the right ones"),
        [
            (
                row.policy.replace("_", " "),
                "" if row.precision_wanted is None else f"{row.precision_wanted:.2f}",
                "" if row.precision_wanted is None else "never" if row.threshold is None else f"{row.threshold:.4g}",
                write_share(row.accepted),
                "-" if row.precision is None else write_share(row.precision),
                "-" if row.recall is None else write_share(row.recall),
            )
            for row in found.policies
        ],
    )
    if found.thresholds_from == "half":
        output.print(
            f"thresholds are chosen on {found.chosen_on:,} guesses of half of the test groups, and measured on "
            f"{found.n:,} of the other half; --validation FILE chooses them on validation rows"
        )
    else:
        output.print(
            f"thresholds are chosen on {found.chosen_on:,} validation guesses, measured on {found.n:,} test guesses"
        )


def _write_auroc(share: Share) -> str:
    if share.value is None or share.low is None or share.high is None:
        return "-"
    return f"{share.value:.2f} [{share.low:.2f}, {share.high:.2f}]"


def show_pair_scores(output: Output, report: PairReport, scores: Path | None = None) -> None:
    """Print how often the right action of a pair is preferred, by family."""
    name = report.verifier or (scores.name if scores is not None else "this file")
    output.print((f"{name} on {report.rows:,} test pairs", "bold"))
    output.print()
    output.print_table(
        ("family", "pairs", "prefers the right action"),
        [(row.name or "all", row.accuracy.n, _write(row.accuracy)) for row in report.families],
    )
    warn_few_groups(output, report.groups)
    text = (
        f"{report.missing:,} pairs without two scores count as wrong; {report.unknown:,} scores of other pairs are "
        "ignored"
    )
    output.print(text + _list_faults(report.problems))


def show_verified(output: Output, report: VerifyReport) -> None:
    """Print what was scored, what was not and why, and what to type next."""
    output.print((f"{report.verifier} scored {report.rows:,} {report.what}: {report.scored:,} scores", "bold"))
    left_out = {
        "of an earlier run": report.already_done,
        "without an action, not scored": report.no_action,
        "for steps that the dataset does not have, not scored": report.unknown,
        "answers neither yes nor no, not scored": report.unreadable,
        "1 or 0 for want of logprobs": report.without_logprobs,
        "predictions without a score": report.missing,
        "scores for predictions that are not there": report.unused,
        **{f"requests failed ({kind}), not scored": count for kind, count in report.failed.items()},
    }
    for name, count in left_out.items():
        if count:
            output.print(f"{count:,} {name}")
    if report.problems:
        output.print(_list_faults(report.problems).removeprefix("; "))
    if "p50" in report.latency_s:
        output.print(f"a score takes {_write_seconds(report.latency_s['p50'])} (median)")
    output.print(f"scores: {report.out}")
    output.print(f"next: foretrace score {report.out} {report.dataset}")


def _count_rows(report: ScoreReport) -> str:
    text = (
        f"{report.rows:,} eval rows; {report.missing:,} without a prediction and {report.unreadable:,} with one that "
        f"names no action count as wrong; {report.unknown:,} predictions for other rows are ignored"
    )
    # Lines without an action have been counted above, by rows.
    faults = {name: count for name, count in report.problems.items() if name != "no_action"}
    return text + _list_faults(faults)


def _list_faults(problems: dict[str, int]) -> str:
    listed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in problems.items())
    return f"; faults of lines: {listed}" if listed else ""


def _show_details(output: Output, report: ScoreReport) -> None:
    tables: list[tuple[str, Sequence[msgspec.Struct]]] = [
        ("figure", report.scores),
        ("action", report.by_action),
        ("tool", report.by_tool),
        ("source", report.by_source),
        ("argument", [msgspec.structs.replace(row, name=row.name or "all arguments") for row in report.arguments]),
        ("all right", report.ahead),
    ]
    for each in report.calibration or ():
        tables += [(f"confidence ({each.of})", [one for one in each.bins if one.n]), ("coverage", each.coverage)]
    for title, rows in tables:
        _show_records(output, title, rows, most=None if title == "figure" else _ROWS)
    for each in report.calibration or ():
        output.print(
            f"{each.of}: ECE {each.ece:.4f} in {len(each.bins)} bins of equal width; Brier {each.brier:.4f}; "
            f"AURC {each.aurc:.4f}; {each.without_confidence:,} steps without a confidence are left out"
        )


def _show_records(output: Output, title: str, rows: Sequence[msgspec.Struct], most: int | None) -> None:
    """Print a table with a column per field, and a last one with the number of rows that a share covers."""
    if not rows:
        return
    names = rows[0].__struct_fields__
    table: list[list[Cell]] = []
    for row in rows[:most]:
        values = [getattr(row, name) for name in names]
        ns = [value.n for value in values if isinstance(value, Share)] if "n" not in names else []
        table.append([*(_write(value) if isinstance(value, Share) else value for value in values), *ns[-1:]])
    extra = ["n"] * (len(table[0]) - len(names))
    output.print()
    output.print((title, "bold"))
    output.print_table([*(name.replace("_", " ") for name in names), *extra], table)
    if most is not None and len(rows) > most:
        output.print(f"and {len(rows) - most:,} more: --json has all")


_FAULTS = {
    "raised": "failed at",
    "bad_guess": "what was returned is not a guess at",
    "no_guess": "nothing was guessed at",
}


_LOST = {"failed": "failed", "no_action": "name no action"}


def describe_rows(config: str, split: str) -> str:
    """The kind of rows that were predicted: `eval`, `proposer`, `validation`."""
    return split if (config, split) == ("proposer", "validation") else config


def show_predictions(output: Output, report: PredictReport) -> None:
    """Print what was predicted, and a line per kind of fault. Rows without a guess count as wrong in `score`."""
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
