"""Convert messages of toolkits and programs that have no role to messages with one.

Known are the steps of smolagents, AutoGen's events, the requests and responses of Pydantic AI, turns of a dialogue by
their speaker, and a message in an envelope: Continue's, the events of Google's ADK, the lines of Goose, Droid and
others.
"""

from __future__ import annotations

from typing import Any

from foretrace.sources.found_turns import Row, make_raw_call, make_result, make_thought
from foretrace.sources.json_values import get_dict, get_dicts, get_list, get_text, get_value

_SAID = frozenset({"TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage", "StructuredMessage"})
_PERSONS = frozenset({"user", "user_proxy", "human"})
_SPEAKERS = {
    "user": "user", "human": "user", "customer": "user", "assistant": "assistant", "bot": "assistant",
    "agent": "assistant", "ai": "assistant", "system": "assistant",
}  # fmt: skip
"""Speakers in a dialogue, where the system is the one that answers the user."""
_SPOKEN = ("content", "text", "utterance", "message")
_OF_SPEECH = frozenset({"sender", "speaker", "type", "kind", "parts", "blocks", *_SPOKEN})
"""Keys for the content of a dialogue's turn, and keys that another vocabulary uses; other keys are kept."""
_OF_RESPONSES = frozenset({"index", "finish_reason", "finishReason", "logprobs", "done", "done_reason"})
"""Keys next to a message that is one of several replies, or a piece of one, and so not a turn."""
_CAMEL = {"toolCalls": "tool_calls", "toolCallId": "tool_call_id"}


def read_toolkit(item: Row) -> list[Row] | None:
    """The messages in an item without a role; `None` if the item is not from a known toolkit."""
    if "role" in item or "from" in item:
        return [_rename_camel(item)] if _CAMEL.keys() & item.keys() else None
    return next((found for read in _READERS if (found := read(item)) is not None), None)


def open_list(record: Any) -> list[Any]:
    """The items of a list in an API's envelope (`object: list`); anything else as a list of one."""
    if get_text(record, "object") == "list" and (items := get_dicts(record, "data")):
        return [*items]
    return [record]


def is_task(item: Row) -> bool:
    """Whether an item may be the task before smolagents' steps; it only is if there are such steps."""
    return isinstance(item.get("task"), str) and item.keys() <= {"task", "task_images"}


def is_step(item: Row) -> bool:
    """Whether an item is a step of smolagents."""
    is_number = isinstance(item.get("step_number"), int)
    return is_number and isinstance(item.get("tool_calls"), list | None) and "observations" in item


def _rename_camel(item: Row) -> Row:
    return {_CAMEL.get(key, key): value for key, value in item.items()}


def _read_envelope(item: Row) -> list[Row] | None:
    message = item.get("message")
    if isinstance(message, dict) and item.keys() & _OF_RESPONSES:
        return None
    if not isinstance(message, dict):
        message, author = get_dict(item, "content"), item.get("author")
        if not isinstance(author, str) or not isinstance(message.get("parts"), list):
            return None
        message = {"role": "user" if author == "user" else "model", **message}
    role = message.get("role")
    if not isinstance(role, str) or not message.keys() & {"content", "parts", "tool_calls", "toolCalls"}:
        return None
    return [make_thought(message.get("content")) if role == "thinking" else _rename_camel(message)]


def _read_autogen(item: Row) -> list[Row] | None:
    kind, content = get_text(item, "type"), item.get("content")
    if not isinstance(item.get("source"), str):
        return None
    if kind == "ToolCallRequestEvent" and isinstance(content, list):
        return [{"role": "assistant", "content": "", "tool_calls": content}]
    if kind == "ToolCallExecutionEvent" and isinstance(content, list):
        return [
            make_result(get_value(each, "call_id"), get_value(each, "content"), get_value(each, "is_error") is True)
            for each in content
        ]
    if kind == "ThoughtEvent":
        return [make_thought(content)]
    if kind == "ToolCallSummaryMessage":  # repeats the results in the agent's name
        return []
    role = "user" if item["source"] in _PERSONS else "assistant"
    return [{"role": role, "content": content}] if kind in _SAID else None


def _read_pydantic_ai(item: Row) -> list[Row] | None:
    parts = item.get("parts")
    if item.get("kind") not in ("request", "response") or not isinstance(parts, list):
        return None
    if item["kind"] == "response":
        return [{"role": "assistant", "content": parts}]
    kinds = {"system-prompt": "system", "user-prompt": "user"}
    roles = [kinds.get(get_text(part, "part_kind"), "") for part in parts]
    return [
        {"role": role, "content": part["content"]} if role else {"role": "user", "content": [part]}
        for part, role in zip(parts, roles, strict=True)
    ]


def _read_smolagents(item: Row) -> list[Row] | None:
    """A step of smolagents: the model's text, its call, and the observation."""
    if not is_step(item):
        return None
    written, calls = get_text(item, "model_output"), get_list(item, "tool_calls")
    if not calls:
        return [{"role": "assistant", "content": written}]
    thought = written.partition("<code>")[0].partition("```")[0].strip() or None
    reply = {"role": "assistant", "content": "", "reasoning": thought, "tool_calls": [_read_code(c) for c in calls]}
    error = get_value(item.get("error"), "message", item.get("error"))
    observed = item.get("observations") or error
    return [reply, make_result(get_value(calls[0], "id"), observed, bool(error))] if observed else [reply]


def _read_code(call: Any) -> Any:
    function = get_dict(call, "function")
    code = function.get("arguments")
    is_code = function.get("name") == "python_interpreter" and isinstance(code, str)
    return make_raw_call(function["name"], {"code": code}, call.get("id")) if is_code else call


def get_speaker(item: Row) -> str:
    """The speaker of a dialogue's turn in lower case; empty if it does not name one."""
    name = item.get("sender", item.get("speaker"))
    return name.lower() if isinstance(name, str) else ""


def _read_speech(item: Row) -> list[Row] | None:
    """A turn of a dialogue: Claude's exported chats, MultiWOZ and similar ones."""
    role = _SPEAKERS.get(get_speaker(item))
    content = next((item[key] for key in _SPOKEN if item.get(key)), None)
    if content is None and item.keys() & {"tool_calls", *_SPOKEN}:
        content = ""
    if role is None or not isinstance(content, str | list):
        return None
    more = {key: value for key, value in item.items() if key not in _OF_SPEECH}
    # Attached files (Claude's export), as the model saw them.
    files = [f"\n\n{get_text(f, 'file_name')}\n{text}" for f in get_dicts(item, "attachments")
             if (text := get_text(f, "extracted_content"))]  # fmt: skip
    if files:
        said = content if isinstance(content, list) else [{"type": "text", "text": content}]
        content = [*said, *({"type": "text", "text": text} for text in files)]
        more["attachments"] = [
            {k: v for k, v in f.items() if k != "extracted_content"} for f in get_dicts(item, "attachments")
        ]
    return [{"role": role, "content": content, **more}]


_READERS = (
    _read_speech,
    _read_smolagents,
    _read_autogen,
    _read_pydantic_ai,
    _read_envelope,
)
