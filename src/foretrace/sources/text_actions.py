"""Choose the encoding of an agent's calls in a conversation where calls are written as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from foretrace.core.trace import ToolCall
from foretrace.encodings.action_lines import ACTION_LINE
from foretrace.encodings.base import TextEncoding
from foretrace.encodings.calls_in_text import find_calls, leave_out_held
from foretrace.encodings.fence import FENCE
from foretrace.encodings.json_calls import JSON_ACTION, REACT, TERMINAL_JSON
from foretrace.encodings.parameter_tags import TOOL_TAGS
from foretrace.encodings.python_calls import CALL_LIST
from foretrace.encodings.text_bodies import CODE_FENCE, TAGGED_CODE
from foretrace.encodings.web_actions import WEB_CALL, WEB_FENCE

_SURE: tuple[TextEncoding, ...] = (
    TOOL_TAGS,  # before TAGGED_CODE, which may match the tag of an argument
    TAGGED_CODE,
    REACT,
    TERMINAL_JSON,
    JSON_ACTION,
    ACTION_LINE,
    CALL_LIST,
    WEB_FENCE,
    WEB_CALL,
)
"""Encodings that cannot be confused with other text."""
_FENCED: tuple[TextEncoding, ...] = (CODE_FENCE, FENCE)
"""Encodings that also look like code shown in a chat: they only count if the environment answers."""
_ANSWERED = re.compile(
    r"\s*(?:OBSERVATION:|Observation:|EXECUTION RESULT of|The output of the OS:|<returncode>|<output>|<observation>"
    r"|<tool_response>|<tool_result>|\[File: |exit code:)|.*\nbash-\$\s*\Z",
    re.DOTALL,
)
MIN_SHARE = 0.5
"""Least share of the agent's turns that must contain a call in an encoding."""
_MAX_LOOKED_AT = 40


class AgentText(NamedTuple):
    """A turn of the agent without native calls."""

    text: str
    answer: str | None
    """The next turn if it is a user's or a tool's; `None` at the end, or if the agent continues."""


class CallReader:
    """Reads the calls of one conversation in the chosen encoding, or else in tags that name a call."""

    def __init__(self, texts: Sequence[AgentText], pattern: TextEncoding | None = None) -> None:
        self.encoding = pattern or _choose(texts[:_MAX_LOOKED_AT])
        self._is_given = pattern is not None

    def read(self, text: str) -> tuple[ToolCall, ...]:
        if self._is_given and self.encoding is not None:
            return tuple(self.encoding.parse(text))
        tagged = find_calls(text)
        named = [call for call in tagged if call.name]  # a tag without a name may be mentioned in prose
        spans = [call.span for call in named if call.span is not None]
        own = [] if self.encoding is None else leave_out_held(self.encoding.parse(text), spans)
        if self.encoding is CODE_FENCE:
            own = own[:1]
        return tuple(own if any(call.name for call in own) else tagged or own)


def _choose(texts: Sequence[AgentText]) -> TextEncoding | None:
    spoken = [each for each in texts if not _is_tagged(each.text)]
    if len(spoken) > 1 and _is_courtesy(spoken[0]):
        spoken = spoken[1:]
    if not spoken or len(spoken) < len(texts) * MIN_SHARE:
        return None
    answered = [each for each in spoken if each.answer is not None]
    if encoding := _find_usual(_SURE, spoken) or _find_usual(_SURE, answered):
        return encoding
    if sum(bool(_ANSWERED.match(each.answer or "")) for each in answered) <= len(answered) * MIN_SHARE:
        return None
    return _find_usual(_FENCED, spoken)


def _find_usual(encodings: Sequence[TextEncoding], texts: Sequence[AgentText]) -> TextEncoding | None:
    least = max(1, len(texts) * MIN_SHARE)
    return next((each for each in encodings if sum(_hits(each, text.text) for text in texts) >= least), None)


def _is_tagged(text: str) -> bool:
    """Whether a text makes a call in one of the tags known to agents of any encoding, not just mentions a tag."""
    return ("<function=" in text or "<tool_call>" in text) and any(call.name for call in find_calls(text))


def _is_courtesy(first: AgentText) -> bool:
    """Whether the agent's first turn is a short line without a call, such as a greeting."""
    if len(first.text) >= 160 or first.answer is None or "```" in first.text:
        return False
    return not any(_hits(encoding, first.text) for encoding in _SURE)


def _hits(encoding: TextEncoding, text: str) -> bool:
    return any(call.name for call in encoding.parse(text))
