"""Print what was predicted and how good it is: one table of the main figures, and all others with `--details`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from foretrace.cli.display.speculation import write_points, write_time
from foretrace.cli.output import Cell, Output
from foretrace.core.errors import count_things
from foretrace.evaluation.savings import write_share
from foretrace.evaluation.score_report import Share

if TYPE_CHECKING:
    from foretrace.core.references import References, ScoreRow
    from foretrace.evaluation.pair_accuracy import PairReport
    from foretrace.evaluation.predict import PredictReport
    from foretrace.evaluation.score_report import Calibration, CascadeRow, Comparison, ScoreReport, VerifierScore
    from foretrace.evaluation.verify import VerifyReport

_ROWS = 10
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
_FAULTS = {
    "raised": "failed at",
    "bad_guess": "what was returned is not a guess at",
    "no_guess": "nothing was guessed at",
}
_LOST = {"failed": "failed", "no_action": "name no action"}


def _write_share(share: Share, *, points: bool = True) -> str:
    """A share with its interval: `18% [12, 24]`, or `0.18 [0.12, 0.24]`."""
    if share.value is None or share.low is None or share.high is None:
        return "-"
    if points:
        return f"{write_share(share.value)} [{write_points(share.low)}, {write_points(share.high)}]"
    return f"{share.value:.2f} [{share.low:.2f}, {share.high:.2f}]"


def _write_seconds(seconds: float) -> str:
    return write_time(seconds) if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def _write_faults(problems: dict[str, int]) -> str:
    listed = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in problems.items())
    return f"; faults of lines: {listed}" if listed else ""


def warn_few_groups(output: Output, groups: int) -> None:
    """Print that intervals are too narrow with few groups, or missing with one."""
    if groups == 1:
        output.print("without intervals: all steps are of one group")
    elif groups < _FEW_GROUPS:
        output.print(f"the intervals are too narrow: they are drawn from only {count_things(groups, 'group')}")


def show_lines(output: Output, lines: Sequence[tuple[str, Sequence[ScoreRow]]], groups: int | None = None) -> None:
    def write(row: ScoreRow | None) -> str:
        if row is None:
            return "-"
        if groups == 1:
            return write_share(row.value)
        return _write_share(Share(value=row.value, low=row.low, high=row.high, n=row.n))

    tables = [(line, {(row.slice, row.metric): row for row in rows}) for line, rows in lines]
    columns = [column for column in _DECISIVE if any(column[1:] in found for _, found in tables)]
    output.print_table(
        ("predictor", *(title for title, _, _ in columns)),
        [(line, *(write(found.get(column[1:])) for column in columns)) for line, found in tables],
    )


def show_references(output: Output, references: References) -> None:
    show_lines(output, [(each.predictor, each.scores) for each in references.predictors])


def show_scores(output: Output, report: ScoreReport, predictions: Path | None = None, *, details: bool = False) -> None:
    """Print the table of main figures, what was left out, and with `details` all other figures."""
    name = report.predictor or (predictions.name if predictions is not None else "this file")
    steps, tasks = count_things(report.rows, "eval step"), count_things(report.tasks, "task")
    output.print((f"{name} on {steps} of {tasks}", "bold"))
    output.print()
    lines: list[tuple[str, Sequence[ScoreRow]]] = [(name, report.scores)]
    if report.against is not None:
        lines.append((report.against.predictor or Path(report.against.other).name, report.against.scores))
    show_lines(
        output, [*lines, *((f"{each.predictor} (reference)", each.scores) for each in report.references)], report.groups
    )
    if report.target == "call":
        output.print(
            f"tools and calls: over the steps that make a call; safe early: the {report.eligible:,} whose calls are "
            f"{' or '.join(report.allow)} and were answered"
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
        _show_verifier(output, report.verifier)
    if report.cascade:
        _show_cascade(output, report.cascade, details=details)
    if report.against is not None:
        _show_comparison(output, report.against)
    faults = {name: count for name, count in report.problems.items() if name != "no_action"}  # counted by rows
    output.print()
    output.print(
        f"{report.rows:,} eval rows; {report.missing:,} without a prediction and {report.unreadable:,} with one that "
        f"names no action count as wrong; {report.unknown:,} predictions for other rows are ignored"
        + _write_faults(faults)
    )
    if not details:
        output.print("--details shows each class, tool and source")
        return
    for title, rows in (
        ("figure", report.scores),
        ("action", report.by_action),
        ("tool", report.by_tool),
        ("source", report.by_source),
        *((f"confidence ({each.of})", [one for one in each.bins if one.n]) for each in report.calibration or ()),
        *((f"coverage ({each.of})", each.coverage) for each in report.calibration or ()),
    ):
        _show_records(output, title, rows, most=None if title == "figure" else _ROWS)


def _describe_calibration(calibration: Calibration) -> str:
    text = f"confidence that the {calibration.of} is right: off by {write_points(calibration.ece)} points (ECE)"
    best = next((row for row in calibration.coverage if row.coverage), None)
    if best is None:
        risk = write_share(calibration.coverage[-1].risk)
        return f"{text}; even among the most confident guesses, {risk} or more are wrong"
    share = f"{write_share(best.coverage)} of {calibration.n:,} guesses"
    return f"{text}; of the most confident {share}, at most {write_share(best.risk)} are wrong"


def _show_records(output: Output, title: str, rows: Sequence[msgspec.Struct], most: int | None) -> None:
    if not rows:
        return
    names = rows[0].__struct_fields__
    table: list[list[Cell]] = []
    for row in rows[:most]:
        values = [getattr(row, name) for name in names]
        table.append([_write_share(value) if isinstance(value, Share) else value for value in values])
    output.print()
    output.print((title, "bold"))
    output.print_table([name.replace("_", " ") for name in names], table)
    if most is not None and len(rows) > most:
        output.print(f"and {len(rows) - most:,} more: --json has all")


def _show_verifier(output: Output, found: VerifierScore) -> None:
    auroc, of_confidence = (_write_share(share, points=False) for share in (found.auroc, found.auroc_confidence))
    output.print()
    output.print((f"verifier {found.verifier or ''}".rstrip(), "bold"))
    output.print(f"AUROC of its scores {auroc}, of the confidences {of_confidence}")
    if found.without_score:
        output.print(f"{found.without_score:,} first guesses have no score: they are left out")
    if not found.policies:
        where = "at a test step" if found.thresholds_from == "validation" else "in the half that is measured"
        output.print(f"nothing is accepted: no first guess {where} has a score; --validation FILE chooses thresholds")
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


def _show_cascade(output: Output, rows: Sequence[CascadeRow], *, details: bool) -> None:
    """Print the predictions' curve, and each reference's row that accepts every guess; all rows with `details`."""
    output.print()
    output.print(
        "a cascade: guesses above a threshold are taken, otherwise the large model is asked (cost 1, always right):"
    )
    output.print_table(
        ("predictor", "by", "from", "accepted", "precision", "accuracy", "cost"),
        [
            (
                row.predictor,
                row.by,
                "-" if row.threshold is None else f"{row.threshold:.3f}",
                *map(_write_share, (row.accepted, row.precision, row.accuracy)),
                _write_share(row.cost, points=False),
            )
            for row in rows
            if details or row.predictor == rows[0].predictor or row.threshold is None
        ],
    )
    output.print(
        f"over {rows[0].accepted.n:,} steps as they come; right: the action type, and in a dataset of calls the calls"
    )


def _show_comparison(output: Output, against: Comparison) -> None:
    output.print()
    output.print(f"against {against.other}, both on the same draws of {count_things(against.tasks, 'task')}:")
    if against.missing:
        output.print(f"of {against.missing:,} eval rows it has no prediction: they count as wrong there")
    found = {(each.slice, each.metric): each for each in against.differences}
    columns = [column for column in _DECISIVE if column[1:] in found]
    output.print_fields([(column[0], write_difference(found[column[1:]], against.tasks)) for column in columns])


def write_difference(each: ScoreRow, tasks: int) -> str:
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


def show_pair_scores(output: Output, report: PairReport, scores: Path | None = None) -> None:
    name = report.verifier or (scores.name if scores is not None else "this file")
    output.print((f"{name} on {report.rows:,} test pairs", "bold"))
    output.print()
    output.print_table(
        ("family", "pairs", "prefers the right action"),
        [(row.name or "all", row.accuracy.n, _write_share(row.accuracy)) for row in report.families],
    )
    warn_few_groups(output, report.groups)
    output.print(
        f"{report.missing:,} pairs without two scores count as wrong; {report.unknown:,} scores of other pairs are "
        f"ignored{_write_faults(report.problems)}"
    )


def show_verified(output: Output, report: VerifyReport) -> None:
    output.print((f"{report.verifier} scored {report.rows:,} {report.what}: {report.scored:,} scores", "bold"))
    left_out = {
        "of an earlier run": report.already_done,
        "without an action, not scored": report.no_action,
        "for steps that the dataset does not have, not scored": report.unknown,
        "answers neither yes nor no, not scored": report.unreadable,
        "scores are 1 or 0, since the model gave no logprobs": report.without_logprobs,
        "predictions without a score": report.missing,
        "scores for predictions that are not there": report.unused,
        **{f"requests failed ({kind}), not scored": count for kind, count in report.failed.items()},
    }
    for name, count in left_out.items():
        if count:
            output.print(f"{count:,} {name}")
    if report.problems:
        output.print(_write_faults(report.problems).removeprefix("; "))
    if "p50" in report.latency_s:
        output.print(f"a score takes {_write_seconds(report.latency_s['p50'])} (median)")
    output.print(f"scores: {report.out}")
    output.print(f"next: foretrace score {report.out} {report.dataset}")


def show_predictions(output: Output, report: PredictReport) -> None:
    latency = report.latency_s
    speed = f"; {1000 * latency['p50']:.1f} ms a row (p95 {1000 * latency['p95']:.1f})" if latency else ""
    learned = f"; trained on {count_things(report.learned_rows, 'train row')}" if report.learned_rows else ""
    asked = (
        f", {count_things(report.requests, 'request')}, {count_things(report.completion_tokens, 'token')}"
        if report.requests
        else ""
    )
    if not report.requests and not report.learned_rows:
        asked = ", all answered by an earlier run"
    output.print(
        (f"{report.out}", "bold"),
        f": {count_things(report.guesses, 'guess', 'guesses')} of {report.predictor} at "
        f"{count_things(report.steps, 'row')}",
    )
    kind = report.split if report.split == "validation" else report.config
    output.print(f"{kind} rows{learned}{asked}{speed}")
    for fault, count in report.faults.items():
        output.warn(f"warning: {_FAULTS[fault]} {count:,} of {report.steps:,} rows", "yellow")
    for loss, count in report.lost_samples.items():
        output.warn(f"warning: {count:,} samples at rows with a guess {_LOST[loss]}", "yellow")
    if report.example is not None:
        output.warn(f"  e.g. {report.example}", "yellow")
