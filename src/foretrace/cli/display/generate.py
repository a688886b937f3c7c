"""What `foretrace generate` says: the probe, where it stands, and what came of it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.output import Cell, Output, ProgressDisplay, format_seconds
from foretrace.core.completion import CAPABILITY_NAMES

if TYPE_CHECKING:
    from foretrace.core.problem import Problem
    from foretrace.episodes.generate.engine import GenerateReport
    from foretrace.episodes.generate.progress import RunProgress

_FIRST_METRICS = (
    "think_count",
    "code_block_count",
    "execution_count",
    "code_iterations",
    "had_errors",
    "recovered",
    "has_verify",
    "is_interleaved",
    "has_tool_feedback",
    "cut_replies",
    "invented_results",
    "repairs",
)
"""Metrics that are shown first; others that a trace has come after them."""
_MAX_ERROR_KINDS = 2
"""Kinds of errors that the line of progress names."""


class StatusDisplay:
    """Follows a run: says once what the server can do, and then where the run stands."""

    def __init__(self, output: Output, progress: ProgressDisplay) -> None:
        self._output, self._progress = output, progress
        self._started = False
        """Whether attempts were begun."""
        self.failure_report: GenerateReport | None = None
        """What a run did that a failure ended."""

    def on_failure(self, report: GenerateReport) -> None:
        """Note what was done when a failure ended the run."""
        self.failure_report = report

    def __call__(self, status: RunProgress) -> None:
        self._progress(describe_progress(status))
        if not self._started and status.doing == "running":
            self._started = True
            for line in describe_capabilities(status.capabilities or {}):
                self._output.note(line)
            if status.isolation is not None:
                self._output.note(f"sandbox: {status.isolation.sandbox}, isolation level {status.isolation.level}")


def describe_progress(status: RunProgress) -> str:
    """Where a run stands, in one line; what matters most comes first, since a terminal cuts its end off."""
    if status.doing != "running":
        return status.doing
    attempts_s, tokens_s = status.compute_rates()
    parts = [f"{status.done:,} of {status.done + status.remaining:,} done"]
    if attempts_s > 0:
        parts[0] += f", {format_seconds(status.remaining / attempts_s)} left"
    if status.server_failure:
        parts.append(f"the server fails ({status.server_failure}), trying again")
    if status.errors:
        kinds = [f"{kind} {count:,}" for kind, count in Counter(status.errors).most_common(_MAX_ERROR_KINDS)]
        more = ["..."] if len(status.errors) > _MAX_ERROR_KINDS else []
        parts.append(f"errors: {', '.join([*kinds, *more])}")
    if status.judged:
        passed, ideal = status.successes / status.judged, status.ideal_attempts / status.judged
        parts.append(f"{passed:.0%} passed, {ideal:.0%} ideal")
    parts += [f"{tokens_s:,.0f} tokens/s", f"{status.in_flight} in flight (up to {status.slots} asking)"]
    return "; ".join(parts)


def describe_capabilities(capabilities: dict[str, Any]) -> list[str]:
    """What a model server was found to do, and where not, why; one line each."""
    does = [name for name in CAPABILITY_NAMES if capabilities.get(name)]
    context = capabilities.get("context_length")
    lines = [f"the model server does: {', '.join(does) or 'none of the extras'}"]
    lines[0] += f"; context of {context:,} tokens" if context else ""
    reasons = capabilities.get("reasons", {})
    return lines + [f"not {name}: {reasons[name]}" for name in CAPABILITY_NAMES if name in reasons]


def note_unknown_to_demo(output: Output, model: str, problems: Sequence[Problem]) -> None:
    """Say that the demo model does not know some of the problems that it is given."""
    from foretrace.dataset.demonstration import is_demo_model
    from foretrace.models.demo_model import KNOWN_PROBLEMS
    from foretrace.registry import load_problems

    if model != "demo" and not is_demo_model(model):
        return
    unknown = {problem.id for problem in problems} - {
        problem.id for problem in load_problems("builtin", None, KNOWN_PROBLEMS)
    }
    if unknown:
        output.note(
            f"the demo model knows the first ten builtin problems; the {len(unknown):,} others given get nonsense "
            f"(--problems builtin --limit {KNOWN_PROBLEMS})"
        )


def show_report(output: Output, report: GenerateReport, out: Path | None = None, dropped: int = 0) -> None:
    """Say what a run did."""
    counts = report.counts
    for path in report.damaged:
        output.warn(f"{path}: a damaged journal of an earlier run; what could be read of it is sealed, and it is kept")
    if report.stopped and not report.error:
        output.note(f"stopped before the end: {report.stopped}; the same command goes on")
    for kind, example in counts.examples.items():
        output.note(f"{counts.errors[kind]:,} ended in an error, {kind}: {example}")
    if counts.errors:
        output.note("they count neither as success nor as failure; the same command makes them again")
    if counts.cut_replies:
        output.note(_cut_replies(report))
    if output.json:
        output.write_json({"out": str(out), "problems_left_out": dropped, **report.make_facts()})
        return
    output.print_fields(_report_fields(report, out, dropped))
    if report.metrics:
        output.print()
        names = [
            *(n for n in _FIRST_METRICS if n in report.metrics),
            *(n for n in report.metrics if n not in _FIRST_METRICS),
        ]
        output.print_table(("metric", "mean"), [(name, float(report.metrics[name])) for name in names])


def _cut_replies(report: GenerateReport) -> str:
    counts = report.counts
    text = (
        f"{counts.cut_replies:,} of {counts.replies:,} replies were cut at --max-tokens {report.max_tokens}: raise it"
    )
    context = (counts.capabilities or {}).get("context_length")
    tight = context is not None and context < 2 * report.max_tokens
    return f"{text}, and the model's context of {context:,} tokens, in which all turns must fit" if tight else text


def _report_fields(report: GenerateReport, out: Path | None, dropped: int) -> list[tuple[str, Cell]]:
    counts = report.counts
    isolation = report.isolation or {}
    estimated = " (estimated where the server does not count)" if report.tokens_estimated else ""
    rows: list[tuple[str, Cell]] = [
        ("model", report.model),
        ("protocol", report.protocol),
        ("problems", f"{report.problems:,}, and {dropped:,} left out" if dropped else report.problems),
        ("attempts", _count_attempts(report)),
    ]
    if counts.done:
        rows += [
            ("success", _percentage(report.success, counts.judged)),
            ("ideal", _percentage(report.ideal, counts.judged)),
            ("mean reward", report.mean_reward),
            (
                "recovered",
                "nothing failed" if report.recovery is None else f"{report.recovery:.1%} of those that erred",
            ),
            ("stored", counts.stored),
            *((f"  left out, {reason}", count) for reason, count in counts.left_out.items()),
            *((f"  error, {kind}", count) for kind, count in counts.errors.items()),
            ("tokens", f"{report.prompt_tokens:,} in, {report.completion_tokens:,} out{estimated}"),
            (
                "seconds",
                f"{report.seconds:,.1f} ({counts.model_s:,.1f} of models, {counts.tool_s:,.1f} of tools)",
            ),
            ("judged by", ", ".join(f"{form} {count:,}" for form, count in counts.forms.items()) or None),
        ]
        if report.cost:
            rows.append(("cost", report.cost))
    if isolation:
        weakest = f", the weakest of {len(report.nodes):,} nodes" if len(report.nodes) > 1 else ""
        rows.append(("isolation", f"level {isolation['level']} ({isolation.get('sandbox', '')}){weakest}"))
        rows += _list_nodes(report)
        rows += [(f"not {name}", why) for name, why in isolation.get("refused", {}).items()]
    if out is not None:
        rows += [("traces folder", str(out)), ("in a browser", f"foretrace view {shlex.quote(str(out))}")]
    return rows


def _list_nodes(report: GenerateReport) -> list[tuple[str, Cell]]:
    """Which nodes have which isolation, where they differ."""
    by_level: dict[int, list[str]] = {}
    for name, isolation in report.nodes.items():
        by_level.setdefault(isolation["level"], []).append(name)
    if len(by_level) < 2:
        return []
    return [(f"  level {level}", ", ".join(by_level[level])) for level in sorted(by_level)]


def _count_attempts(report: GenerateReport) -> str:
    counts = report.counts
    parts = [
        f"{counts.already_done:,} already there",
        f"{counts.filtered:,} left out before",
        f"{counts.done:,} done now",
    ]
    return f"{counts.asked:,} = " + " + ".join([*parts, f"{counts.remaining:,} not begun"])


def _percentage(share: float | None, of: int) -> str | None:
    return None if share is None else f"{share:.1%} of {of:,}"
