"""Label every assistant message of a trace with one of the nine action types, in one pass over the messages.

The rules are in the modules of this package whose names end in `_rules`, and the names that they look up in those that
end in `_tables`. `docs/actions.md` describes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from foretrace.actions.call_facts import DEFAULT_EFFECTS, CallFacts, CallKind, changes_state, merge_facts
from foretrace.actions.confidence import find_confidence
from foretrace.actions.observation_rules import ObservedResult, classify_observation
from foretrace.actions.repair_rules import RepairHistory, is_repair_in_chat
from foretrace.actions.taxonomy import ActionType, Effect, StepLabel
from foretrace.actions.text_message_rules import classify_text, find_nonstep_reason
from foretrace.actions.tool_rules import classify_call, classify_description
from foretrace.core.internal_errors import contain_errors
from foretrace.core.trace import Message, ToolCall, ToolSpec, Trace

_ACTION_OF_KIND = {
    CallKind.SETUP: ActionType.TOOL_CALL,
    CallKind.READ: ActionType.FILE_READ,
    CallKind.SEARCH: ActionType.RETRIEVAL,
    CallKind.OTHER: ActionType.TOOL_CALL,
    CallKind.WRITE: ActionType.FILE_WRITE,
    CallKind.UNDO: ActionType.TOOL_CALL,
    CallKind.VERIFY: ActionType.VERIFIER,
    CallKind.ASK: ActionType.ASK_CLARIFICATION,
    CallKind.HANDOVER: ActionType.BLOCKED,
    CallKind.GIVE_UP: ActionType.BLOCKED,
    CallKind.TERMINAL: ActionType.FINAL_ANSWER,
}
"""The action of a call of this kind, unless a rule of `_label_with_call` says otherwise."""


def find_lone_action(facts: CallFacts) -> ActionType:
    """The action of a call by itself, whatever went before."""
    return _ACTION_OF_KIND.get(facts.kind, ActionType.TOOL_CALL)


_FAILED_RULE = "nonstep.internal_error"
"""Of a message for which a rule raised an exception."""
_NO_CALL = CallFacts(kind=CallKind.SETUP, rule="", effect=Effect.PURE_READ)
"""The facts of a message without a call: nothing that could fail or be repaired."""


def classify_calls(trace: Trace, calls: Iterable[ToolCall]) -> CallFacts | None:
    """What a message with these calls does in this trace, with the effect that `label_trace` gives it; None if it has
    none."""
    # A call whose name could not be read was never executed.
    return merge_facts([classify_lone_call(call, trace.tools) for call in calls if call.name or not call.error])


class LabelEvidence(msgspec.Struct):
    """The label of one assistant message, and what it is based on."""

    label: StepLabel
    facts: CallFacts
    observations: list[int]


def label_trace(trace: Trace) -> list[StepLabel]:
    """Make one label for each assistant message of the trace, in order.

    Labels depend on structure: the tool, its arguments, what came before and the observations. The words of a message
    only decide if it makes no call. A message that is not a step gets the action `None` and a rule `nonstep.<why>`."""
    return [evidence.label for evidence in collect_evidence(trace)]


def collect_evidence(trace: Trace) -> list[LabelEvidence]:
    history = RepairHistory()
    steps: dict[int, LabelEvidence] = {}
    index_of_call: dict[str, int] = {}
    last = -1
    state_version = 0
    for index, message in enumerate(trace.messages):
        if message.role == "assistant":
            decision, facts = (None, _FAILED_RULE, Effect.UNKNOWN), _NO_CALL
            with contain_errors("labels", trace.key):
                decision, facts = _decide(trace, index, history)
            action, rule, effect = decision
            label = StepLabel(
                index=index,
                action=action,
                rule=rule,
                effect=effect,
                state_version=state_version,
                failed=False,
                confidence=find_confidence(rule, action),
            )
            steps[index] = LabelEvidence(label, facts, [])
            state_version += changes_state(facts)
            index_of_call.update((call.id, index) for call in message.tool_calls if call.id)
            last = index
        elif last >= 0 and _is_observation(trace.messages, index, last):
            # Calls can be batched before their results: the id says which step a result belongs to.
            for step in {index_of_call.get(call_id, last) for call_id in message.tool_call_ids} or {last}:
                with contain_errors("labels", trace.key):
                    _add_observation(steps[step], index, message, history)
    return list(steps.values())


def _is_observation(messages: tuple[Message, ...], index: int, last: int) -> bool:
    """Whether a message answers a call: the result of a tool, or a user message right after a message with a call."""
    role = messages[index].role
    return role == "tool" or (role == "user" and index == last + 1 and bool(messages[last].tool_calls))


def _add_observation(evidence: LabelEvidence, index: int, message: Message, history: RepairHistory) -> None:
    label, facts = evidence.label, evidence.facts
    result = classify_observation(facts.kind, message)
    evidence.observations.append(index)
    if result is ObservedResult.FAILED and not label.failed:
        evidence.label = msgspec.structs.replace(label, failed=True)
    if label.action is not None:
        history.add_result(label.index, index, facts, result, message.content[-400:] if message.content else "")


_Decision = tuple[ActionType | None, str, Effect]


def _decide(trace: Trace, index: int, history: RepairHistory) -> tuple[_Decision, CallFacts]:
    message = trace.messages[index]
    facts = classify_calls(trace, message.tool_calls) if message.author != "demo" else None
    if facts is None:
        return _label_without_call(trace, index), _NO_CALL
    decision = _label_with_call(facts, history)
    history.add_step(index, facts)
    return decision, facts


def classify_lone_call(call: ToolCall, tools: Sequence[ToolSpec] = ()) -> CallFacts:
    """What one call does; if its name says nothing, by the tool's description in `tools`."""
    facts = classify_call(call.name, call.arguments)
    if facts.rule == "tool.unknown":
        description = next((spec.description for spec in tools if spec.name == call.name), "")
        kind = classify_description(description) if description else None
        if kind is not None:
            return msgspec.structs.replace(facts, kind=kind, rule="tool.described")
    return facts


def _label_with_call(facts: CallFacts, history: RepairHistory) -> _Decision:
    if facts.kind is CallKind.SAY:
        return *classify_text(facts.payload), facts.effect
    if rule := history.find_repair(facts):
        return ActionType.REPAIR, rule, facts.effect
    if facts.kind is CallKind.COMPARE:
        action = ActionType.VERIFIER if history.has_written else ActionType.RETRIEVAL
        return action, facts.rule, facts.effect
    return _ACTION_OF_KIND[facts.kind], facts.rule, facts.effect


def _label_without_call(trace: Trace, index: int) -> _Decision:
    reason = find_nonstep_reason(trace.messages, index)
    if reason:
        return None, f"nonstep.{reason}", Effect.UNKNOWN if reason == "lost" else Effect.PURE_READ
    effect = DEFAULT_EFFECTS[CallKind.SAY]
    if is_repair_in_chat(trace.messages, index):
        return ActionType.REPAIR, "repair.chat_code", effect
    return *classify_text(trace.messages[index].content), effect
