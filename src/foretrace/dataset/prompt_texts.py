"""The texts of prompts and completions: targets, the list of tools, and turns.

A tool's result is enclosed in `<tool_response>` and `</tool_response>`, an agent's call in `<tool_call>` and
`</tool_call>`. In text that the agent did not write, a backslash is put after the `<` of such a tag. So a tag without
one is real, and removing one backslash restores the text."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.predictions import CallValue, Target
from foretrace.core.trace import Message, ToolSpec
from foretrace.dataset.settings import TargetFormat
from foretrace.encodings.json_arguments import encode_json, try_decode
from foretrace.encodings.json_calls import TOOL_CALL_JSON

_encode = msgspec.json.Encoder(order="deterministic").encode
_MARKED = re.compile(r'\{\s*\\*"action\\*"\s*:\s*\\*"(?:' + "|".join(ActionType) + r')\\*"|\[Next Action Prediction\]')
"""The beginning of a target, with any JSON spacing, also inside a JSON string; and a marker of older such datasets."""


def has_target(text: str) -> bool:
    """Whether a text contains something that looks like a target: in a prompt it would be a label."""
    return ('"action' in text or "[Next Action" in text) and _MARKED.search(text) is not None


def make_target_text(message: Message, action: ActionType, form: TargetFormat) -> str:
    """The text that a proposer should produce for this step.

    `type`: `{"action":A}`. `call`: `{"action":A,"tool":T,"arguments":{..}}`, with further calls of the step as
    `"more":[{"tool":T,"arguments":{..}},..]`; a step without a call has tool null. `message`: the agent's message with
    native calls written out.
    """
    if form == "message":
        return make_message_text(message)
    if form == "type":
        return f'{{"action":"{action}"}}'
    calls = [CallValue(call.name, msgspec.json.decode(call.arguments)) for call in message.tool_calls]
    first, *more = calls or [CallValue(None, {})]
    return _encode(Target(action, first.tool, first.arguments, more)).decode()


def make_message_text(message: Message) -> str:
    """The message as plain text: verbatim, followed by its native calls written out."""
    text = message.prefix + message.content
    calls = [TOOL_CALL_JSON.render(c) for c in message.tool_calls if c.span is None and c.error is None]
    return "\n".join([text, *calls] if text else calls) if calls else text


_TOOL_TAG = re.compile(r"<(?=/?tool_(?:call|response))", re.IGNORECASE)


@lru_cache(maxsize=4096)
def encode_tool(tool: ToolSpec) -> str:
    """The tool as `{"name":N,"description":D,"parameters":{...}}`; a schema that is not JSON becomes a string.

    A tag of a call or result in a description is written with a JSON escape: it decodes to the same text, but is not a
    tag.
    """
    held = f',"parameters":{_squeeze(tool.parameters)}' if tool.parameters.strip() else ""
    text = f'{{"name":{encode_json(tool.name)},"description":{encode_json(tool.description)}{held}}}'
    return _TOOL_TAG.sub(r"\\u003c", text)


def is_described(tool: ToolSpec, text: str) -> bool:
    """Whether a text names the tool and each of its arguments, as a system text that explains the tool does."""
    return all(name in text for name in _list_names(tool))


@lru_cache(maxsize=1024)
def _list_names(tool: ToolSpec) -> tuple[str, ...]:
    schema = try_decode(tool.parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return (tool.name, *(properties if isinstance(properties, dict) else ()))


def _squeeze(parameters: str) -> str:
    """JSON text without white space between its parts. A text that is not JSON becomes a JSON string."""
    return encode_json(parameters) if try_decode(parameters) is None else msgspec.json.format(parameters, indent=-1)


RESULT_START = "<tool_response>\n"
RESULT_END = "\n</tool_response>"
JOIN = "\n\n"
"""Between messages of one turn."""
AGENT_BEGINS = "[the agent begins]"
"""The user's turn if the agent's first message follows no other."""
AGENT_GOES_ON = "[the agent goes on]"
"""The user's turn if the agent's message follows another one of its own."""

_TAG = re.compile(r"<(?=\\*/?tool_(?:call|response))", re.IGNORECASE)


def escape_tags(text: str) -> str:
    """The text with a backslash after the `<` of every call or result tag, including tags with backslashes."""
    return _TAG.sub(r"<\\", text)


def make_shown_text(message: Message) -> str:
    """The message's text as prompts show it, before it is framed or cut."""
    text = make_message_text(message)
    return text if message.role == "assistant" else escape_tags(text)


def frame_text(message: Message, text: str) -> str:
    """The shown text, whole or cut, marked as a result if it is one."""
    return f"{RESULT_START}{text}{RESULT_END}" if message.role == "tool" else text


def find_side(message: Message) -> str:
    """The role whose turn the message is in: `assistant`, or `user` for everything the agent did not write."""
    return "assistant" if message.role == "assistant" else "user"


def make_omission_mark(count: int) -> str:
    return f"[{count} earlier message{'s' if count > 1 else ''} left out]"


def make_cut_mark(count: int) -> str:
    return f"\n[{count} characters left out]\n"
