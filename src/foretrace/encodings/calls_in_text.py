"""Find calls in the text of a message without knowing their encoding, or remove those that were found."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence

from foretrace.core.trace import Message, ToolCall
from foretrace.encodings.action_lines import A_LINE, ACTION_LINE
from foretrace.encodings.json_calls import REACT, TAGGED_JSON, TERMINAL_JSON, TOOL_CALL_JSON
from foretrace.encodings.parameter_tags import FUNCTION_XML, TOOL_TAGS, WRAPPED_FUNCTION
from foretrace.encodings.text_bodies import TAGGED_CODE

_AROUND = (TOOL_TAGS, TAGGED_CODE, REACT, TERMINAL_JSON, ACTION_LINE)
"""Encodings whose calls may contain any text, including tags of other encodings."""
_SECOND = (TOOL_CALL_JSON, WRAPPED_FUNCTION, FUNCTION_XML, TAGGED_JSON, REACT, TAGGED_CODE)
"""Encodings that do not resemble any other text."""
_QUOTE = re.compile(r"""(?:\A|[\s([{=:,])["']""")
"""An opening quotation mark."""
_CODE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^`\n]*$(?:.*?^[ \t]*(?P=fence)[`~]*[ \t]*$|.*)"
    r"|(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n[ \t]*(?:\n|`{3}|~{3})).){1,2000}?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
"""A fence, or inline code, which ends in its paragraph."""
_MAX_BLANKS = 200
"""Most characters before and after a call that are checked for the rest of its line."""


def remove_calls(message: Message) -> str:
    """The content of a message without the calls written in it (those with a span)."""
    text = message.content
    spans = sorted(c.span for c in message.tool_calls if c.span is not None)
    if not spans:
        return text
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(text)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True)).strip()


def find_calls(text: str) -> list[ToolCall]:
    """Find calls in a text of unknown encoding: only those with unmistakable tags.

    If several encodings match, one with a call that stands alone wins, then the one of the last call: a call may
    contain any text, and prose may name another's tags.
    """
    found = [calls for each in (WRAPPED_FUNCTION, TOOL_CALL_JSON, FUNCTION_XML) if (calls := each.parse(text))]
    if not found:
        return _leave_out_quoted(text, TAGGED_JSON.parse(text))
    return max(found, key=lambda calls: _rank(text, calls, found)) if len(found) > 1 else found[0]


def _rank(text: str, calls: Sequence[ToolCall], found: Sequence[Sequence[ToolCall]]) -> tuple[bool, int]:
    """Whether one of the calls stands alone, outside of the others' calls, and where the last one ends."""
    named = [call for call in calls if call.span and call.name]
    others = [call.span for each in found if each is not calls for call in each if call.span and call.name]
    code = find_code(hide_calls(text, [*others, *(call.span for call in named if call.span)]))
    alone = any(stands_alone(text, call, code) for call in leave_out_held(named, others))
    return alone, max((call.span[1] for call in named if call.span), default=-1)


def has_second_encoding(message: Message) -> bool:
    """Whether a reply whose calls are text also makes a call in another encoding, on its own lines and not as code:
    readers use only one encoding per reply. A call within a line is only a mention."""
    spans = [call.span for call in message.tool_calls if call.span is not None]
    if not spans:
        return False
    text = hide_calls(message.content, spans)
    # Tags other than `<execute>` may be the layout of an answer.
    encodings = [each for each in _SECOND if each is not TAGGED_CODE or "<execute" in text]
    calls = [call for each in encodings for call in each.parse(text) if call.name and call.error is None]
    code = find_code(text) if calls else []
    return any(stands_alone(text, call, code) for call in calls)


def hide_calls(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with its calls replaced by letters, so that their content does not affect the rest."""
    pieces: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if end > at:
            pieces += [text[at:start], "x" * (end - max(at, start))]
            at = end
    return "".join([*pieces, text[at:]])


def leave_out_held(calls: Sequence[ToolCall], spans: Sequence[tuple[int, int]]) -> list[ToolCall]:
    """The calls, given in order, that do not begin in these spans: an argument, or code, may contain any text."""
    waiting = sorted(spans, reverse=True)
    kept: list[ToolCall] = []
    reach = -1
    for call in calls:
        start = call.span[0] if call.span else -1
        while waiting and waiting[-1][0] <= start:
            reach = max(reach, waiting.pop()[1])
        if reach <= start:
            kept.append(call)
    return kept


def stands_alone(text: str, call: ToolCall, quoted: Sequence[tuple[int, int]]) -> bool:
    """Whether a call is on its own lines and not quoted as code. `quoted` has spans in order."""
    start, end = call.span or (0, 0)
    code = bisect.bisect_right(quoted, start, key=lambda span: span[0]) - 1
    if code >= 0 and end <= quoted[code][1]:
        return False
    before, after = text[max(0, start - _MAX_BLANKS) : start], text[end : end + _MAX_BLANKS]
    return not before.rpartition("\n")[2].strip() and not after.partition("\n")[0].strip()


def _leave_out_quoted(text: str, calls: list[ToolCall]) -> list[ToolCall]:
    """The calls outside of code, quotation marks, and calls of an encoding that may contain any text."""
    spans = [call.span for call in calls if call.span is not None]
    if not spans:
        return []
    hidden = hide_calls(text, spans)
    around = [call for encoding in _AROUND for call in encoding.parse(hidden)]
    # A line without a tool's name may be the call with tags itself.
    quoted = find_code(hidden) + [call.span for call in around if call.span is not None and call.name != A_LINE]
    return [
        call
        for call in leave_out_held(calls, quoted)
        if call.span and not _QUOTE.fullmatch(text, max(0, call.span[0] - 2), call.span[0])
    ]


def find_code(text: str) -> list[tuple[int, int]]:
    """The spans of fences and of inline code, in order. An unclosed fence extends to the end of the text."""
    return [match.span() for match in _CODE.finditer(text)]
