"""Tool calls inside an open `<think>`: the result is injected into the same assistant turn, which then continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from foretrace.core.trace import ToolCall, ToolSpec
from foretrace.encodings.code_calls import parse_python, read_code_calls
from foretrace.encodings.reply_blocks import ReplyBlock, split_reply
from foretrace.protocols import feedback
from foretrace.protocols.base import Act, ActKind, Handling, Reply, Result
from foretrace.protocols.multi_turn import (
    CODE_PARAMETERS,
    CUT_ERROR,
    MAX_ACTS,
    SUBMIT_TOOL,
    TOO_MANY_ERROR,
    MultiTurnProtocol,
    cut_hallucinated,
    holds_code,
    is_submitted,
    is_thought,
)

_SYSTEM = """
You solve a programming task in Python. While you think, you can run code: write
<tool_call>{"name": "python", "arguments": {"code": "print(1 + 1)"}}</tool_call>
inside of <think>...</think>. What the code prints comes back in <tool_response>...</tool_response>, and you go on \
thinking. Each call is a program of its own. Never write <tool_response> yourself.

When you are sure, close </think> and write the whole answer as one ```python block.

Example:
<think>
I check that sorting puts capitals first.
<tool_call>{"name": "python", "arguments": {"code": "print(sorted(['b', 'A', 'a']))"}}</tool_call>
<tool_response>
['A', 'a', 'b']
</tool_response>
It does, so I need a key.
</think>
```python
def ordered(words):
    return sorted(words, key=str.lower)
```
"""
_END = "</tool_call>"
_THINK_END = "</think>"
_PYTHON_TOOL_NAMES = {
    *("", "python", "execute_python", "run_python", "python_interpreter"),
    *("code_interpreter", "ipython", "execute", "run"),
}
"""Names that models use for the only tool, in lower case."""


class Inline(MultiTurnProtocol):
    """One assistant turn with calls in its thinking, followed by the final code."""

    name = "inline"
    stop = (_END, "<tool_response>")
    required_capabilities = ("continuation",)
    continues = True
    max_turns = 12
    system_prompt = _SYSTEM
    handlings: ClassVar[dict[ActKind, Handling]] = {**MultiTurnProtocol.handlings, "code": "run"}
    tools = (
        ToolSpec(
            name="python", description="Run a Python program and return what it prints.", parameters=CODE_PARAMETERS
        ),
        SUBMIT_TOOL,
    )
    reminder_text = """
<tool_response>
Nothing was run. Go on: call python, or close </think> and write the whole answer in ```python.
</tool_response>
"""

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        """The calls of a completion, and the final code after its thinking."""
        kept, hallucinated = cut_hallucinated(text)
        if not kept.strip():
            return Reply(text=kept, hallucinated=hallucinated)
        cut = cut and not hallucinated
        calls = read_code_calls(kept, truncated=cut)
        if calls and not cut and not hallucinated and not _is_closed(kept, calls[-1]):
            kept += _END
            calls = read_code_calls(kept, truncated=False)
        spans = [call.span for call in calls if call.span]
        end = 0 if any(act.kind == "final" for act in before) else _find_thinking_end(kept, spans)
        acts: list[Act] = []
        at = 0
        for (start, stop), call in [*zip(spans, calls, strict=True)][: MAX_ACTS + 1]:
            acts += _make_thought(kept, at, min(start, end))
            acts.append(_make_call(call, (start, stop), refuse=call in calls[MAX_ACTS:]))
            at = stop
        if _THINK_END not in kept[:end] and end == len(kept) and _is_bare_answer(kept, calls, cut=cut):
            end = 0
        acts += _make_thought(kept, at, end)
        if end == 0 or kept.endswith(_THINK_END, 0, end):
            acts += _make_final(kept, max(at, end), cut=cut, called=at > end)
        return Reply(text=kept, acts=tuple(acts), hallucinated=hallucinated)

    def respond(self, result: Result, *, hints: bool, last: bool) -> str:
        message = feedback.format_result(result, hints=hints, good="tool_response", bad="tool_response")
        return f"\n{message}\n"

    def is_done(self, reply: Reply, results: Sequence[Result]) -> bool:
        return is_submitted(results)


def _is_closed(text: str, last: ToolCall) -> bool:
    """Whether the last call has its closing tag, or is followed by something else."""
    _, end = last.span or (0, 0)
    return text.endswith(_END, 0, end) or bool(text[end:].strip())


def _is_bare_answer(text: str, calls: Sequence[ToolCall], *, cut: bool) -> bool:
    """Whether a text without think tags contains the answer, since not all models use the tags."""
    return not cut and not calls and "<think>" not in text and any(p.kind == "code" for p in split_reply(text))


def _find_thinking_end(text: str, calls: Sequence[tuple[int, int]]) -> int:
    """Where the thinking ends: after its closing tag outside of all calls, or at the end of the text."""
    at = text.find(_THINK_END)
    while at >= 0:
        inside = next((end for start, end in calls if start <= at < end), None)
        if inside is None:
            return at + len(_THINK_END)
        at = text.find(_THINK_END, inside)
    return len(text)


def _make_thought(text: str, start: int, end: int) -> list[Act]:
    words = text[start:end].replace("<think>", "").replace(_THINK_END, "").strip()
    return [Act(kind="think", span=(start, end), text=words)] if is_thought(words) else []


def _make_call(call: ToolCall, span: tuple[int, int], *, refuse: bool) -> Act:
    is_known = call.name.lower() in _PYTHON_TOOL_NAMES
    unknown = None if is_known else f"there is no tool {call.name!r}: the only one is python"
    error = TOO_MANY_ERROR if refuse else unknown or call.error
    if error is not None:
        return Act(kind="refused", span=span, error=error, repairs=call.repairs, call=call)
    code = json.loads(call.arguments)["code"]
    return Act(kind="code", span=span, code=code, handling="run", repairs=call.repairs, call=call)


def _make_final(text: str, start: int, *, cut: bool, called: bool) -> list[Act]:
    """The answer after the thinking: the last block that defines a function or class, else the last block; bare code
    counts too."""
    rest = text[start:]
    found = [p for p in split_reply(rest) if p.kind in ("code", "action") or (p.kind == "answer" and holds_code(p))]
    bare = ReplyBlock("code", rest, "text", "cut", (0, len(rest)))
    if not found and parse_python(rest) is not None and holds_code(bare):
        found = [bare]
    if called and not found:  # the thinking has ended, and a call after it still needs its answer
        return [Act(kind="final", span=(start, start))]
    if cut and not (found and all(piece.is_closed for piece in found)):
        return [Act(kind="final", span=(start, len(text)), text=rest.strip(), error=CUT_ERROR)]
    if not found:
        return [Act(kind="final", span=(start, len(text)), text=rest.strip(), handling="submit")]
    whole = next((p for p in reversed(found) if "def " in p.code or "class " in p.code), found[-1])
    span = (start + whole.span[0], start + whole.span[1])
    return [Act(kind="final", span=span, text=rest.strip(), code=whole.code.strip("\n") + "\n", handling="submit")]


PLUGIN = Inline
