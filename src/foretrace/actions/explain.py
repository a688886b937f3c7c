"""Explain the labels of a trace: of each step the rule, what it means, and what in the trace made it apply."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foretrace.actions.call_facts import OPEN_FILE, CallFacts, CallKind
from foretrace.actions.call_names import name_call
from foretrace.actions.confidence import find_agreement
from foretrace.actions.corrections import Corrections
from foretrace.actions.flag_meanings import find_flag_meaning
from foretrace.actions.flags import Flag, flag_trace
from foretrace.actions.label_steps import LabelEvidence, ShownResult, classify_each_call, collect_evidence
from foretrace.actions.observation_rules import ObservedResult
from foretrace.actions.rule_meanings import find_rule_meaning
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.trace import Message, Trace


class ReadCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call as the rules read it."""

    name: str
    """Short name, such as `bash: grep`."""
    rule: str
    kind: str
    """What it does, such as `read`, `write` or `verify`."""
    reads: tuple[str, ...] = ()
    """Paths that it shows."""
    writes: tuple[str, ...] = ()
    """Paths that it creates or changes."""


class RepairEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Why a step is a repair. Indexes are of messages."""

    target: str
    """The file, tool, function or class that it does over; empty where it is none."""
    step: int | None
    """The step that did it before."""
    shown_by: int | None
    """The message that shows the failure."""
    line: str
    """The line of it that does; empty where the rules keep none."""


class ShownEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What an observation shows of the step."""

    message_index: int
    result: str
    """`failed`, `passed` or `unclear`."""
    line: str
    """The line that shows it; empty where nothing is shown, and where the source says that the call failed."""
    marked: bool
    """Whether the source itself says that the call failed."""


class FlagEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Why a step is flagged."""

    rule: str
    meaning: str
    """What the rule means."""
    is_cheat: bool
    """Whether a success is worth nothing with it; else it is only a mark."""
    evidence: str
    """The command, path or line of code that shows it."""


class StepExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The label of one step, and why it is that."""

    label: StepLabel
    meaning: str
    """What the rule means."""
    agreed: int
    """Hand-labelled steps to which the rule gave this action, and rightly so."""
    seen: int
    """All hand-labelled steps to which the rule gave this action."""
    calls: tuple[ReadCall, ...]
    repair: RepairEvidence | None
    observations: tuple[ShownEvidence, ...]
    flags: tuple[FlagEvidence, ...] = ()


def explain_trace(trace: Trace, corrections: Corrections | None = None) -> list[StepExplanation]:
    """Explain the label of each assistant message of the trace, in order."""
    found = collect_evidence(trace)
    labels = [evidence.label for evidence in found]
    if corrections is not None:
        labels = corrections.apply(trace, labels)
    lines = {(shown.message_index, evidence.label.index): shown for evidence in found for shown in evidence.results}
    flags = flag_trace(trace, found)
    return [
        _explain(trace, label, evidence, lines, [flag for flag in flags if flag.index == label.index])
        for label, evidence in zip(labels, found, strict=True)
    ]


def _explain(
    trace: Trace,
    label: StepLabel,
    evidence: LabelEvidence,
    shown: dict[tuple[int, int], ShownResult],
    flags: Sequence[Flag],
) -> StepExplanation:
    message = trace.messages[label.index]
    agreed, seen = find_agreement(label.rule, label.action)
    return StepExplanation(
        label=label,
        meaning=find_rule_meaning(label.rule),
        agreed=agreed,
        seen=seen,
        calls=_read_calls(trace, message),
        repair=_explain_repair(evidence, shown),
        observations=tuple(
            ShownEvidence(
                message_index=each.message_index,
                result=each.result.value,
                line=each.line,
                marked=each.result is ObservedResult.FAILED and bool(trace.messages[each.message_index].is_error),
            )
            for each in evidence.results
        ),
        flags=tuple(
            FlagEvidence(
                rule=flag.rule,
                meaning=find_flag_meaning(flag.rule),
                is_cheat=flag.is_cheat,
                evidence=flag.evidence,
            )
            for flag in flags
        ),
    )


def _read_calls(trace: Trace, message: Message) -> tuple[ReadCall, ...]:
    if message.author == "demo":
        return ()
    made = [call for call in message.tool_calls if call.name or not call.error]
    facts = classify_each_call(trace, made)
    return tuple(_read_call(name_call(call), each) for call, each in zip(made, facts, strict=True))


def _read_call(name: str, facts: CallFacts) -> ReadCall:
    kind = "hand over" if facts.kind is CallKind.HANDOVER else facts.kind.name.lower().replace("_", " ")
    return ReadCall(name=name, rule=facts.rule, kind=kind, reads=_name(facts.reads), writes=_name(facts.writes))


def _name(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("the open file" if path == OPEN_FILE else path for path in paths if path)


def _explain_repair(evidence: LabelEvidence, shown: dict[tuple[int, int], ShownResult]) -> RepairEvidence | None:
    repair = evidence.repair
    if repair is None:
        return None
    lines = [each.line for (index, _), each in shown.items() if index == repair.shown_by and each.line]
    return RepairEvidence(
        target=repair.target, step=repair.step, shown_by=repair.shown_by, line=lines[0] if lines else ""
    )
