"""The target: the next action as one canonical JSON text."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.trace import Message
from foretrace.dataset.settings import TargetFormat
from foretrace.encodings.tool_call_json import PLUGIN as TOOL_CALL_JSON

_encoder = msgspec.json.Encoder(order="sorted")
_MARKED = re.compile(r'\{\s*\\*"action\\*"\s*:\s*\\*"(?:' + "|".join(ActionType) + r')\\*"|\[Next Action Prediction\]')
"""The beginning of a target, with any spacing of its JSON, also inside of a JSON string, and a marker that older
datasets of this kind have."""


def has_target(text: str) -> bool:
    """Whether text that looks like a target stands in a text: in a prompt it would be a label."""
    return ('"action' in text or "[Next Action" in text) and _MARKED.search(text) is not None


def make_target_text(message: Message, action: ActionType, form: TargetFormat) -> str:
    """The text that a proposer should produce for this step.

    `type`: `{"action":A}`. `call`: `{"action":A,"tool":T,"arguments":{..}}`, with the further calls of the step, if
    any, as `"more":[{"tool":T,"arguments":{..}},..]`; a step without a call has tool null. `message`: the agent's
    message with native calls written out.
    """
    if form == "message":
        return make_message_text(message)
    head = f'{{"action":"{action}"'
    if form == "type":
        return head + "}"
    if not message.tool_calls:
        return head + ',"tool":null,"arguments":{}}'
    first, *rest = ((_encode_json(c.name), _make_canonical(c.arguments)) for c in message.tool_calls)
    text = f'{head},"tool":{first[0]},"arguments":{first[1]}'
    if rest:
        more = ",".join(f'{{"tool":{name},"arguments":{arguments}}}' for name, arguments in rest)
        text += f',"more":[{more}]'
    return text + "}"


def make_message_text(message: Message) -> str:
    """The message as plain text: verbatim, with native calls written out behind it."""
    text = message.prefix + message.content
    calls = [TOOL_CALL_JSON.render(c) for c in message.tool_calls if c.span is None and c.error is None]
    return "\n".join([text, *calls] if text else calls) if calls else text


def _encode_json(value: Any) -> str:
    return _encoder.encode(value).decode()


def _make_canonical(arguments: str) -> str:
    return _encode_json(msgspec.json.decode(arguments))
