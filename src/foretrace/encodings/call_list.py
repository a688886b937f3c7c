"""Calls as a list of Python calls, and nothing else: `[look_up(city="Oslo"), Get Weather(days=3)]` (ToolACE, BFCL)."""

from __future__ import annotations

import ast
import re
from typing import Any

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import encode_json

_NAME = re.compile(r"[\s,]*(?P<name>[A-Za-z_][\w .:/-]{0,120}?)\s*\(")
_TOKEN = re.compile(r"\\.|[\"'()\[\]{}]", re.DOTALL)
_MAX_TEXT = 64 << 10
_WORDS = {"true": True, "false": False, "null": None}
"""What JSON calls them."""


class CallList:
    """The whole text is one list, in which each call has named arguments with literal values. Names may hold spaces,
    as the published names of APIs do."""

    name = "call_list"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls, in order; none where any part of the text is something else."""
        stripped = text.strip()
        if len(text) > _MAX_TEXT or not (stripped.startswith("[") and stripped.endswith(")]")):
            return []
        begin = text.index("[")
        end = begin + len(stripped)
        calls: list[tuple[int, ToolCall]] = []
        at = begin + 1
        while at < end - 1:
            opening = _NAME.match(text, at)
            stop = None if opening is None else _find_close(text, opening.end(), end)
            arguments = None if opening is None or stop is None else _read_arguments(text[opening.end() : stop])
            if opening is None or stop is None or arguments is None:
                return []
            try:
                calls.append((opening.start("name"), ToolCall(name=opening["name"], arguments=encode_json(arguments))))
            except (TypeError, ValueError):  # bytes, sets, numbers that JSON does not have
                return []
            at = stop + 1
        starts = [begin, *(place for place, _ in calls[1:])]
        spans = zip(starts, [*starts[1:], end], strict=True)
        return [attach_span(self, call, text, span) for (_, call), span in zip(calls, spans, strict=True)]

    def render(self, call: ToolCall) -> str:
        """Write a list of one call; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
        values: dict[str, Any] = msgspec.json.decode(call.arguments)
        return f"[{call.name}({', '.join(f'{key}={value!r}' for key, value in values.items())})]"


def _find_close(text: str, at: int, end: int) -> int | None:
    """The bracket that ends the arguments which begin at `at`."""
    depth, quote = 1, ""
    for match in _TOKEN.finditer(text, at, end):
        mark = match.group()
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "\"'":
            quote = mark
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
            if depth == 0:
                return match.start() if mark == ")" else None
    return None


def _read_arguments(text: str) -> dict[str, Any] | None:
    try:
        parsed = ast.parse(f"f({text}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(parsed, ast.Call) or parsed.args or any(word.arg is None for word in parsed.keywords):
        return None
    try:
        return {str(word.arg): ast.literal_eval(_Words().visit(word.value)) for word in parsed.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


class _Words(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        """JSON's words as Python's."""
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node


PLUGIN = CallList()
