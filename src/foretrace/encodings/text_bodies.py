"""Calls with one argument, the text between two marks: a fence with its language, or a tag."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import TextEncoding, find_at
from foretrace.encodings.json_arguments import encode_json

_LANGUAGES = {
    "bash": ("bash", "command"),
    "sh": ("bash", "command"),
    "shell": ("bash", "command"),
    "mswea_bash_command": ("bash", "command"),
    "python": ("python", "code"),
    "py": ("python", "code"),
    "sql": ("sql", "query"),
}
"""Language of the fence -> the tool, and the argument for its body."""
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
"""Tag -> the tool, and the argument for its body."""
_TAG_OF = {name: tag for tag, (name, _) in _TAGS.items()}
_PLAIN_WORDS = frozenset({"execute", "command"})
"""Tags that prose may mention: within a line, they count only if their content is on its own lines."""
_OPEN_FENCE = re.compile(rf"^```({'|'.join(_LANGUAGES)})[ \t]*\n", re.MULTILINE)
_CLOSE_FENCE = re.compile(r"^```(?=[ \t]*(?:<end_code>)?[ \t]*$)", re.MULTILINE)
_OPEN_TAG = re.compile(rf"(^[ \t]*)?<({'|'.join(_TAGS)})>", re.MULTILINE)


def _read_body(call: ToolCall) -> object:
    return next(iter(msgspec.json.decode(call.arguments).values()), "")


def _read_fence(text: str, opening: re.Match[str]) -> ToolCall | None:
    closing = _CLOSE_FENCE.search(text, opening.end())
    if closing is None:
        return None
    name, key = _LANGUAGES[opening[1]]
    body = text[opening.end() : closing.start()].removesuffix("\n")
    return ToolCall(name=name, arguments=encode_json({key: body}), span=(opening.start(), closing.end()))


CODE_FENCE = TextEncoding(
    "code_fence",
    find_at(_OPEN_FENCE, _read_fence, most_failed=1),  # after one that is not closed, none is
    lambda call: f"```{call.name}\n{_read_body(call)}\n```",
    hints=("```",),
)
"""```` ```bash ```` is a shell line, ```` ```python ```` a cell. In a chat such a fence only shows code: it is a call
only if the environment answers it."""


def _find_tags(text: str) -> Iterator[ToolCall]:
    """A tag within a line counts if it is closed. An unclosed tag at the beginning of a line extends to the end, since
    a stop sequence cut it off."""
    unclosed: set[str] = set()
    at = 0
    while opening := _OPEN_TAG.search(text, at):
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
        arguments = encode_json({key: body[1:-1] if is_block else body})
        yield ToolCall(name=name, arguments=arguments, repairs=() if close >= 0 else ("unclosed",), span=(start, at))


def _write_tag(call: ToolCall) -> str:
    tag = _TAG_OF.get(call.name, call.name)
    return f"<{tag}>\n{_read_body(call)}\n</{tag}>"


TAGGED_CODE = TextEncoding("tagged_code", _find_tags, _write_tag, hints=tuple(f"<{tag}>" for tag in _TAGS))
"""`<execute>` and `<solution>` (CodeAct), `<command>` (SWE-agent), `<search>`."""
