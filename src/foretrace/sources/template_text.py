"""A conversation as one text: in the control tokens of a chat template, or with the observations of ReAct in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]

_CHAT_ML = re.compile(r"<\|im_start\|>(?P<role>\w+)[^\n]*\n(?P<said>.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_LLAMA = re.compile(
    r"<\|start_header_id\|>(?P<role>\w+)<\|end_header_id\|>\n*(?P<said>.*?)(?:<\|eot_id\|>|<\|eom_id\|>|\Z)", re.DOTALL
)
_HARMONY = re.compile(
    r"<\|start\|>(?P<role>.*?)<\|message\|>(?P<said>.*?)(?:<\|end\|>|<\|call\|>|<\|return\|>|\Z)", re.DOTALL
)
_FORMS = (("<|im_start|>", _CHAT_ML), ("<|start_header_id|>", _LLAMA), ("<|start|>", _HARMONY))
_TO_TOOL = re.compile(r" to=(?:functions\.)?([\w.-]+)")
_FROM_TOOL = re.compile(r"(?:functions\.)?([\w.-]+) to=assistant")
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_OBSERVED = re.compile(r"^Observation(?: \d+)?:", re.MULTILINE)
_GOES_ON = re.compile(r"^(?:Thought|Action|Final Answer)(?: \d+)?:", re.MULTILINE)
_ACTED = re.compile(r"^(?:Action|Act)(?: \d+)?:", re.MULTILINE)


def split_template(text: str) -> list[Row]:
    """The turns of a text that begins with a template's tokens; none where it does not."""
    start = text[:200].lstrip().removeprefix("<|begin_of_text|>").lstrip()
    pattern = next((pattern for token, pattern in _FORMS if start.startswith(token)), None)
    if pattern is None:
        return []
    pieces = ((match["role"], match["said"]) for match in pattern.finditer(text))
    if pattern is _HARMONY:
        return [turn for role, said in pieces for turn in _read_harmony(role, said)]
    return [turn for role, said in pieces for turn in _read_turn(role, said)]


def split_react(text: str) -> list[Row]:
    """The turns of a text in which the agent's actions and what was observed take turns; none where they do not. What
    stands before the first of them is the request."""
    first = next((m.start() for m in (_GOES_ON.search(text),) if m), None)
    acted = _ACTED.search(text)
    if first is None or acted is None or _OBSERVED.search(text, acted.end()) is None:
        return []
    asked = text[:first].strip()
    turns = [{"role": "user", "content": asked}] if asked else []
    return [*turns, *split_observations(text[first:])]


def split_observations(text: str) -> list[Row]:
    """What the agent wrote and what its program put behind each action, as turns; one turn where there is none."""
    turns: list[Row] = []
    at = 0
    while True:
        acted = _ACTED.search(text, at)
        observed = _OBSERVED.search(text, acted.end()) if acted else None
        said = text[at : observed.start() if observed else len(text)].strip("\n")
        if said.strip():
            turns.append({"role": "assistant", "content": said})
        if observed is None:
            return turns
        following = _GOES_ON.search(text, observed.end())
        at = following.start() if following else len(text)
        turns.append({"role": "tool", "content": text[observed.start() : at].rstrip("\n")})


def _read_turn(role: str, said: str) -> Iterator[Row]:
    thought = _THOUGHT.match(said) if role == "assistant" else None
    if thought and thought[1].strip():
        yield {"type": "reasoning", "summary": [{"text": thought[1].strip()}]}
    text = said[thought.end() :] if thought else said
    yield {"role": role, "content": text.rstrip("\n")}


def _read_harmony(header: str, said: str) -> Iterator[Row]:
    role = header.partition("<|channel|>")[0]
    if from_tool := _FROM_TOOL.match(header):
        yield {"role": "tool", "content": said, "name": from_tool[1]}
    elif not role.startswith("assistant"):
        yield {"role": role.strip(), "content": said}
    elif to_tool := _TO_TOOL.search(header):
        yield {"role": "assistant", "content": "", "tool_calls": [{"name": to_tool[1], "arguments": said}]}
    elif "<|channel|>analysis" in header:
        yield {"type": "reasoning", "summary": [{"text": said}]}
    else:
        yield {"role": "assistant", "content": said}
