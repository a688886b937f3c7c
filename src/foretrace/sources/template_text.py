"""A conversation as one text: with the control tokens of a chat template, or as ReAct with observations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from foretrace.sources.base import RowError

Row = dict[str, Any]

_CHAT_ML = re.compile(
    r"<\|im_start\|>(?P<role>\w+)(?:[ \t]+name=(?P<name>[\w.-]+))?[ \t]*\n(?P<said>.*?)(?:<\|im_end\|>|\Z)", re.DOTALL
)
_LLAMA = re.compile(
    r"<\|start_header_id\|>(?P<role>\w+)<\|end_header_id\|>\n*(?P<said>.*?)(?:<\|eot_id\|>|<\|eom_id\|>|\Z)", re.DOTALL
)
_HARMONY = re.compile(
    r"<\|start\|>(?P<role>(?:(?!<\|(?:start|message)\|>).){0,300})<\|message\|>(?P<said>.*?)"
    r"(?:<\|end\|>|<\|call\|>|<\|return\|>|\Z)",
    re.DOTALL,
)
_FORMS = (("<|im_start|>", _CHAT_ML), ("<|start_header_id|>", _LLAMA), ("<|start|>", _HARMONY))
_FILLING = re.compile(r"(?:\s|<\|endoftext\|>|<\|end_of_text\|>|<\|begin_of_text\|>|</?s>)*")
"""What a template may put between turns."""
_MAX_SHOWN = 60
_TO_TOOL = re.compile(r" to=(?:functions\.)?([\w.-]+)")
_FROM_TOOL = re.compile(r"(?:functions\.)?([\w.-]+) to=assistant")
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_OBSERVED = re.compile(r"^Observation(?: \d+)?:", re.MULTILINE)
_GOES_ON = re.compile(r"^(?:Thought|Action|Final Answer)(?: \d+)?:", re.MULTILINE)
_QUESTION = re.compile(r"^(?:Question|Claim)(?: \d+)?:", re.MULTILINE)
_ACTED = re.compile(r"^(?:Action|Act)(?: \d+)?:", re.MULTILINE)
_STEPS = re.compile(r"^(?:(?:Thought|Action Input|Final Answer)(?: \d+)?:|Action(?: \d+)?: ?\w+\[)", re.MULTILINE)


def split_template(text: str) -> list[Row]:
    """The turns of a text that begins with a template's tokens; none if it does not.

    Raises:
        RowError: some text is outside of the turns, or a turn contains the token that begins a turn, so that its end
            cannot be determined.
    """
    begin = _skip_filling(text, 0)
    token, pattern = next(((token, pattern) for token, pattern in _FORMS if text.startswith(token, begin)), ("", None))
    if pattern is None:
        return []
    turns: list[Row] = []
    at = begin
    for match in pattern.finditer(text, begin):
        _refuse_stray(text, at, match.start())
        if token in match["said"]:
            raise RowError("stray_text", f"a turn at character {match.start()} holds {token}, or has no end")
        read = _read_harmony(match["role"], match["said"]) if pattern is _HARMONY else _read_turn(match)
        turns += read
        at = _skip_filling(text, match.end())
    _refuse_stray(text, at, len(text))
    return turns


def _skip_filling(text: str, at: int) -> int:
    found = _FILLING.match(text, at)
    return found.end() if found else at


def _refuse_stray(text: str, at: int, end: int) -> None:
    if at < end:
        shown = text[at : min(end, at + _MAX_SHOWN)].strip()
        raise RowError("stray_text", f"text at character {at} is in no turn of the chat template: {shown!r}")


def split_react(text: str) -> list[Row]:
    """The turns of a text that alternates between the agent's actions and observations; none if it does not, or if it
    has no thoughts: reports have actions and observations, too. The text before the first step is the request; of
    several questions, all but the last are examples."""
    begin = max((m.start() for m in _QUESTION.finditer(text)), default=0)
    goes_on, acted = _GOES_ON.search(text, begin), _ACTED.search(text, begin)
    if goes_on is None or acted is None or _OBSERVED.search(text, acted.end()) is None or not has_steps(text):
        return []
    first = goes_on.start()
    asked = text[:first].strip()
    turns = [{"role": "user", "content": asked}] if asked else []
    return [*turns, *split_observations(text[first:])]


def has_steps(text: str) -> bool:
    """Whether a text has lines that only a ReAct agent writes: reports have actions and observations, too."""
    return _STEPS.search(text) is not None


def goes_on(text: str) -> bool:
    """Whether the agent continues after the first observation in its text."""
    observed = _OBSERVED.search(text)
    return observed is not None and _GOES_ON.search(text, observed.end()) is not None


def split_observations(text: str) -> list[Row]:
    """The agent's text, and the observations that its program put after each action, as turns."""
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


def _read_turn(match: re.Match[str]) -> Iterator[Row]:
    role, said = match["role"], match["said"]
    name = match.groupdict().get("name")
    thought = _THOUGHT.match(said) if role == "assistant" else None
    if thought and thought[1].strip():
        yield {"type": "reasoning", "summary": [{"text": thought[1].strip()}]}
    text = said[thought.end() :] if thought else said
    yield {"role": role, "content": text.rstrip("\n"), **({"name": name} if name else {})}


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
