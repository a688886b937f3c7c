"""Calls in Python syntax, as a list that is the whole text (ToolACE, BFCL)."""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Sequence
from typing import Any

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import TextEncoding
from foretrace.encodings.json_arguments import encode_json

_WORD = r"\w+(?:[.:/-]+\w+)*"
_NAME = re.compile(rf"\s*(?P<name>(?![0-9]){_WORD}(?: (?:{_WORD}|[-/&])){{0,5}})\s*\(")
"""A few words; a period or colon at the end of one makes it a sentence."""
_COMMA = re.compile(r"\s*,")
_TOKEN = re.compile(r"\\.|[\"'()\[\]{}]", re.DOTALL)
_MAX_TEXT = 64 << 10
_WORDS = {"true": True, "false": False, "null": None}
"""Their JSON names."""


def _find_list(text: str) -> list[ToolCall]:
    """The calls, if the whole text is one list of calls with literal named arguments; otherwise none. Names may contain
    spaces, like the published names of APIs."""
    stripped = text.strip()
    if len(text) > _MAX_TEXT or not (stripped.startswith("[") and stripped.endswith(")]")):
        return []
    begin = text.index("[")
    end = begin + len(stripped)
    calls: list[tuple[str, str]] = []
    starts = [begin]
    at = begin + 1
    while at < end - 1:
        opening = _NAME.match(text, at)
        stop = None if opening is None else find_close(text, opening.end(), end)
        arguments = None if opening is None or stop is None else read_python_arguments(text[opening.end() : stop])
        if opening is None or stop is None or arguments is None:
            return []
        starts += [opening.start("name")] * bool(calls)
        calls.append((opening["name"], arguments))
        comma = _COMMA.match(text, stop + 1)
        if comma is None and stop + 1 < end - 1:
            return []
        at = comma.end() if comma else stop + 1
    spans = zip(starts, [*starts[1:], end], strict=True)
    return [ToolCall(name=name, arguments=given, span=s) for (name, given), s in zip(calls, spans, strict=False)]


def _write_list(call: ToolCall) -> str:
    values: dict[str, Any] = json.loads(call.arguments)
    return f"[{call.name}({', '.join(_write_argument(key, value) for key, value in values.items())})]"


def _write_argument(key: str, value: Any) -> str:
    """As `key=value`; a key that is not an identifier in a `**` dictionary."""
    if key.isascii() and key.isidentifier() and not keyword.iskeyword(key):
        return f"{key}={value!r}"
    return f"**{ {key: value}!r}"


def find_close(text: str, at: int, end: int) -> int | None:
    """The bracket that closes the arguments beginning at `at`."""
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


def read_python_arguments(text: str, names: Sequence[str] = ()) -> str | None:
    """The JSON of literal arguments in Python syntax: named ones, and positional ones with `names`. `None` for other
    arguments, and for values that JSON does not have."""
    try:
        parsed = ast.parse(f"f({text}\n)", mode="eval").body
        if not isinstance(parsed, ast.Call) or len(parsed.args) > len(names):
            return None
        nodes = [*zip(names, parsed.args, strict=False), *((word.arg, word.value) for word in parsed.keywords)]
        pairs: list[tuple[Any, Any]] = []
        for name, node in nodes:
            value = ast.literal_eval(_Words().visit(node))
            pairs.extend([(name, value)] if name is not None else value.items())
        values = dict(pairs)
        if len(values) < len(pairs) or not all(isinstance(key, str) for key in values):
            return None
        arguments = encode_json(values)
        arguments.encode()
    except (ValueError, TypeError, SyntaxError, AttributeError, RecursionError, MemoryError):
        return None
    return arguments


class _Words(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        """JSON's words as Python's."""
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node


CALL_LIST = TextEncoding("call_list", _find_list, _write_list, hints=(")]",))
"""`[look_up(city="Oslo"), Get Weather(days=3)]`, and nothing else."""
