"""Calls in the control tokens of chat templates: Kimi's, DeepSeek's, and those of Harmony (gpt-oss)."""

from __future__ import annotations

import re

from foretrace.core.trace import ToolCall
from foretrace.encodings.base import attach_span
from foretrace.encodings.json_arguments import find_json_end, read_arguments

TOKENS = ("<|tool_call_begin|>", "<｜tool▁call▁begin｜>", " to=functions.")
_OPEN = re.compile(
    r"(?:<\|tool_calls_section_begin\|>\s*)?<\|tool_call_begin\|>\s*(?:functions\.)?(?P<kimi>[^\s:<]+)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>\s*"
    r"|(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?(?P<deepseek>[^\s<]+)"
    r"(?:<｜tool▁sep｜>|\s*```json)\s*"
    r"|(?:<\|start\|>assistant)?(?:<\|channel\|>\w+)? to=functions\.(?P<harmony>[^\s<]+)"
    r"[^\n{]{0,80}?<\|message\|>\s*"
)
_END = (
    r"(?:<\|tool_call_end\|>(?:\s*<\|tool_calls_section_end\|>)?|<\|call\|>"
    r"|(?:```\s*)?<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?)"
)
_NEXT_END = re.compile(_END)
"""To search with: blanks before it would be tried from each blank of a row."""
_CLOSE = re.compile(rf"\s*{_END}")
"""To match with, where the arguments end."""


class CallTokens:
    """The name stands between two tokens, its arguments as JSON behind the second."""

    name = "call_tokens"

    def parse(self, text: str) -> list[ToolCall]:
        """Find all calls, in order."""
        calls: list[ToolCall] = []
        at = 0
        while opening := _OPEN.search(text, at):
            at = opening.end()
            end = find_json_end(text, at)
            if end is None:
                following = _NEXT_END.search(text, at)
                end = following.start() if following else len(text)
            read = read_arguments(text[at:end])
            close = _CLOSE.match(text, end)
            at = close.end() if close else end
            name = opening["kimi"] or opening["deepseek"] or opening["harmony"]
            call = ToolCall(name=name, arguments=read.text, repairs=read.repairs, error=read.error)
            calls.append(attach_span(self, call, text, (opening.start(), at)))
        return calls

    def render(self, call: ToolCall) -> str:
        """Write it in Kimi's tokens; for a parsed call exactly what its span covers."""
        if raw := call.extra.get("raw"):
            return str(raw)
        return (
            f"<|tool_call_begin|>functions.{call.name}:0<|tool_call_argument_begin|>{call.arguments}<|tool_call_end|>"
        )


PLUGIN = CallTokens()
