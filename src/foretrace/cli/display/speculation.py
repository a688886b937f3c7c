"""Print what a perfect and a given predictor would save, and which calls may run early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli.output import Cell, Output
from foretrace.core.errors import count_things
from foretrace.core.files import describe_output
from foretrace.evaluation.savings import TO_RECORD, write_share

if TYPE_CHECKING:
    from foretrace.episodes.speculation_report import SpeculationReport
    from foretrace.evaluation.ceiling import CeilingReport, CeilingRow
    from foretrace.evaluation.effects_manifest import CheckedCall, EffectEvidence, EffectsManifest
    from foretrace.evaluation.replay_report import ReplayReport
    from foretrace.evaluation.savings import Saving
    from foretrace.evaluation.step_times import AssumedTimes

_ROWS = 10
"""Most rows of a table that are shown; `--json` has all."""
_DEPTHS = ("2", "3", "5")
_ROW_DEPTH = "3"
_LONGEST = 3
_HELD_BY = {
    "pure": "pure: only reads",
    "forkable": "forkable: tests, builds, edits, in a fork",
    "none": "none: never run early",
}
_EFFECT_ROWS, _PATTERNS = 30, 5
"""Most rows of a table of effects that are shown, and most patterns of one tool; the file has all."""


def write_points(share: float) -> str:
    """A share in percent, without the sign: `18`, `1.9`."""
    return write_share(share).removesuffix("%")


def write_saving(saving: Saving) -> str:
    """A saving as `18% [12, 24]`; without the interval if fewer than two tasks are known."""
    share = write_share(saving.share or 0.0)
    if saving.low is None or saving.high is None:
        return share
    return f"{share} [{write_points(saving.low)}, {write_points(saving.high)}]"


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


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items() if count)


def describe_assumed(assumed: AssumedTimes | None, count: int) -> list[str]:
    """The assumed times, for how many steps, and their source."""
    if assumed is None or not count:
        return []
    calls = "".join(f", {name} {write_time(seconds)}" for name, seconds in assumed.actions.items())
    return [
        f"times of {count_things(count, 'step')} are assumed, not measured: a reply {write_time(assumed.model)}, "
        f"a call {write_time(assumed.tool)}{calls} ({assumed.source})"
    ]


def _ask_for_times(report: CeilingReport | ReplayReport, what: str, assumed: AssumedTimes | None) -> str:
    known = f"{report.known_steps:,} of {report.steps:,} {what}"
    want = TO_RECORD[next(iter(report.unknown_steps))] if report.unknown_steps else "the times of model and tools"
    assume = "" if assumed is not None else "; or assume them: --assume-times tracelab"
    return f"unknown: the times of {known} are known, and half of them are needed; record {want}{assume}"


def summarize_ceiling(report: CeilingReport) -> str:
    if not report.steps:
        return "unknown: there is no step of a model in these traces"
    if report.verdict == "unknown" or not report.wall_s:
        return _ask_for_times(report, "steps", report.assume_times)
    most = write_saving(report.oracle)
    return f"a perfect predictor of the next call saves at most {most} of {write_time(report.wall_s)}"


def show_ceiling(output: Output, report: CeilingReport) -> None:
    """Print what can be saved: a first sentence says how much, and the tables where."""
    output.print((summarize_ceiling(report), "bold"))
    if not report.wall_s:
        return
    for line in _describe_times(report):
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


def _describe_times(report: CeilingReport) -> Iterator[str]:
    parts = (
        (report.model_s, "the model's"),
        (report.tool_s, "the tools'"),
        (report.eligible_s, f"in calls that are safe to run early ({', '.join(report.allow)})"),
    )
    of_time = ", ".join(f"{write_share(seconds / report.wall_s)} {what}" for seconds, what in parts)
    yield (
        f"{count_things(report.traces, 'trace')} of {count_things(report.tasks, 'task')}; times are known of "
        f"{write_share(report.coverage)} of {count_things(round(report.steps), 'step')}: {of_time}"
    )
    yield from describe_assumed(report.assume_times, report.assumed_steps)
    if report.unknown_steps:
        yield f"unknown times: {_list_counts(report.unknown_steps)}"
    if longest := report.overlaps.get("longest"):
        yield f"parallel calls of which only durations are known, so that the longest counts: {longest:,}"
    if report.stamped_s:
        share = write_share(min(1.0, report.stamped_s / report.tool_s))
        calls = ", ".join(f"`{call.name}` {write_time(call.tool_s)}" for call in report.longest_stamped[:_LONGEST])
        yield (
            f"{share} of the tools' time is a difference of time stamps and may hold a person's wait for a permission; "
            f"waits that the source tells apart are left out; the longest: {calls}"
        )


def _show_ways(output: Output, report: CeilingReport) -> None:
    ways = {f"guess the next call while the model writes, {report.guess_latency:g} s a guess": report.oracle}
    for depth in _DEPTHS:
        ahead = report.ahead[depth]
        stale = f", {count_things(ahead.stale, 'stale read')} paid again" if ahead.stale else ""
        ways[f"guess {depth} calls ahead{stale}"] = ahead
    known = write_share(report.coverage)
    output.print_table(
        ("way", "saves at most", "of the time", "known"),
        [(name, write_time(way.saved_s or 0.0), write_saving(way), known) for name, way in ways.items()],
    )
    output.print()
    output.print_table(
        ("how it can be undone", "steps", "tools", "saves at most", "of the time"),
        [
            (
                _HELD_BY[each.name],
                each.steps,
                write_time(each.tool_s),
                write_time(each.saved_s or 0.0),
                write_saving(each),
            )
            for each in report.held_by
        ],
    )


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
                *(
                    ("unknown", "")
                    if row.verdict == "unknown"
                    else (write_saving(row.oracle), write_share(row.ahead[_ROW_DEPTH].share or 0.0))
                ),
            )
            for row in with_times[:_ROWS]
        ],
    )
    more, timeless = len(with_times[_ROWS:]), len(rows) - len(with_times)
    left_out = [f"{more:,} more"] * bool(more) + [f"{timeless:,} of which no time is known"] * bool(timeless)
    if left_out:
        output.print(f"and {' and '.join(left_out)}: --json has all")


def show_replay(output: Output, report: ReplayReport) -> None:
    """Print what a predictor would have saved; the last lines say what is assumed and left out."""
    known = bool(report.base_s) and report.verdict == "known"
    output.print((_summarize_replay(report, known=known), "bold"))
    if known:
        for line in _describe_guesses(report):
            output.print(line)
        output.print()
        _show_replay_tables(output, report)
        output.print()
        for line in describe_assumed(report.settings.assume_times, report.assumed_steps):
            output.print(line)
        for each in report.assumed:
            output.print(f"assumed: {each.text} ({each.count:,})")
    if report.steps_without_prediction:
        count = count_things(report.steps_without_prediction, "step")
        output.print(f"without a prediction: {count} of these traces, whose time counts, and none of it is saved")
    problems = {f"{name} in the predictions": count for name, count in report.problems.items()}
    left_out = {"predictions for steps that are not in these traces": report.other_predictions, **problems}
    for title, counts in (("unknown times", report.unknown_steps), ("left out", left_out)):
        if any(counts.values()):
            output.print(f"{title}: {_list_counts(counts)}")
    if report.verdict == "known":
        output.print()
        output.print((report.conclusion.text, "bold"))


def _summarize_replay(report: ReplayReport, *, known: bool) -> str:
    if not known:
        return _ask_for_times(report, "steps with a prediction", report.settings.assume_times)
    whole, perfect = write_time(report.base_s), f"a perfect predictor would have saved {write_saving(report.oracle)}"
    if not report.saved_s:
        return f"this predictor would have saved nothing of {whole}; {perfect}"
    saved = f"this predictor would have saved {write_saving(report)} of {whole}: {write_time(report.saved_s)}"
    return f"{saved}, {report.speedup or 0.0:.2f} times as fast; {perfect}"


def _describe_guesses(report: ReplayReport) -> Iterator[str]:
    stale = f", {report.stale:,} of them overtaken by a write" if report.stale else ""
    early, refused = count_things(report.launched, "call"), count_things(report.refused, "guess", "guesses")
    text = f"run early: {early}, {report.hits:,} used, {report.launched - report.hits:,} not"
    held_back = f"; held back as not safe: {refused}" if report.refused else ""
    waste = f", {report.wasted_s / report.saved_s:.2g} s for each second saved" if report.saved_s else ""
    yield f"{text}{stale}{held_back}; {write_time(report.wasted_s)} of tool time wasted{waste}"
    text = (
        f"{count_things(report.traces, 'trace')} of {count_things(report.tasks, 'task')}; times are known of "
        f"{write_share(report.coverage)} of {count_things(report.steps, 'step')} with a prediction"
    )
    if report.hit_rate is not None:
        text += f"; the first guess is right at {write_share(report.hit_rate)} of those with calls"
    if report.eligible_hit_rate is not None:
        text += f", at {write_share(report.eligible_hit_rate)} of those that are safe to run early"
    yield text


def _show_replay_tables(output: Output, report: ReplayReport) -> None:
    tasks = report.per_task
    per_task = (
        ("without guesses", tasks.base_s, write_time),
        ("with them", tasks.remaining_s, write_time),
        ("saved", tasks.share, write_share),
    )
    output.print_table(
        ("per task", "p50", "p95"),
        [(name, write(found.p50 or 0.0), write(found.p95 or 0.0)) for name, found, write in per_task],
    )
    output.print()
    rows: list[tuple[Cell, ...]] = []
    for point in report.frontier:
        name = "all" if point.threshold is None else f"{point.threshold:.4g}"
        this = " (this)" * (point.threshold == report.settings.threshold)
        saved, wasted = write_time(point.saved_s), write_time(point.wasted_s)
        rows.append((name + this, point.launched, point.hits, saved, write_share(point.share or 0.0), wasted))
    title = f"{report.gate} at least" if report.gate is not None else "guesses"
    output.print_table((title, "launched", "used", "saves", "of the time", "wastes"), rows)


def show_live(output: Output, report: SpeculationReport) -> None:
    head = ("speculation", "calls", "hits", "hidden", "of the time", "begun early", "used", "for nothing", "CPU")
    rows: list[tuple[Cell, ...]] = [
        (
            *(f"{action}: {', '.join(row.tools)}", row.calls, row.hits, write_time(row.saved_s)),
            *(write_time(row.seconds), row.launched, row.used, write_time(row.wasted_s), write_time(row.wasted_cpu_s)),
        )
        for action, row in report.rows.items()
    ]
    output.print_table(head, rows)
    output.print((_summarize_live(report), "bold"))
    if report.failed is not None:
        output.warn(f"{report.predictor} failed, and guessed nothing there: {report.failed}")


def _summarize_live(report: SpeculationReport) -> str:
    if report.share is None:
        return f"{report.predictor}: no call was made"
    hidden = f"hid {write_share(report.share)} of {write_time(report.tool_s)} of tools behind the model's replies"
    judging = f", and {write_time(report.judging_saved_s)} of final judging" if report.judging_saved_s else ""
    wasted = f"{write_time(report.wasted_s)} ran for nothing ({write_time(report.wasted_cpu_s)} of CPU)"
    refused = f"; {count_things(report.refused, 'guessed call')} could not be run early" if report.refused else ""
    late = f"; the guesses at {count_things(report.late, 'message')} came too late" if report.late else ""
    none = "; it guessed at no reply of this run" if not report.guesses and not report.late else ""
    return f"{report.predictor} {hidden}{judging}; {wasted}{refused}{late}{none}"


def show_effects(output: Output, manifest: EffectsManifest, out: Path | None = None, *, replaced: bool = False) -> None:
    rows: list[tuple[Cell, ...]] = []
    for tool in manifest.tools:
        rows.append(_make_effect_row(tool.tool, tool))
        for each in [each for each in tool.patterns if each.pattern][:_PATTERNS]:
            pattern = ", ".join(f"{name}: {value}" for name, value in each.pattern.items())
            rows.append(_make_effect_row(f"  {pattern}", each))
    if rows:
        output.print_table(("tool, pattern", "class", "calls", "traces", "effects"), rows[:_EFFECT_ROWS])
        if len(rows) > _EFFECT_ROWS:
            output.print(f"and {len(rows) - _EFFECT_ROWS:,} more: {out or '--json'} has all")
        output.print()
    output.print(
        f"{count_things(manifest.calls, 'call')} of {count_things(manifest.traces, 'trace')}: "
        f"{count_things(len(manifest.tools), 'tool')}, "
        f"{sum(len(tool.patterns) for tool in manifest.tools):,} patterns"
    )
    if manifest.unread_calls:
        output.print(f"left out: calls that could not be read {manifest.unread_calls:,}")
    if out is not None:
        output.print(f"file: {describe_output(out, replaced)}")


def _make_effect_row(name: str, evidence: EffectEvidence) -> tuple[Cell, ...]:
    effects = ", ".join(f"{effect} {count:,}" for effect, count in evidence.effects.items())
    return name, evidence.effect_class, evidence.calls, evidence.traces, effects


def show_checked_call(output: Output, checked: CheckedCall) -> None:
    seen = f"; seen {checked.calls:,} times: {checked.evidence}" if checked.evidence else ""
    output.print(f"{'may' if checked.may_run_ahead else 'may not'} run ahead: {checked.effect}{seen}")
