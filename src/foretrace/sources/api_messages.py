"""Messages as the APIs of agents list them: Letta's, and the messages and run steps of OpenAI's Assistants. Both list
the newest first, unless they are asked otherwise."""

from __future__ import annotations

from typing import Any

from foretrace.sources.found_turns import Row, make_call, make_result, make_thought
from foretrace.sources.json_values import as_dicts, get_dict, get_dicts, get_list, get_number, get_text

_LETTA = {"system_message": "system", "user_message": "user", "assistant_message": "assistant"}
_LETTA_CALLS = ("tool_call_message", "approval_request_message")
_LETTA_SILENT = ("hidden_reasoning_message", "approval_response_message")
_LETTA_TYPES = frozenset({*_LETTA, *_LETTA_CALLS, *_LETTA_SILENT, "reasoning_message", "tool_return_message"})
_ASSISTANTS = ("thread.message", "thread.run.step")


def open_list(record: Any) -> list[Any]:
    """The items of a list as an API gives it (`object: list`); anything else as a list of one."""
    if get_text(record, "object") == "list" and (items := get_dicts(record, "data")):
        return [*items]
    return [record]


def read_api_message(item: Row) -> list[Row] | None:
    """The messages in an item of such a list; `None` where it is none."""
    if get_text(item, "message_type") in _LETTA_TYPES and get_text(item, "id"):
        return _read_letta(item)
    if get_text(item, "object") in _ASSISTANTS:
        return _read_assistants(item)
    return None


def put_in_order(items: list[tuple[int | None, Row]]) -> list[tuple[int | None, Row]]:
    """The items with the oldest first, where they are of such a list and their stamps say that they are not."""
    if not items or not all(read_api_message(item) is not None for _, item in items):
        return items
    stamps = [_get_stamp(item) for _, item in items]
    if any(stamp is None for stamp in stamps) or not stamps[0] > stamps[-1]:
        return items
    # Those of one second stand newest first, too.
    oldest_first = items[::-1]
    return sorted(oldest_first, key=lambda pair: _get_stamp(pair[1]))


def _get_stamp(item: Row) -> Any:
    return get_text(item, "date") or get_number(item, "created_at")


def _read_letta(item: Row) -> list[Row]:
    kind, more = item["message_type"], {"timestamp": item["date"]} if get_text(item, "date") else {}
    if (role := _LETTA.get(kind)) is not None:
        return [{"role": role, "content": item.get("content"), **more}]
    if kind == "reasoning_message":
        return [make_thought(get_text(item, "reasoning"))]
    if kind in _LETTA_CALLS:
        calls = as_dicts(item.get("tool_calls")) or [get_dict(item, "tool_call")]
        made = [{"id": call.get("tool_call_id"), "function": call} for call in calls]
        return [{"role": "assistant", "content": "", "tool_calls": made, **more}]
    if kind == "tool_return_message":
        returned = as_dicts(item.get("tool_returns")) or [item]
        return [
            make_result(get_text(each, "tool_call_id"), each.get("tool_return"), each.get("status") == "error") | more
            for each in returned
        ]
    return []


def _read_assistants(item: Row) -> list[Row]:
    stamp = get_number(item, "created_at")
    more = {} if stamp is None else {"created_at": stamp, "timestamp": stamp}
    if item["object"] == "thread.message":
        content = [_read_part(part) for part in get_list(item, "content")]
        return [{"role": item.get("role"), "content": content, **more}]
    calls = get_dicts(get_dict(item, "step_details"), "tool_calls")
    if not calls:  # the step that wrote a message, which is listed with the messages
        return []
    made, results = [], list[Row]()
    for call in calls:
        kind = get_text(call, "type") or "function"
        held = get_dict(call, kind)
        given = held.get("arguments", {k: v for k, v in held.items() if k not in ("outputs", "results", "output")})
        made.append(make_call(get_text(held, "name") or kind, given, call.get("id")))
        result = held.get("output", held.get("outputs", held.get("results")))
        if result is not None:
            results.append(make_result(call.get("id"), _read_outputs(result)) | more)
    return [{"role": "assistant", "content": "", "tool_calls": made, **more}, *results]


def _read_part(part: Any) -> Any:
    if get_text(part, "type") == "text" and isinstance(part.get("text"), dict):
        return {"type": "text", "text": get_text(part["text"], "value")}
    return part


def _read_outputs(value: Any) -> Any:
    """What the code interpreter printed."""
    logs = [get_text(each, "logs") for each in value] if isinstance(value, list) else []
    return "\n".join(logs) if logs and all(logs) else value
