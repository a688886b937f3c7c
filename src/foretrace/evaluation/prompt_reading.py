"""Parse a prompt of a dataset back into the task and the turns with their calls and results.

Only this module knows what prompts look like. It relies on structure and handles both renderers: tool results as user
messages, or in `<tool_response>` tags inside them, with consecutive turns of one side in one message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.trace import Message, Provenance, Task, ToolCall, Trace
from foretrace.encodings.action_lines import ACTION_LINE
from foretrace.encodings.calls_in_text import find_calls
from foretrace.encodings.fence import FENCE
from foretrace.encodings.json_calls import JSON_ACTION, REACT
from foretrace.encodings.text_bodies import CODE_FENCE, TAGGED_CODE
from foretrace.encodings.web_actions import WEB_CALL, WEB_FENCE

_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_OMISSION = re.compile(r"^\[\d+ earlier messages? left out\]\n*", re.MULTILINE)
_CACHED_TEXTS = 4096
"""Rows of one trace lie near each other, so more are hardly asked for twice; each takes about 5 KB."""
_WITHOUT_TAGS = (REACT, JSON_ACTION, ACTION_LINE, FENCE, CODE_FENCE, TAGGED_CODE, WEB_CALL, WEB_FENCE)
"""Encodings whose calls look like other text: they count only if they name a known tool."""
_TASK = Task(id="prompt", group="prompt")
_PROVENANCE = Provenance(origin="imported", source="prompt")


class PastTurn(NamedTuple):
    """One turn of the agent that a prompt shows."""

    text: str
    calls: tuple[ToolCall, ...]
    result: str
    """The answer to it: tool results or a user message; empty if there was none."""
    label: StepLabel


class PromptView(NamedTuple):
    """The contents of a prompt."""

    system: str
    task: str
    """What the user asked for before the agent did anything."""
    turns: tuple[PastTurn, ...]
    """The turns that the prompt still shows, oldest first."""

    @property
    def last_result(self) -> str:
        """What the agent saw last: the last result, or the task if there are no turns."""
        return self.turns[-1].result if self.turns else self.task


def read_prompt(prompt: Sequence[tuple[str, str]], tools: Collection[str] = ()) -> PromptView:
    """Read a prompt, a list of (role, content). Parsed messages are cached, since the prompts of one trace share them.
    Calls in encodings without tags are found only for the named `tools`."""
    names = frozenset(tools)
    system = "\n\n".join(content for role, content in prompt if role == "system")
    head: list[str] = []
    messages: list[Message] = []
    for role, content in prompt:
        if role == "assistant":
            calls = _find_calls(content, names)
            messages.append(Message(role="assistant", author="model", content=content, tool_calls=calls))
        elif role != "system" and messages:
            messages.append(Message(role="user", author="environment", content=_unwrap_results(content)))
        elif role != "system":
            head.append(_OMISSION.sub("", content))
    return PromptView(system, "\n\n".join(filter(None, head)), _make_turns(messages))


@lru_cache(_CACHED_TEXTS)
def _find_calls(text: str, tools: frozenset[str]) -> tuple[ToolCall, ...]:
    if calls := tuple(call for call in find_calls(text) if call.error is None):
        return calls
    for encoding in _WITHOUT_TAGS:
        calls = tuple(encoding.parse(text))
        if calls and all(call.error is None and call.name in tools for call in calls):
            return calls
    return ()


@lru_cache(_CACHED_TEXTS)
def _unwrap_results(content: str) -> str:
    """The results without their tags, along with what the user said next to them."""
    if "<tool_response>" not in content:
        return _OMISSION.sub("", content)
    return _OMISSION.sub("", _RESPONSE.sub(lambda match: match[1], content)).strip("\n")


def _make_turns(messages: list[Message]) -> tuple[PastTurn, ...]:
    labels = label_trace(Trace(key="prompt", task=_TASK, messages=tuple(messages), provenance=_PROVENANCE))
    turns: list[PastTurn] = []
    starts = [label.index for label in labels]
    for label, end in zip(labels, [*starts, len(messages)][1:], strict=True):
        message = messages[label.index]
        result = "\n".join(each.content for each in messages[label.index + 1 : end])
        turns.append(PastTurn(message.content, message.tool_calls, result, label))
    return tuple(turns)
