"""Why each step of a trace has its label, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.actions.explain import ReadCall, RepairEvidence, ShownEvidence, StepExplanation
from foretrace.cli.output import Output, one_line
from foretrace.core.trace import Trace

_WIDTH = 160
"""Characters of a line of an observation that are shown."""
_RESULTS = {
    "failed": ("failed", "red"),
    "passed": ("passed", "green"),
    "unclear": ("shows neither success nor failure", ""),
}


def show_explanation(output: Output, trace: Trace, steps: Sequence[StepExplanation]) -> None:
    """Print the label of each step, and what it was made from."""
    output.print((one_line(trace.key), "bold"))
    output.print((f"{len(steps)} messages of the agent; the number of a step is the index of its message", "dim"))
    for step in steps:
        output.print()
        _show_step(output, trace, step)


def _show_step(output: Output, trace: Trace, step: StepExplanation) -> None:
    label = step.label
    title = (str(label.action), "bold cyan") if label.action else ("not a step", "dim")
    by = "" if label.corrected else f"; {_count_agreement(step)}"
    output.print((f"[{label.index}] ", "bold"), title, f"  confidence {label.confidence:.3f}", (by, "dim"))
    output.print(("  rule     ", "dim"), f"{label.rule}: {step.meaning}")
    for flag in step.flags:
        kind = ("  cheat    ", "red") if flag.is_cheat else ("  mark     ", "yellow")
        shows = f" ({one_line(flag.evidence)[:_WIDTH]})" if flag.evidence else ""
        output.print(kind, f"{flag.rule}: {flag.meaning}{shows}")
    for call in step.calls:
        output.print(("  call     ", "dim"), _describe_call(call))
    if not step.calls and (words := one_line(trace.messages[label.index].content)):
        output.print(("  text     ", "dim"), words if len(words) <= _WIDTH else f"... {words[-_WIDTH:]}")
    if step.repair is not None:
        output.print(("  repair   ", "dim"), _describe_repair(label.rule, step.repair))
    for shown in step.observations:
        result, style = _RESULTS[shown.result]
        output.print((f"  seen [{shown.message_index}] ", "dim"), (result, style), _describe_sign(shown))


def _count_agreement(step: StepExplanation) -> str:
    if not step.seen:
        return "no hand-labelled step has this rule and action"
    return f"{step.agreed} of {step.seen} hand-labelled steps with this rule and action agree"


def _describe_call(call: ReadCall) -> str:
    parts = [f"{one_line(call.name)}: {call.kind}"]
    parts += [f"{name} {', '.join(map(one_line, paths))}" for name, paths in _list_paths(call) if paths]
    return ", ".join(parts) + f" ({call.rule})"


def _list_paths(call: ReadCall) -> list[tuple[str, tuple[str, ...]]]:
    return [("shows", call.reads), ("writes", call.writes)]


def _describe_repair(rule: str, repair: RepairEvidence) -> str:
    what = one_line(repair.target) or "what it did"
    parts = [f"redoes {what}" + ("" if repair.step is None else f" of step [{repair.step}]")]
    if repair.shown_by is not None:
        line = f": {one_line(repair.line)[:_WIDTH]}" if repair.line else ""
        shows = "leaves it open" if rule == "repair.doubtful_target" else "shows the failure"
        parts.append(f"message [{repair.shown_by}] {shows}{line}")
    return "; ".join(parts)


def _describe_sign(shown: ShownEvidence) -> str:
    if shown.marked:
        return ": the source says so"
    return f": {one_line(shown.line)[:_WIDTH]}" if shown.line else ""
