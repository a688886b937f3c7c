"""What a predictor would have saved: one sentence, what it launched, and what other thresholds would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretrace.cli.display.ceiling import describe_assumed, write_saving, write_share, write_time
from foretrace.cli.output import Cell, Output
from foretrace.core.errors import count_things

if TYPE_CHECKING:
    from foretrace.evaluation.replay_report import ReplayReport


def show_replay(output: Output, report: ReplayReport) -> None:
    """The first sentence says what is saved; the last lines what is assumed and what is left out."""
    output.print((_summarise(report), "bold"))
    if report.base_s and report.verdict == "known":
        for line in (_describe_launches(report), _describe_accuracy(report), *_describe_cost(report)):
            output.print(line)
        output.print()
        _show_tasks(output, report)
        output.print()
        _show_frontier(output, report)
        output.print()
        if report.settings.assume_times is not None and report.assumed_steps:
            output.print(describe_assumed(report.settings.assume_times, report.assumed_steps))
        for assumption in report.assumed:
            output.print(f"assumed: {assumption.text} ({assumption.count:,})")
    for line in _list_left_out(report):
        output.print(line)
    if report.verdict == "known":
        output.print()
        output.print((report.conclusion.text, "bold"))


def _summarise(report: ReplayReport) -> str:
    if report.verdict == "unknown" or not report.base_s:
        known = f"{report.known_steps:,} of {report.steps:,} steps with a prediction"
        want = report.to_record[0] if report.to_record else "the times of model and tools"
        assume = "" if report.settings.assume_times is not None else "; or assume them: --assume-times tracelab"
        return f"unknown: the times of {known} are known, and half of them are needed; record {want}{assume}"
    saved_s, most = report.saved_s or 0.0, report.oracle
    whole = write_time(report.base_s)
    perfect = f"a perfect predictor would have saved {write_saving(most)}"
    if not saved_s:
        return f"this predictor would have saved nothing of {whole}; {perfect}"
    saved = f"this predictor would have saved {write_saving(report)} of {whole}: {write_time(saved_s)}"
    return f"{saved}, {report.speedup:.2f} times as fast; {perfect}"


def _describe_launches(report: ReplayReport) -> str:
    stale = f", {report.stale:,} of them overtaken by a write" if report.stale else ""
    text = (
        f"{report.launched:,} calls were run early: {report.hits:,} were used, {report.wasted_calls:,} were not{stale}"
        f"; {report.unsafe:,} were not safe"
    )
    if report.refused:
        text += f" (guesses that were held back for that: {report.refused:,})"
    wasted = f"; {write_time(report.wasted_s)} of tools for nothing"
    each = report.wasted_s_per_saved_s
    return text + wasted + (f", {each:.2g} s for each second saved" if each is not None else "")


def _describe_accuracy(report: ReplayReport) -> str:
    accuracy = report.accuracy
    text = (
        f"{count_things(report.traces, 'trace')} of {count_things(report.tasks, 'task')}; times are known of "
        f"{write_share(report.coverage)} of {count_things(report.steps, 'step')} with a prediction"
    )
    if accuracy.hit_rate is not None:
        text += f"; the first guess is right at {write_share(accuracy.hit_rate)} of those with calls"
    if accuracy.eligible_hit_rate is not None:
        text += f", at {write_share(accuracy.eligible_hit_rate)} of those that are safe to run early"
    return text


def _describe_cost(report: ReplayReport) -> Iterator[str]:
    cost = report.cost
    if cost.extra or cost.base_tools:
        each = f", {cost.per_saved_s:.3g} for each second saved" if cost.per_saved_s is not None else ""
        yield (
            f"extra cost {cost.extra:.4g}: {cost.proposer:.4g} for {cost.tokens:,} tokens of the proposer, "
            f"{cost.wasted_tools:.4g} for wasted tools{each}; the calls of the steps cost {cost.base_tools:.4g} as "
            "without it, and so do the model's replies"
        )


def _show_tasks(output: Output, report: ReplayReport) -> None:
    tasks = report.per_task
    rows: list[tuple[Cell, ...]] = []
    for name, figures in (("without guesses", tasks.base_s), ("with them", tasks.remaining_s)):
        rows.append((name, *("" if value is None else write_time(value) for value in (figures.p50, figures.p95))))
    shares = (tasks.share.p50, tasks.share.p95)
    rows.append(("saved", *("" if value is None else write_share(value) for value in shares)))
    output.print_table(("per task", "p50", "p95"), rows)


def _show_frontier(output: Output, report: ReplayReport) -> None:
    """A row for each threshold; the one that is in force is marked."""
    in_force = report.settings.threshold
    priced = any(point.extra_cost for point in report.frontier)
    rows: list[tuple[Cell, ...]] = []
    for point in report.frontier:
        name = "all" if point.threshold is None else f"{point.threshold:.4g}"
        if point.threshold == in_force:
            name += " (this)"
        figures = (point.launched, point.hits, write_time(point.saved_s), write_share(point.share or 0.0))
        cost = (f"{point.extra_cost:.4g}",) if priced else ()
        rows.append((name, *figures, write_time(point.wasted_s), *cost))
    title = f"{report.gate} at least" if report.gate is not None else "guesses"
    cost = ("extra cost",) if priced else ()
    output.print_table((title, "launched", "used", "saves", "of the time", "wastes", *cost), rows)


def _list_left_out(report: ReplayReport) -> Iterator[str]:
    if report.other_traces:
        yield (
            "these are not the traces that the predicted dataset was built from, or not all of them: predictions count "
            "where key and step fit"
        )
    if report.steps_without_prediction:
        count = f"{report.steps_without_prediction:,} steps of these traces have no prediction"
        yield f"{count}: their time counts, and none of it is saved"
    left_out = {
        "predictions for steps that are not in these traces": report.other_predictions,
        **{f"{name.replace('_', ' ')} in the predictions": count for name, count in report.problems.items()},
    }
    if report.steps_without_first:
        yield (
            f"at {report.steps_without_first:,} steps there are guesses but none of rank 1: the best one that is there "
            "counts as the first"
        )
    unknown = {name.replace("_", " "): count for name, count in report.unknown_steps.items()}
    for title, counts in (("unknown times", unknown), ("left out", left_out)):
        if any(counts.values()):
            yield f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
