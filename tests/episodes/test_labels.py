"""What the labels say of generated traces: exactly one list of actions for each story, in every protocol."""

from __future__ import annotations

import json

import pytest

from foretrace.actions.label_steps import label_trace
from foretrace.protocols.base import InteractionProtocol
from foretrace.protocols.inline import Inline
from foretrace.protocols.interleaved import Interleaved
from foretrace.protocols.interleaved_forced import InterleavedForced
from foretrace.protocols.interleaved_tools import InterleavedTools
from foretrace.protocols.structured import Structured
from foretrace.protocols.tools import Tools
from protocols.play import RIGHT, WRONG, Stage

THINK = "<think>Let me think of it.</think>\n"


def code(text: str) -> str:
    return f"{THINK}<code>\n{text.rstrip()}\n</code>"


def call(text: str) -> str:
    return f"Let me try.\n<tool_call>{json.dumps({'name': 'python', 'arguments': {'code': text}})}</tool_call>"


VERIFY = "<verify></verify>"
OTHER = "def add(a, b):\n    return b - a\n"
STORIES: dict[str, tuple[InteractionProtocol, list[str], str]] = {
    "tools, first time": (Tools(), [code(RIGHT), VERIFY], "verifier final_answer"),
    "tools, mended twice": (
        Tools(),
        [code(WRONG), code(OTHER), code(RIGHT), VERIFY],
        "verifier repair repair final_answer",
    ),
    "tools, the same again": (Tools(), [code(WRONG), code(WRONG), code(RIGHT)], "verifier verifier repair"),
    "tools, words in between": (
        Tools(),
        [THINK, code(RIGHT), "Could you tell me what to do next?", VERIFY],
        "nonstep.prompted verifier nonstep.prompted final_answer",
    ),
    "tools, a whole answer at the end": (
        Tools(),
        [code(WRONG), f"<answer>\n{RIGHT}</answer>"],
        "verifier final_answer",
    ),
    "interleaved_tools, small blocks": (
        InterleavedTools(),
        [code("import math"), code(RIGHT), code("print(add(1, 2))"), code("assert add(1, 2) == 3"), VERIFY],
        "tool_call tool_call tool_call verifier verifier",
    ),
    "interleaved_tools, a failed block": (
        InterleavedTools(),
        [code("total = sum(1, 2)\nprint(total)"), code("total = sum([1, 2])\nprint(total)"), code(RIGHT), VERIFY],
        "tool_call repair tool_call verifier",
    ),
    "interleaved_tools, a failed verify": (
        InterleavedTools(),
        [code(WRONG), VERIFY, code("print(add(3, 4))"), code(RIGHT), VERIFY],
        "tool_call verifier tool_call repair verifier",
    ),
    "inline, first time": (Inline(), [f"<think>It is easy.</think>\n```python\n{RIGHT}```"], "final_answer"),
    "inline, tried and mended": (
        Inline(),
        ["<think>" + call(f"{WRONG}print(add(1, 2))\n1 / 0"), call(f"{RIGHT}print(add(1, 2))"), f"</think>\n{RIGHT}"],
        "tool_call repair final_answer",
    ),
    "structured": (
        Structured(),
        ["<plan>The sum of both.</plan>", code(WRONG), "<reflect>It was wrong.</reflect>", code(RIGHT), "It is right."],
        "nonstep.prompted verifier nonstep.prompted repair final_answer",
    ),
    "interleaved": (
        Interleaved(),
        [f"{code('import math')}\n{code(RIGHT)}\n{VERIFY}"],
        "file_write file_write verifier",
    ),
    "interleaved_forced": (
        InterleavedForced(),
        [code("def add(a, b):"), code("    return a - b"), VERIFY, code(RIGHT), VERIFY],
        "file_write file_write verifier repair verifier",
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_each_step_is_labeled_as_what_it_does(stage: Stage, story: str) -> None:
    protocol, replies, wanted = STORIES[story]
    played = stage.play(protocol, *replies, max_turns=len(replies))
    assert " ".join(played.labels) == wanted
    for label, message in zip(label_trace(played.trace), played.models, strict=True):
        answers = [m for m in played.trace.messages if set(m.tool_call_ids) & {c.id for c in message.tool_calls}]
        assert label.failed == any(m.is_error for m in answers)
