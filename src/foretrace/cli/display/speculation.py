"""Print what a perfect and a given predictor would save, and which calls may run early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli.output import Cell, Output
from foretrace.core.errors import count_things
from foretrace.core.files import describe_output
from foretrace.evaluation.ceiling_report import write_share

if TYPE_CHECKING:
    from foretrace.episodes.speculation_report import SpeculationReport
    from foretrace.evaluation.ceiling_report import CeilingReport, CeilingRow, Saving
    from foretrace.evaluation.effects_manifest import CheckedCall, EffectEvidence, EffectsManifest
    from foretrace.evaluation.replay_report import ReplayReport
    from foretrace.evaluation.step_times import AssumedTimes

_ROWS = 10
"""Most rows of a table that are shown; `--json` has all."""
_DEPTHS = ("2", "3", "5")
_ROW_DEPTH = "3"
"""The depth shown in the rows of a table."""
_LONGEST = 3
"""Most calls timed by time stamps that are named."""


def show_ceiling(output: Output, report: CeilingReport) -> None:
    """Print what can be saved: a first sentence says how much, and the tables where."""
    output.print((summarise_ceiling(report), "bold"))
    if not report.wall_s:
        return
    output.print(_describe_time(report))
    for line in (*_list_wants(report), *_describe_stamped(report)):
        output.print(line)
    if report.verdict == "known":
        output.print()
        _show_ways(output, report)
    for title, rows in (("source", report.sources), ("agent", report.agents), ("tool", report.tools)):
        if len(rows) > 1 or title == "tool":
            output.print()
            _show_rows(output, title, rows)
    output.print()
    output.print((report.conclusion.text, "bold"))


def show_live(output: Output, report: SpeculationReport) -> None:
    """What speculation gave in a run: its calls by action type, and a sentence."""
    head = ("speculation", "calls", "hits", "hidden", "of the time", "begun early", "used", "for nothing", "CPU")
    rows: list[tuple[Cell, ...]] = [
        (
            *(f"{action}: {', '.join(row.tools)}", row.calls, row.hits, write_time(row.saved_s)),
            *(write_time(row.seconds), row.launched, row.used, write_time(row.wasted_s), write_time(row.wasted_cpu_s)),
        )
        for action, row in report.rows.items()
    ]
    output.print_table(head, rows)
    output.print((_summarise_live(report), "bold"))
    if report.failed is not None:
        output.warn(f"{report.predictor} failed, and guessed nothing there: {report.failed}")


def _summarise_live(report: SpeculationReport) -> str:
    if report.share is None:
        return f"{report.predictor}: no call was made"
    hidden = f"hid {write_share(report.share)} of {write_time(report.tool_s)} of tools behind the model's replies"
    judging = f", and {write_time(report.judging_saved_s)} of final judging" if report.judging_saved_s else ""
    wasted = f"{write_time(report.wasted_s)} ran for nothing ({write_time(report.wasted_cpu_s)} of CPU)"
    refused = f"; {count_things(report.refused, 'guessed call')} could not be run early" if report.refused else ""
    late = f"; the guesses at {count_things(report.late, 'message')} came too late" if report.late else ""
    none = "; it guessed at no reply of this run" if not report.guesses and not report.late else ""
    return f"{report.predictor} {hidden}{judging}; {wasted}{refused}{late}{none}"


def summarise_ceiling(report: CeilingReport) -> str:
    """What can be saved at most, in one sentence."""
    oracle = report.oracle
    if not report.steps:
        return "unknown: there is no step of a model in these traces"
    if report.verdict == "unknown" or oracle.saved_s is None:
        return _ask_for_times(report, "steps", report.assume_times)
    return f"a perfect predictor of the next call saves at most {write_saving(oracle)} of {write_time(report.wall_s)}"


def describe_assumed(assumed: AssumedTimes, count: int) -> str:
    """The assumed times, for how many steps, and their source."""
    calls = "".join(f", {name} {write_time(seconds)}" for name, seconds in assumed.actions.items())
    return (
        f"times of {count:,} steps are assumed, not measured: a reply {write_time(assumed.model)}, a call "
        f"{write_time(assumed.tool)}{calls} ({assumed.source})"
    )


def _describe_time(report: CeilingReport) -> str:
    shares = (
        (report.model_s, "the model's"),
        (report.tool_s, "the tools'"),
        (report.eligible_s, f"in calls that are safe to run early ({', '.join(report.allow)})"),
    )
    of_time = ", ".join(f"{write_share(seconds / report.wall_s)} {what}" for seconds, what in shares)
    return (
        f"{count_things(report.traces, 'trace')} of {count_things(report.tasks, 'task')}; times are known of "
        f"{write_share(report.coverage)} of {count_things(report.steps, 'step')}: {of_time}"
    )


def _ask_for_times(report: CeilingReport | ReplayReport, what: str, assumed: AssumedTimes | None) -> str:
    """Why there is no verdict, and what to do about it."""
    known = f"{report.known_steps:,} of {report.steps:,} {what}"
    want = report.to_record[0] if report.to_record else "the times of model and tools"
    assume = "" if assumed is not None else "; or assume them: --assume-times tracelab"
    return f"unknown: the times of {known} are known, and half of them are needed; record {want}{assume}"


def _list_wants(report: CeilingReport) -> list[str]:
    lines: list[str] = []
    if report.assume_times is not None and report.assumed_steps:
        lines.append(describe_assumed(report.assume_times, report.assumed_steps))
    if report.unknown_steps:
        reasons = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in report.unknown_steps.items())
        lines.append(f"unknown times: {reasons}")
    if longest := report.overlaps.get("longest"):
        lines.append(f"{longest:,} steps have parallel calls of which only durations are known: the longest counts")
    return lines


def _describe_stamped(report: CeilingReport) -> list[str]:
    """The share of tool time that may include waiting for a person, and which calls to look at."""
    stamped = report.stamped
    if not stamped.share:
        return []
    longest = ", ".join(f"`{call.name}` {write_time(call.tool_s)}" for call in stamped.longest[:_LONGEST])
    return [
        f"{write_share(stamped.share)} of the tools' time is a difference of time stamps and may hold a person's "
        f"wait for a permission; waits that the source tells apart are left out; the longest: {longest}"
    ]


def _show_ways(output: Output, report: CeilingReport) -> None:
    known = write_share(report.coverage)
    ways: list[tuple[Cell, ...]] = [
        (
            f"guess the next call while the model writes, {report.guess_latency:g} s a guess",
            *_write_way(report.oracle),
            known,
        )
    ]
    for depth in _DEPTHS:
        ahead = report.ahead[depth]
        stale = f", {count_things(ahead.stale, 'stale read')} paid again" if ahead.stale else ""
        ways.append((f"guess {depth} calls ahead{stale}", *_write_way(ahead), known))
    output.print_table(("way", "saves at most", "of the time", "known"), ways)
    output.print()
    what = {
        "pure": "pure: only reads",
        "forkable": "forkable: tests, builds, edits, in a fork",
        "none": "none: never early",
    }
    held = [
        (
            what[each.name],
            each.steps,
            write_time(each.tool_s),
            *_write_way(each),
        )
        for each in report.held_by
    ]
    output.print_table(("what can take it back", "steps", "tools", "saves at most", "of the time"), held)


def _write_way(saving: Saving) -> tuple[str, str]:
    return ("unknown", "") if saving.saved_s is None else (write_time(saving.saved_s), write_saving(saving))


def _show_rows(output: Output, title: str, rows: Sequence[CeilingRow]) -> None:
    with_times = [row for row in rows if row.wall_s]
    output.print_table(
        (title, "steps", "known", "time", "model", "tools", "safe early", "saves at most", "3 ahead"),
        [
            (
                row.name,
                round(row.steps),
                write_share(row.coverage),
                write_time(row.wall_s),
                *(write_share(seconds / row.wall_s) for seconds in (row.model_s, row.tool_s, row.eligible_s)),
                *_write_row_savings(row),
            )
            for row in with_times[:_ROWS]
        ],
    )
    more, timeless = len(with_times[_ROWS:]), len(rows) - len(with_times)
    left_out = [f"{more:,} more"] * bool(more) + [f"{timeless:,} of which no time is known"] * bool(timeless)
    if left_out:
        output.print(f"and {' and '.join(left_out)}: --json has all")


def _write_row_savings(row: CeilingRow) -> tuple[str, str]:
    """The shares of a row's time that prefetching and running ahead save."""
    if row.verdict == "unknown":
        return ("unknown", "")
    return (write_saving(row.oracle), write_share(row.ahead[_ROW_DEPTH].share or 0.0))


def write_saving(saving: Saving | ReplayReport) -> str:
    """A saving as `18 % [12, 24]`; without the interval if fewer than two tasks are known."""
    share = write_share(saving.share or 0.0)
    if saving.low is None or saving.high is None:
        return share
    return f"{share} [{write_points(saving.low)}, {write_points(saving.high)}]"


def write_points(share: float) -> str:
    """A share in percent, without the sign: `18`, `1.9`."""
    return write_share(share).removesuffix(" %")


def write_time(seconds: float) -> str:
    """A duration in its two largest units: `0.25 s`, `12 s`, `2 min 5 s`, `3 h 20 min`, `5 d 2 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.2g} s"
    for name, size, small, step in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86400, "h", 3600)):
        rounded = round(seconds / step)
        if name == "d" or rounded < (3600 if name == "min" else 1440):
            many, rest = divmod(rounded, size // step)
            return f"{many:,} {name} {rest} {small}" if rest else f"{many:,} {name}"
    raise AssertionError("days have no end")


def show_replay(output: Output, report: ReplayReport) -> None:
    """Print what a predictor would have saved; the last lines say what is assumed and left out."""
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
        return _ask_for_times(report, "steps with a prediction", report.settings.assume_times)
    saved_s, most = report.saved_s or 0.0, report.oracle
    whole = write_time(report.base_s)
    perfect = f"a perfect predictor would have saved {write_saving(most)}"
    if not saved_s:
        return f"this predictor would have saved nothing of {whole}; {perfect}"
    saved = f"this predictor would have saved {write_saving(report)} of {whole}: {write_time(saved_s)}"
    return f"{saved}, {report.speedup:.2f} times as fast; {perfect}"


def _describe_launches(report: ReplayReport) -> str:
    stale = f", {report.stale:,} of them overtaken by a write" if report.stale else ""
    text = f"{report.launched:,} calls were run early: {report.hits:,} were used, {report.launched - report.hits:,} not"
    held_back = f"; {report.refused:,} guesses were held back as not safe" if report.refused else ""
    each = report.wasted_s_per_saved_s
    waste = f", {each:.2g} s for each second saved" if each is not None else ""
    return f"{text}{stale}{held_back}; {write_time(report.wasted_s)} of tools for nothing{waste}"


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
    """Print a row for each threshold; the current one is marked."""
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
    unknown = {name.replace("_", " "): count for name, count in report.unknown_steps.items()}
    for title, counts in (("unknown times", unknown), ("left out", left_out)):
        if any(counts.values()):
            yield f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


_EFFECT_ROWS = 30
"""Most rows that are shown; the file has all."""
_PATTERNS = 5
"""Most patterns of one tool that are shown."""


def show_effects(output: Output, manifest: EffectsManifest, out: Path | None = None, *, replaced: bool = False) -> None:
    """Print the most frequent tools and patterns, and where the file is."""
    rows: list[tuple[Cell, ...]] = []
    for tool in manifest.tools:
        rows.append(_make_effect_row(tool.tool, tool))
        patterns = [each for each in tool.patterns if each.pattern]
        rows += [
            _make_effect_row("  " + ", ".join(f"{name}: {value}" for name, value in each.pattern.items()), each)
            for each in patterns[:_PATTERNS]
        ]
    if rows:
        output.print_table(("tool, pattern", "class", "calls", "traces", "effects"), rows[:_EFFECT_ROWS])
        if len(rows) > _EFFECT_ROWS:
            output.print(f"and {len(rows) - _EFFECT_ROWS:,} more: {out or '--json'} has all")
        output.print()
    output.print(
        f"{manifest.calls:,} calls of {manifest.traces:,} traces: {len(manifest.tools):,} tools, "
        f"{sum(len(tool.patterns) for tool in manifest.tools):,} patterns"
    )
    if manifest.unread_calls:
        output.print(f"left out: calls that could not be read {manifest.unread_calls:,}")
    if out is not None:
        output.print(f"file: {describe_output(out, replaced)}")


def show_checked_call(output: Output, checked: CheckedCall) -> None:
    """Print whether a call may run ahead, and why."""
    seen = f"; seen {checked.calls:,} times: {checked.evidence}" if checked.evidence else ""
    output.print(f"{'may' if checked.may_run_ahead else 'may not'} run ahead: {checked.effect}{seen}")


def _make_effect_row(name: str, evidence: EffectEvidence) -> tuple[Cell, ...]:
    effects = ", ".join(f"{effect} {count:,}" for effect, count in evidence.effects.items())
    return name, evidence.effect_class, evidence.calls, evidence.traces, effects
