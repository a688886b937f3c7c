"""Labels every assistant message of a trace with one of the nine action types, in one pass over the "
"messages."""

from __future__ import annotations

import re

import msgspec

from foretrace.actions.call_facts import DEFAULT_EFFECTS, CallFacts, CallKind, merge_facts
from foretrace.actions.observation_rules import ObservedResult, classify_observation, reports_exception
from foretrace.actions.repair_rules import RepairHistory
from foretrace.actions.taxonomy import ActionType, Effect, StepLabel
from foretrace.actions.text_message_rules import classify_text, strip_code_and_thinking
from foretrace.actions.tool_rules import classify_call, classify_description
from foretrace.core.trace import Message, ToolCall, Trace

ACTION_OF_KIND = {
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
"""The action of a kind where the history of the trace has no say."""

STATE_CHANGING = (Effect.LOCAL_WRITE, Effect.EXTERNAL_WRITE)
"""Effects after which the state of the world is another version."""

_ACKNOWLEDGEMENT = re.compile(
    r"\W*(?:ok(?:ay)?|sure|understood|got it|alright|yes|ready|I(?:'ve| have)?\s?(?:fully )?underst(?:an|oo)d"
    r"|I(?:'ll| will) follow)\b[^?`]{0,120}\Z",
    re.I,
)
_LIMIT = re.compile(r"\s*(?:Exit due to|Exited? \(|exit_(?:cost|context|format|error))[^\n]{0,160}\s*\Z")
_LOST = re.compile(r"\s*(?:None|null)?\s*\Z")


class _OpenLabel(msgspec.Struct):
    """A step whose label is not finished before its observations are seen."""

    label: StepLabel
    found: CallFacts


def label_trace(trace: Trace) -> list[StepLabel]:
    """One label for each assistant message of the trace, in order.

    Labels depend on structure: tool, arguments, what went before, what answered. The words of a message
    decide only where it makes no call. Messages that are no steps get the action null and a rule
    `nonstep.<why>`.
    """
    history = RepairHistory()
    made: dict[int, _OpenLabel] = {}
    owners: dict[str, int] = {}
    last = -1
    version = 0
    for index, message in enumerate(trace.messages):
        if message.role == "assistant":
            label, found = _label(trace, index, version, history)
            made[index] = _OpenLabel(label, found)
            version += label.effect in STATE_CHANGING and label.action is not None
            owners.update((call.id, index) for call in message.tool_calls if call.id)
            last = index
        elif last >= 0 and _is_observation(trace.messages, index, last):
            # Calls can be batched before their results: the id says which step a result answers.
            for step in {owners.get(call_id, last) for call_id in message.tool_call_ids} or {last}:
                _observe(made[step], index, message, history)
    return [pending.label for pending in made.values()]


_NO_CALL = CallFacts(kind=CallKind.SETUP, rule="", effect=Effect.PURE_READ)
"""What a message without a call means: nothing that could fail or be repaired."""


def _is_observation(messages: tuple[Message, ...], index: int, last: int) -> bool:
    """Whether a message answers a call: a tool's result, or the user's voice where a call got none."""
    role = messages[index].role
    return role == "tool" or (role == "user" and index == last + 1 and bool(messages[last].tool_calls))


def _observe(pending: _OpenLabel, now: int, message: Message, history: RepairHistory) -> None:
    label, found = pending.label, pending.found
    result = classify_observation(found.kind, message)
    if result is ObservedResult.FAILED and not label.failed:
        pending.label = msgspec.structs.replace(label, failed=True)
    if label.action is not None:
        history.add_result(label.index, now, found, result, message.content[-400:] if message.content else "")


def _label(trace: Trace, index: int, version: int, history: RepairHistory) -> tuple[StepLabel, CallFacts]:
    message = trace.messages[index]
    found = None
    if message.author != "demo":
        # A call of which not even the name could be read was never executed: it is lost.
        found = merge_facts([_read(trace, call) for call in message.tool_calls if call.name or not call.error])
    if found is None:
        found = _NO_CALL
        action, rule, effect = _without_call(trace, index)
    else:
        action, rule, effect = _with_call(found, history)
        history.add_step(index, found)
    label = StepLabel(index=index, action=action, rule=rule, effect=effect, state_version=version, failed=False)
    return label, found


def _read(trace: Trace, call: ToolCall) -> CallFacts:
    """What a call means; where its name tells nothing, the trace's own description of the tool is asked."""
    found = classify_call(call.name, call.arguments)
    if found.rule == "tool.unknown":
        about = next((spec.description for spec in trace.tools if spec.name == call.name), "")
        kind = classify_description(about) if about else None
        if kind is not None:
            return msgspec.structs.replace(found, kind=kind, rule="tool.described")
    return found


def _with_call(found: CallFacts, history: RepairHistory) -> tuple[ActionType, str, Effect]:
    if found.kind is CallKind.SAY:
        action, rule = classify_text(found.payload)
        return action, rule, found.effect
    if rule := history.find_repair_rule(found):
        return ActionType.REPAIR, rule, found.effect
    if found.kind is CallKind.COMPARE:
        action = ActionType.VERIFIER if history.has_written else ActionType.RETRIEVAL
        return action, found.rule, found.effect
    return ACTION_OF_KIND[found.kind], found.rule, found.effect


def _without_call(trace: Trace, index: int) -> tuple[ActionType | None, str, Effect]:
    why = _no_step(trace, index)
    if why:
        return None, f"nonstep.{why}", Effect.UNKNOWN if why == "lost" else Effect.PURE_READ
    message = trace.messages[index]
    if "```" in message.content and _fixes_own_code(trace, index):
        return ActionType.REPAIR, "repair.chat_code", DEFAULT_EFFECTS[CallKind.SAY]
    action, rule = classify_text(message.content)
    return action, rule, DEFAULT_EFFECTS[CallKind.SAY]


def _no_step(trace: Trace, index: int) -> str:
    """Why a message without a call is no step, or empty text."""
    messages = trace.messages
    message = messages[index]
    content = message.content
    if message.author == "demo":
        return "demonstration"
    if _LIMIT.match(content[:400]):
        return "limit"
    following = messages[index + 1] if index + 1 < len(messages) else None
    empty = bool(_LOST.match(content[:40])) and len(content) < 40 and not message.parts
    if empty and message.reasoning is not None:
        return "reasoning"
    # A call that follows with nothing in between belongs to the same turn; so does more of its preamble.
    if following is not None and following.role == "assistant" and (empty or _leads_to_call(messages, index)):
        return "preamble"
    if empty:
        return "lost"
    if following is not None and following.author == "environment" and (following.injected or following.role == "user"):
        return "prompted"
    if not strip_code_and_thinking(content) and "```" not in content:
        return "reasoning"
    first = not any(m.role == "assistant" for m in messages[:index])
    if first and len(content) < 160 and following is not None and following.role == "user":
        later = any(m.role == "assistant" for m in messages[index + 1 :])
        if later and _ACKNOWLEDGEMENT.match(content):
            return "acknowledgement"
    return ""


def _leads_to_call(messages: tuple[Message, ...], index: int) -> bool:
    for message in messages[index + 1 :]:
        if message.role != "assistant":
            return False
        if message.tool_calls:
            return True
    return False


def _fixes_own_code(trace: Trace, index: int) -> bool:
    """Whether the message before reports that the agent's own earlier code failed."""
    before = trace.messages[index - 1] if index else None
    if before is None or before.role == "assistant" or not reports_exception(before.content):
        return False
    return any(m.role == "assistant" and "```" in m.content for m in trace.messages[:index])
