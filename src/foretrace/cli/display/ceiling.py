"""What a perfect predictor would save: one sentence, what each way of speculation saves, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretrace.cli.output import Cell, Output
from foretrace.core.errors import count_things

if TYPE_CHECKING:
    from foretrace.evaluation.assumed_times import AssumedTimes
    from foretrace.evaluation.ceiling_report import CeilingReport, CeilingRow, Saving
    from foretrace.evaluation.replay_report import ReplayReport

_ROWS = 10
"""Rows of a table that are shown; `--json` has all."""
_DEPTHS = ("2", "3", "5")
_ROW_DEPTH = "3"
"""The depth that a row of a table shows."""
_LONGEST = 3
"""Calls with a time from stamps that are named."""


def show_ceiling(output: Output, report: CeilingReport) -> None:
    """The first sentence says what there is to win, and the tables where."""
    output.print((summarise_ceiling(report), "bold"))
    if not report.steps:
        return
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


def summarise_ceiling(report: CeilingReport) -> str:
    """What there is to win, in one sentence."""
    oracle = report.oracle
    if not report.steps:
        return "unknown: there is no step of a model in these traces"
    if report.verdict == "unknown" or oracle.saved_s is None:
        known = f"{report.known_steps:,} of {report.steps:,} steps"
        assume = "" if report.assume_times is not None else "; or assume them: --assume-times tracelab"
        wanted = f"record {_first_want(report)}{assume}"
        return f"unknown: the times of {known} are known, and half of them are needed; {wanted}"
    return f"a perfect predictor of the next call saves at most {write_saving(oracle)} of {write_time(report.wall_s)}"


def describe_assumed(assumed: AssumedTimes, count: int) -> str:
    """Which times are assumed, of how many steps, and where they come from."""
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


def _first_want(report: CeilingReport) -> str:
    return report.to_record[0] if report.to_record else "the times of model and tools"


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
    """What of the tools' time may hold a person's wait, and which calls to look at."""
    stamped = report.stamped
    if not stamped.share:
        return []
    safe = "" if stamped.eligible_share is None else f", {write_share(stamped.eligible_share)} of what is safe early"
    longest = ", ".join(f"`{call.name}` {write_time(call.tool_s)}" for call in stamped.longest[:_LONGEST])
    return [
        f"{write_share(stamped.share)} of the tools' time{safe}, is a difference of time stamps and may hold a "
        f"person's wait for a permission; waits that the source tells apart are left out; the longest: {longest}"
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
    eager = report.eager
    unknown = ("unknown", "") if eager.verdict == "unknown" else _write_way(eager)
    ways.append(("guess nothing, start a call when it is complete", *unknown, write_share(eager.coverage)))
    output.print_table(("way", "saves at most", "of the time", "known"), ways)
    if eager.coverage < 0.5:
        output.print("the last one needs the time of each call, and where in the reply it ends")
    if eager.place_assumed_steps:
        output.print(
            f"the last one assumes, of {eager.place_assumed_steps:,} steps with native calls, that these come at the "
            "end of the reply, in their order and as long as their text: a single one then saves nothing"
        )


def _write_way(saving: Saving) -> tuple[str, str]:
    return ("unknown", "") if saving.saved_s is None else (write_time(saving.saved_s), write_saving(saving))


def _show_rows(output: Output, title: str, rows: Sequence[CeilingRow]) -> None:
    with_times = [row for row in rows if row.wall_s]
    output.print_table(
        (title, "steps", "known", "time", "model", "tools", "safe early", "saves at most", "3 ahead", "no guess"),
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


def _write_row_savings(row: CeilingRow) -> tuple[str, str, str]:
    """What prefetching, running ahead and starting a call when it is complete save of a row's time."""
    if row.verdict == "unknown":
        return ("unknown", "", "")
    eager = "unknown" if row.eager.verdict == "unknown" else write_share(row.eager.share or 0.0)
    return (write_saving(row.oracle), write_share(row.ahead[_ROW_DEPTH].share or 0.0), eager)


def write_saving(saving: Saving | ReplayReport) -> str:
    """`18 % [12, 24]`; without an interval where fewer than two tasks are known."""
    share = write_share(saving.share or 0.0)
    if saving.low is None or saving.high is None:
        return share
    return f"{share} [{_write_number(saving.low)}, {_write_number(saving.high)}]"


def write_share(share: float) -> str:
    """A share as a person says it: `18 %`, `1.9 %`, `0 %`."""
    return f"{_write_number(share)} %"


def _write_number(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f}" if percent >= 9.95 or percent < 0.05 else f"{percent:.1f}"


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
