"""The texts of prompts and completions: targets, the list of tools, and turns.

A target is the next action as one canonical JSON text. The tools are one JSON object a line. In a turn, what a tool
answered stands between `<tool_response>` and `</tool_response>`, and a call of the agent between `<tool_call>` and
`</tool_call>`. Whoever writes one of these tags without being the agent (a web page, a file, a user) gets a backslash
behind its `<`: `<\\tool_call>`, `<\\/tool_response>`. So a tag without a backslash is real in every user turn, and
taking one backslash away again gives the text as it was. The agent's own turns are verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.message_columns import ChatText
from foretrace.core.trace import Message, ToolSpec
from foretrace.dataset.settings import TargetFormat
from foretrace.encodings.json_arguments import encode_json
from foretrace.encodings.json_calls import TOOL_CALL_JSON

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


_TOOL_TAG = re.compile(r"<(?=/?tool_(?:call|response))", re.IGNORECASE)


DESCRIPTION_CHARS = (None, 200, 60, 0)
"""Longest descriptions to try where there is too little room, in characters; with 0, those of arguments go."""
_LEAST_CHARS = 60
"""Characters that a tool's own description keeps."""


@lru_cache(maxsize=4096)
def encode_tool(tool: ToolSpec, longest: int | None = None) -> str:
    """The tool as `{"name":N,"description":D,"parameters":{...}}`; a schema that is no JSON stands there as a string.

    A tag of a call or result in a description is written with a JSON escape, so it looks like none and reads as it was.

    Args:
        tool: The tool.
        longest: Cut longer descriptions and say so in them. With 0, leave out those of the arguments, and say how many
            characters that is behind the object. `None`: all as it is.
    """
    whole = parameters = _squeeze(tool.parameters)
    description = tool.description
    if longest is not None:
        parameters = _shorten_schema(whole, longest)
        description = _cut(description, longest or _LEAST_CHARS)
    gone = len(whole) - len(parameters) if longest == 0 else 0
    held = f',"parameters":{parameters}' if parameters else ""
    text = f'{{"name":{encode_json(tool.name)},"description":{encode_json(description)}{held}}}'
    return _TOOL_TAG.sub(r"\\u003c", text) + (f" [{gone} characters left out]" if gone > 0 else "")


def _shorten_schema(schema: str, longest: int) -> str:
    """JSON text of the schema with shorter descriptions; as it is where it cannot be written again."""
    try:
        return encode_json(_shorten(_read(schema), longest))
    except (ValueError, RecursionError):  # infinite numbers, or nested too deep
        return schema


def _cut(text: str, longest: int) -> str:
    gone = len(text) - longest
    return f"{text[:longest]}[{gone} characters left out]" if gone > 0 else text


def _shorten(value: Any, longest: int) -> Any:
    """A schema whose descriptions are cut to a length, or left out with 0. A property that is called `description` is
    an object and stays."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if longest or not _is_description(k, v)}
        return {k: _cut(v, longest) if _is_description(k, v) else _shorten(v, longest) for k, v in kept.items()}
    return [_shorten(one, longest) for one in value] if isinstance(value, list) else value


def _is_description(key: str, value: Any) -> bool:
    return key == "description" and isinstance(value, str)


def is_described(tool: ToolSpec, text: str) -> bool:
    """Whether a text names the tool and each of its arguments, as a system text does that explains it."""
    return all(name in text for name in _list_names(tool))


@lru_cache(maxsize=1024)
def _list_names(tool: ToolSpec) -> tuple[str, ...]:
    schema = _read(tool.parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return (tool.name, *(properties if isinstance(properties, dict) else ()))


def _read(parameters: str) -> Any:
    try:
        return msgspec.json.decode(parameters)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _squeeze(parameters: str) -> str:
    """JSON text without white space between its parts; a text that is no JSON as a JSON string."""
    if _read(parameters) is None:
        return encode_json(parameters) if parameters.strip() else ""
    return msgspec.json.format(parameters, indent=-1)


RESULT_START = "<tool_response>\n"
RESULT_END = "\n</tool_response>"
JOIN = "\n\n"
"""Between messages that are one turn."""
AGENT_BEGINS = "[the agent begins]"
"""The user's turn where the agent's first message follows no other."""
AGENT_GOES_ON = "[the agent goes on]"
"""The user's turn where the agent's next message follows another one of its own."""
OMISSION = re.compile(r"\[(\d{1,12}) earlier messages? left out\]")
CUT = re.compile(r"\n\[(\d{1,12}) characters left out\](?=\n)")

_TAG = re.compile(r"<(?=\\*/?tool_(?:call|response))", re.IGNORECASE)
_ESCAPED_TAG = re.compile(r"<\\(?=\\*/?tool_(?:call|response))", re.IGNORECASE)


def escape_tags(text: str) -> str:
    """The text with a backslash behind the `<` of every tag of a call or result, those with backslashes among them."""
    return _TAG.sub(r"<\\", text)


def unescape_tags(text: str) -> str:
    """What `escape_tags` was given."""
    return _ESCAPED_TAG.sub("<", text)


def make_shown_text(message: Message) -> str:
    """The message's text as prompts show it, before it is framed or cut."""
    text = make_message_text(message)
    return text if message.role == "assistant" else escape_tags(text)


def frame_text(message: Message, text: str) -> str:
    """The shown text, whole or cut, marked as a result where it is one."""
    return f"{RESULT_START}{text}{RESULT_END}" if message.role == "tool" else text


def find_side(message: Message) -> str:
    """Whose turn the message is in: `assistant`, or `user` for all that the agent did not write."""
    return "assistant" if message.role == "assistant" else "user"


def make_omission_mark(count: int) -> str:
    """Says how many messages are missing."""
    return f"[{count} earlier message{'s' if count > 1 else ''} left out]"


def make_cut_mark(count: int) -> str:
    """Says how many characters are missing."""
    return f"\n[{count} characters left out]\n"


class History:
    """The messages of a trace, against which prompts are compared."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._texts = [make_shown_text(message) for message in messages]
        self._sides = [find_side(message) for message in messages]
        self._start = next((at for at, m in enumerate(messages) if m.role != "system"), len(messages))
        turns = range(self._start, len(messages))
        self._first = next((at for at in turns if messages[at].role in ("assistant", "tool")), len(messages))
        self._ends = _find_run_ends(self._sides)
        self._known: dict[tuple[int, int], str] = {}
        """The text of each turn behind the first that was found right, by its first message and the one behind its
        last: most stand in many prompts."""
        self._openings: set[tuple[int | str, ...]] = set()
        """First turns that were found right, each as its text and its pieces."""

    def is_shown_by(self, prompt: Sequence[ChatText], step: int) -> bool:
        """Whether the prompt's history is the trace's messages up to the step.

        That is one system message, then turns of user and agent by turns, the user's first and last; in them each
        message at its place, whole or with its middle marked as left out. Messages may be missing only behind the
        task, and a mark there says how many.
        """
        turns = prompt[1:]
        if not turns or prompt[0].role != "system" or len(turns) % 2 == 0:
            return False
        roles = [role for role, _ in turns]
        if roles[::2].count("user") + roles[1::2].count("assistant") != len(turns):
            return False
        marked = {int(mark[1]) for mark in OMISSION.finditer(turns[0].content)}
        missing = [0, *sorted(count for count in marked if 0 < count <= step - self._first)]
        return any(self._is_shown(turns, step, count) for count in missing)

    def _is_shown(self, turns: Sequence[ChatText], step: int, missing: int) -> bool:
        pieces: list[int | str] = [*range(self._start, min(self._first, step))]
        if missing:
            pieces.append(make_omission_mark(missing))
        at = self._first + missing
        if at < step and self._sides[at] == "user":
            end = min(self._ends[at], step)
            pieces += range(at, end)
            at = end
        place, count, side = 1, len(turns), "user"
        known, ends = self._known, self._ends
        while at < step:  # from turn to turn the side changes, as the role does in the prompt
            end = min(ends[at], step)
            if place == count:
                return False
            text = turns[place].content
            if known.get((at, end)) != text:
                if not self._is_joined(text, range(at, end)):
                    return False
                known[at, end] = text
            side = self._sides[at]
            at = end
            place += 1
        if side == "assistant":
            if place == count or turns[place].content != AGENT_GOES_ON:
                return False
            place += 1
        return place == count and self._is_opening(turns[0].content, pieces or [AGENT_BEGINS])

    def _is_opening(self, text: str, pieces: Sequence[int | str]) -> bool:
        turn = (text, *pieces)
        if turn not in self._openings:
            if not self._is_joined(text, pieces):
                return False
            self._openings.add(turn)
        return True

    def _is_joined(self, text: str, pieces: Sequence[int | str]) -> bool:
        """Whether the text is these pieces: marks, and messages by their index."""
        if text == JOIN.join([piece if isinstance(piece, str) else self._frame(piece) for piece in pieces]):
            return True
        ends = {0}
        for number, piece in enumerate(pieces):
            if number:
                ends = {at + len(JOIN) for at in ends if text.startswith(JOIN, at)}
            ends = {end for at in ends for end in self._find_ends(text, at, piece)}
        return len(text) in ends

    def _frame(self, index: int) -> str:
        return frame_text(self._messages[index], self._texts[index])

    def _find_ends(self, text: str, at: int, piece: int | str) -> list[int]:
        """Where the piece may end that begins at a place of the text."""
        before, whole, behind = "", piece, ""
        if not isinstance(piece, str):
            whole = self._texts[piece]
            before, _, behind = frame_text(self._messages[piece], "\0").partition("\0")
        assert isinstance(whole, str)
        if not text.startswith(before, at):
            return []
        at += len(before)
        ends = [at + len(whole)] if text.startswith(whole, at) else []
        if not isinstance(piece, str):
            ends += _find_cut_ends(text, at, whole)
        return [end + len(behind) for end in ends if text.startswith(behind, end)]


def _find_run_ends(sides: Sequence[str]) -> list[int]:
    """For each message, where the messages of its side end that follow one another there."""
    ends = [len(sides)] * len(sides)
    for at in range(len(sides) - 2, -1, -1):
        ends[at] = ends[at + 1] if sides[at] == sides[at + 1] else at + 1
    return ends


def _find_cut_ends(text: str, at: int, whole: str) -> list[int]:
    """Where the text ends that begins at a place and is `whole` with its middle marked as left out."""
    ends: list[int] = []
    for mark in CUT.finditer(text, at):
        head = text[at : mark.start()]
        if not whole.startswith(head):
            break
        left = len(whole) - len(head) - int(mark[1])
        end = mark.end() + 1 + left
        if left >= 0 and text[mark.end() + 1 : end] == whole[len(whole) - left :]:
            ends.append(end)
    return ends
