"""Make the messages of a trace from the turns of a row: the author of each, its calls, and their results."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from foretrace.core.errors import Setting
from foretrace.core.trace import Message, Role, ToolCall
from foretrace.encodings.base import TextEncoding
from foretrace.encodings.python_calls import CALL_LIST
from foretrace.sources.base import RowError
from foretrace.sources.content_blocks import read_block_text, read_content
from foretrace.sources.conversation import FLUSH_S, read_time, write_time
from foretrace.sources.json_values import as_dicts, decode_nested
from foretrace.sources.leftovers import find_rest
from foretrace.sources.openai_messages import find_unknown_fields, read_answered_ids, read_native_calls
from foretrace.sources.text_actions import AgentText, CallReader
from foretrace.sources.turn_items import CALL_ROLES, REST, ROLES, Place, Row, get_role

_KNOWN = frozenset(
    [
        *("role", "from", "content", "value", "tool_calls", "function_call", "reasoning_content", "reasoning"),
        *("tool_call_id", "tool_call_ids", "is_error", "train", "trainable", "loss", "is_demo", "is_item_call", REST),
    ]
)
_MARKER = re.compile(
    r"^(?:OBSERVATION:\n|Observation(?: \d+)?:[ \n]|EXECUTION RESULT of \[[^\]]*\]:\n|Execution result:[ \n]?"
    r"|\[\w+(?: for '[^\n]*?')?\] Result:\n?|The output of the OS:\n?|(?=<returncode>)|(?=<tool_response>))"
)
"""Beginnings that mark a message in role `user` as the output of a tool."""
_NOTICE = re.compile(r"\s*<(system-reminder|environment_context|hook_prompt|turn_aborted)>.*</\1>\s*\Z", re.DOTALL)
"""Messages in role `user` that the agent's program writes, not a person."""
_NEXT_TASK = re.compile(
    r"\s*(?:(?:A|Here is a|Here's a) new (?:question|problem|task)\b"
    r"|Now,? (?:my|your|the|here|let's start|it'?s your turn)\b"
    r"|(?:My|Your) (?:real |actual )?(?:problem|question|task) is\b|Your turn\b)",
    re.IGNORECASE,
)
"""How the task is announced after an example written as turns."""
_ENDINGS = frozenset({"answer", "finish", "solution", "stop", "submit", "final_answer"})
_ACKNOWLEDGEMENT_CHARS = 160
_STAMPS = ("timestamp", "ts", "created_at", "createdAt", "created", "time", "datetime", "date")
_HOLDERS = ("message", "metadata")
"""Keys of objects in a record that may hold its timestamp."""
_FIRST = 1e9
"""Seconds since 1970 (in 2001): a smaller number is not counted from 1970."""


class _Turn(msgspec.Struct):
    place: Place
    item: Row
    role: Role
    raw_role: str | None
    text: str
    parts: tuple[Any, ...]
    calls: tuple[ToolCall, ...] = ()


def make_messages(items: list[tuple[Place, Row]], pattern: TextEncoding | None = None) -> tuple[Message, ...]:
    """The messages of turns from `flatten_turns`; calls are native ones, or else those in the text. An unknown role, or
    content that would be lost, is a RowError."""
    turns = [_read_turn(place, item, index) for index, (place, item) in enumerate(items)]
    silent = [i for i, turn in enumerate(turns) if turn.role == "assistant" and not turn.calls]
    texts = [AgentText(turns[i].text, _find_answer(turns, i)) for i in silent if turns[i].text.strip()]
    reader = CallReader(texts, pattern) if texts else None
    for i in silent:
        if reader is not None and turns[i].text:
            turns[i].calls = reader.read(turns[i].text)
    said = [turn for turn in turns if turn.role == "assistant"]
    if said and not any(turn.text.strip() or turn.calls or turn.parts or _get_reasoning(turn.item) for turn in said):
        raise RowError("no_text", "no message of the agent has a text or a call")
    messages: list[Message] = []
    for turn in turns:
        messages.append(_make_message(turn, len(messages), messages[-1] if messages else None))
    return _mark_example(messages)


def find_task_text(messages: tuple[Message, ...]) -> str:
    """The user's request: the messages before the agent's first step, without a preamble that the agent only
    acknowledges, and without an example before the task."""
    example_end = max((i for i, m in enumerate(messages) if "example" in m.extra), default=-1)
    asked: list[str] = []
    for index, message in enumerate(messages):
        if index <= example_end:
            continue
        if message.role == "user" and message.author == "user":
            asked.append(message.content)
        elif message.role == "assistant" and message.author == "model" and asked:
            if not _is_acknowledgement(messages, index):
                break
            asked.clear()
    return "\n\n".join(asked)


def _get_reasoning(item: Row) -> str | None:
    reasoning = item.get("reasoning_content") or item.get("reasoning")
    return reasoning if isinstance(reasoning, str) else None


def _read_turn(place: Place, item: Row, index: int) -> _Turn:
    name = item.get("role", item.get("from"))
    role = get_role(item)
    if role is None:
        at = f"message {index if place is None else place}"
        if name is None:
            remedy = ("name the one that holds its role: ", Setting("columns", {"role": "KEY"}))
            raise RowError("unknown_role", f"{at} has no role; it has {', '.join(sorted(item)[:10])}", *remedy)
        raise RowError("unknown_role", f"{at} has the role {name!r}; known are {', '.join(ROLES)}")
    content = item.get("content", item.get("value"))
    text, parts = read_content(content)
    calls: tuple[ToolCall, ...] = ()
    if role == "assistant":
        calls = read_native_calls(item.get("tool_calls"), index)
        if not calls and (older := item.get("function_call")) is not None:
            calls = read_native_calls([{"function": older}], index)
        if not calls and isinstance(written := item.get("function_calls"), str):  # one a line: `f(x=1)`
            found = [call for line in written.splitlines() for call in CALL_LIST.parse(f"[{line}]")]
            calls = tuple(msgspec.structs.replace(call, span=None, extra={}) for call in found)
        if not calls and name in CALL_ROLES:
            calls = read_native_calls([decode_nested(text)], index)
    if not calls and content is None and not item.keys() & {"content", "value", "tool_calls", "function_call"}:
        remedy = ("name the one that holds its text: ", Setting("columns", {"content": "KEY"}))
        raise RowError("no_text", f"message {index} has no content; it has {', '.join(sorted(item)[:10])}", *remedy)
    return _Turn(place, item, role, name if name != role else None, text, parts, calls)


def _find_answer(turns: list[_Turn], index: int) -> str | None:
    following = turns[index + 1] if index + 1 < len(turns) else None
    if following is None or following.role not in ("user", "tool"):
        return None
    return following.text


def _make_message(turn: _Turn, index: int, last: Message | None) -> Message:
    item, text = turn.item, turn.text
    common: dict[str, Any] = {
        "parts": turn.parts,
        "turn": index,
        "raw_index": turn.place,
        "raw_role": turn.raw_role,
        "extra": _read_extra(item, text),
    }
    is_demo = item.get("is_demo") is True
    if turn.role == "assistant":
        return Message(
            role="assistant",
            author="demo" if is_demo else "model",
            content=text,
            reasoning=_get_reasoning(item),
            tool_calls=turn.calls,
            # This run of the agent did not write a reply in the request.
            train=False if turn.place is None else _read_train_flag(item),
            **common,
        )
    marker = _MARKER.match(text) if last is not None and turn.role in ("user", "tool") else None
    if turn.role == "tool" or marker or (turn.role == "user" and _answers_text_call(last, text)):
        common["raw_role"] = turn.raw_role or (None if turn.role == "tool" else turn.role)
        error = item.get("is_error")
        return Message(
            role="tool",
            author="demo" if is_demo else "environment",
            content=text[marker.end() :] if marker else text,
            prefix=marker.group() if marker else "",
            tool_call_ids=read_answered_ids(item),
            is_error=error if isinstance(error, bool) else None,
            **common,
        )
    is_notice = turn.raw_role == "environment_state" or (turn.role == "user" and bool(_NOTICE.match(text)))
    author = "demo" if is_demo else "environment" if is_notice else "user"
    return Message(role=turn.role, author=author, content=text, **common)


def _read_extra(item: Row, text: str) -> Row:
    """The fields of a turn that are in no other field of the message, and what text blocks hold besides their text,
    such as citations."""
    extra, rest = find_unknown_fields(item, _KNOWN), dict(item.get(REST, {}))
    blocks = [block for block in as_dicts(item.get("content", item.get("value"))) if read_block_text(block)]
    if any(len(block) > 1 + ("type" in block) for block in blocks) and (beside := find_rest(blocks, text)) is not None:
        rest["text" if "content" in rest else "content"] = beside
    both = {name: rest.pop(name) for name in extra.keys() & rest.keys()}
    return {**extra, **rest, **({"rest": both} if both else {})} if rest or both else extra


def _answers_text_call(last: Message | None, text: str) -> bool:
    """Whether a message in role `user` is the environment's answer to a call written as text."""
    if last is None or last.role != "assistant" or not last.tool_calls or _NOTICE.match(text):
        return False
    return all(call.span is not None for call in last.tool_calls) and last.tool_calls[-1].name.lower() not in _ENDINGS


def _mark_example(messages: list[Message]) -> tuple[Message, ...]:
    """Mark an example before the task that is written as turns: every row has the same, and it must not be trained."""
    start = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    asked = (i for i, m in enumerate(messages) if i > start + 1 and m.role == "user" and m.author == "user")
    task = next((i for i in asked if _NEXT_TASK.match(messages[i].content)), None)
    is_example = task is not None and any(m.tool_calls for m in messages[:task])
    if task is None or not is_example or not any(m.role == "assistant" for m in messages[task:]):
        return tuple(messages)
    for index in range(start, task):
        message = messages[index]
        train = False if message.role == "assistant" else message.train
        messages[index] = msgspec.structs.replace(message, train=train, extra={**message.extra, "example": True})
    return tuple(messages)


def _is_acknowledgement(messages: tuple[Message, ...], index: int) -> bool:
    """Whether the agent's first message only acknowledges the instructions."""
    message = messages[index]
    if message.tool_calls or len(message.content) >= _ACKNOWLEDGEMENT_CHARS or "?" in message.content:
        return False
    first = not any(m.role == "assistant" for m in messages[:index])
    following = messages[index + 1 : index + 2]
    return first and bool(following) and following[0].role == "user" and bool(_READY.match(message.content))


_READY = re.compile(
    r"\W*(?:ok(?:ay)?|sure|understood|got it|alright|yes|ready|I(?:'ve| have)?\s?(?:fully )?underst(?:an|oo)d"
    r"|I(?:'ll| will) follow)\b",
    re.IGNORECASE,
)


def _read_train_flag(item: Row) -> bool | None:
    """Whether to train the turn, from trainers' flags that exclude turns from the loss; `None` without a flag."""
    for name in ("train", "trainable", "loss"):
        if isinstance(item.get(name), bool):
            return item[name]
    return False if item.get("weight") == 0 else None


def read_stamps(turns: Iterable[tuple[int | None, dict[str, Any]]]) -> dict[int, float]:
    """The timestamp of each turn that has one, in seconds since 1970, by position."""
    found = ((place, _find_stamp(item)) for place, item in turns)
    return {place: at for place, at in found if place is not None and at is not None}


def add_times(messages: tuple[Message, ...], stamps: dict[int, float]) -> tuple[Message, ...]:
    """Add to each message when it was written, and how long that took.

    The time of a reply is counted from the message before it: if the model writes a reply in several records, each is a
    message, and their times must not overlap. The time of a tool is counted from its call.
    """
    timed: list[Message] = []
    called: dict[str, float | None] = {}
    latest: float | None = None
    said: float | None = None
    for message in messages:
        at = None if message.raw_index is None else stamps.get(message.raw_index)
        fields: dict[str, Any] = {} if at is None else {"started": write_time(at)}
        begin = None
        if message.role == "assistant":
            begin, said = latest, at
            called.update((call.id, at) for call in message.tool_calls if call.id)
        elif message.role == "tool":
            known = [stamp for own in message.tool_call_ids if (stamp := called.get(own)) is not None]
            begin = max(known, default=None) if message.tool_call_ids else said
        if begin is not None and at is not None and at - begin >= FLUSH_S:
            name = "model_s" if message.role == "assistant" else "tool_s"
            fields |= {name: round(at - begin, 6), f"{name}_source": "stamps"}
        latest = at if at is not None else latest
        timed.append(msgspec.structs.replace(message, **fields) if fields else message)
    return tuple(timed)


def _find_stamp(item: dict[str, Any]) -> float | None:
    for holder in (item, *(item.get(key) for key in _HOLDERS)):
        if not isinstance(holder, dict):
            continue
        for key in _STAMPS:
            at = read_time(holder[key]) if key in holder else None
            if at is not None and at >= _FIRST:
                return at
    return None
