"""Calls as the body of a tag: `<execute>` and `<solution>` (CodeAct), `<command>` (SWE-agent), `<search>`."""

from __future__ import annotations

import re

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import encode_json

_TAGS = {
    "execute": ("execute", "code"),
    "execute_ipython": ("execute_ipython", "code"),
    "execute_bash": ("execute_bash", "command"),
    "execute_browse": ("browse", "code"),
    "solution": ("solution", "answer"),
    "command": ("bash", "command"),
    "search": ("search", "query"),
    "answer": ("answer", "answer"),
}
"""Tag -> the tool, and the argument that its body is."""
_TAG_OF = {name: tag for tag, (name, _) in _TAGS.items()}
_PLAIN_WORDS = frozenset({"execute", "command"})
"""Tags that a text may mention in passing: within a line they count only around lines of their own."""
_OPEN = re.compile(rf"(^[ \t]*)?<({'|'.join(_TAGS)})>", re.MULTILINE)


class TaggedCode:
    """A tag within a line counts if it is closed. One at the beginning of a line that is not closed goes on to the end,
    since a stop sequence cut it."""

    name = "tagged_code"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all blocks, in order."""
        calls: list[ToolCall] = []
        unclosed: set[str] = set()
        at = 0
        while opening := _OPEN.search(text, at):
            tag, begins_line = opening[2], opening[1] is not None
            at = opening.end()
            close = -1 if tag in unclosed else text.find(f"</{tag}>", at)
            if close < 0:
                unclosed.add(tag)
            body = text[at : close if close >= 0 else len(text)]
            is_block = len(body) > 1 and body[0] == body[-1] == "\n"
            if not begins_line and (close < 0 or (tag in _PLAIN_WORDS and not is_block)):
                continue
            start = at - len(f"<{tag}>")
            at = close + len(f"</{tag}>") if close >= 0 else len(text)
            name, key = _TAGS[tag]
            if is_block:
                body = body[1:-1]
            call = ToolCall(name=name, arguments=encode_json({key: body}), repairs=() if close >= 0 else ("unclosed",))
            calls.append(attach_span(self, call, text, (start, at)))
        return calls

    def render(self, call: ToolCall) -> str:
        """Write the block; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
        tag = _TAG_OF.get(call.name, call.name)
        body = next(iter(msgspec.json.decode(call.arguments).values()), "")
        return f"<{tag}>\n{body}\n</{tag}>"


PLUGIN = TaggedCode()
