"""Which encoding the agent of a conversation writes its calls in, where they are text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace.core.trace import ToolCall
from foretrace.encodings.action_line import PLUGIN as ACTION_LINE
from foretrace.encodings.base import Encoding
from foretrace.encodings.call_list import PLUGIN as CALL_LIST
from foretrace.encodings.calls_in_text import find_calls
from foretrace.encodings.code_fence import PLUGIN as CODE_FENCE
from foretrace.encodings.fence import PLUGIN as FENCE
from foretrace.encodings.json_action import PLUGIN as JSON_ACTION
from foretrace.encodings.react import PLUGIN as REACT
from foretrace.encodings.tagged_code import PLUGIN as TAGGED_CODE
from foretrace.encodings.terminal_json import PLUGIN as TERMINAL_JSON
from foretrace.encodings.tool_tags import PLUGIN as TOOL_TAGS
from foretrace.encodings.web_call import PLUGIN as WEB_CALL
from foretrace.encodings.web_fence import PLUGIN as WEB_FENCE

_SURE: tuple[tuple[Encoding, tuple[str, ...]], ...] = (
    (TOOL_TAGS, ("</",)),  # before tags of which one is the name of its argument
    (TAGGED_CODE, ("<",)),
    (REACT, ("Action Input:",)),
    (TERMINAL_JSON, ('"keystrokes"', '"task_complete"')),
    (JSON_ACTION, ("{",)),
    (ACTION_LINE, ("Action", "ACTION:", "Act:", "Final Answer:")),
    (CALL_LIST, (")]",)),
    (WEB_FENCE, ("```",)),
    (WEB_CALL, ("(",)),
)
"""Encodings that no other text looks like, with a text that each of their calls holds."""
_FENCED: tuple[Encoding, ...] = (CODE_FENCE, FENCE)
"""Encodings of which a chat that shows code is full: they count only where the environment answers."""
_ANSWERED = re.compile(
    r"\s*(?:OBSERVATION:|Observation:|EXECUTION RESULT of|The output of the OS:|<returncode>|<output>|<observation>"
    r"|<tool_response>|<tool_result>|\[File: |exit code:)|.*\nbash-\$\s*\Z",
    re.DOTALL,
)
PRINTED_BY_PROGRAM = re.compile(
    r"\s*(?:Ran (?:allowlisted )?command: `|Executed code block\.|Error during execution: )"
)
"""Beginnings of what an agent's program says of a command in a role that is no tool's."""
MIN_SHARE = 0.5
"""Share of the agent's turns that must hold a call of an encoding before it is taken."""
_MAX_LOOKED_AT = 40


class AgentText(NamedTuple):
    """A turn of the agent that makes no native call."""

    text: str
    answer: str | None
    """What follows from a user or tool; `None` at the end, or where the agent goes on."""


class CallReader:
    """Reads the calls of one conversation: in the encoding that was chosen, and where a text has none of those, by tags
    that name a call."""

    def __init__(self, texts: Sequence[AgentText], pattern: Encoding | None = None) -> None:
        self.encoding = pattern or _choose(texts[:_MAX_LOOKED_AT])
        self._is_given = pattern is not None

    def read(self, text: str) -> tuple[ToolCall, ...]:
        """The calls in a text of the agent."""
        if self._is_given and self.encoding is not None:
            return tuple(self.encoding.parse(text))
        tagged = find_calls(text)
        named = [call for call in tagged if call.name]  # what has none may be a tag that prose names
        own = [] if self.encoding is None else _leave_out_inner(self.encoding.parse(text), named)
        if self.encoding is CODE_FENCE:
            own = own[:1]
        return tuple(own if any(call.name for call in own) else tagged or own)


def _leave_out_inner(calls: Sequence[ToolCall], tagged: Sequence[ToolCall]) -> list[ToolCall]:
    """The calls that are no part of a tagged one: an argument may hold text of any kind."""
    spans = [call.span for call in tagged if call.span is not None]
    if not spans:
        return list(calls)
    starts = [start for start, _ in spans]
    kept: list[ToolCall] = []
    for call in calls:
        index = bisect_right(starts, call.span[0]) - 1 if call.span is not None else -1
        if index < 0 or call.span is None or spans[index][1] <= call.span[0]:
            kept.append(call)
    return kept


def _choose(texts: Sequence[AgentText]) -> Encoding | None:
    spoken = [each for each in texts if not _is_tagged(each.text)]
    if len(spoken) > 1 and _is_courtesy(spoken[0]):
        spoken = spoken[1:]
    if not spoken or len(spoken) < len(texts) * MIN_SHARE:
        return None
    for encoding, hints in _SURE:
        if sum(_hits(encoding, hints, each.text) for each in spoken) >= len(spoken) * MIN_SHARE:
            return encoding
    answered = [each for each in spoken if each.answer is not None]
    if sum(_is_output(each.answer or "") for each in answered) <= len(answered) * MIN_SHARE:
        return None
    for encoding in _FENCED:
        if sum(_hits(encoding, ("```",), each.text) for each in spoken) >= len(spoken) * MIN_SHARE:
            return encoding
    return None


def _is_tagged(text: str) -> bool:
    """Whether a text makes a call in one of the tags that agents of any encoding know; prose may name the tags."""
    return ("<function=" in text or "<tool_call>" in text) and any(call.name for call in find_calls(text))


def _is_output(answer: str) -> bool:
    return bool(_ANSWERED.match(answer) or PRINTED_BY_PROGRAM.match(answer))


def _is_courtesy(first: AgentText) -> bool:
    """Whether the agent's first turn is a line that only greets or agrees, and could hold no call."""
    if len(first.text) >= 160 or first.answer is None or "```" in first.text:
        return False
    return not any(_hits(encoding, hints, first.text) for encoding, hints in _SURE)


def _hits(encoding: Any, hints: tuple[str, ...], text: str) -> bool:
    return any(hint in text for hint in hints) and any(call.name for call in encoding.parse(text))
