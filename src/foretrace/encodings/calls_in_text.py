"""Find calls in the text of a message without knowing their encoding, or remove those that were found."""

from __future__ import annotations

from foretrace.core.trace import Message, ToolCall
from foretrace.encodings.call_tokens import PLUGIN as CALL_TOKENS
from foretrace.encodings.call_tokens import TOKENS
from foretrace.encodings.tagged_json import PLUGIN as TAGGED_JSON
from foretrace.encodings.tagged_json import TAGS


def remove_calls(message: Message) -> str:
    """Return the content of a message without the calls that are written in it (those with a span)."""
    text = message.content
    spans = sorted(c.span for c in message.tool_calls if c.span is not None)
    if not spans:
        return text
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(text)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True)).strip()


def find_calls(text: str) -> list[ToolCall]:
    """Find calls in a text of unknown encoding: only those with tags that no other text would have."""
    if "<tool_call>" in text:
        from foretrace.encodings.tool_call_json import PLUGIN as TOOL_CALL_JSON

        return TOOL_CALL_JSON.parse(text)
    if "<function=" in text:
        from foretrace.encodings.function_xml import PLUGIN as FUNCTION_XML

        return FUNCTION_XML.parse(text)
    for tags, encoding in ((TAGS, TAGGED_JSON), (TOKENS, CALL_TOKENS)):
        if any(tag in text for tag in tags) and (calls := encoding.parse(text)):
            return calls
    return []
