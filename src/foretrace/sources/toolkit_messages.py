"""Messages that have no role of their own, as toolkits and programs keep them, made into messages that have one.

Known are Letta's messages, the steps of smolagents, AutoGen's events, the requests and responses of Pydantic AI,
Semantic Kernel's `Items`, the pairs of Amazon Q and Kiro, and a message in an envelope: Continue's, the events of
Google's ADK, the lines of Goose, Droid and others.
"""

from __future__ import annotations

from typing import Any

from foretrace.encodings.json_arguments import encode_json
from foretrace.sources.found_turns import Row, make_call, make_result, make_thought
from foretrace.sources.json_values import as_dicts, get_dict, get_dicts, get_list, get_text, get_value

_SAID = frozenset({"TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage", "StructuredMessage"})
_AUTOGEN = _SAID | {"ThoughtEvent", "ToolCallRequestEvent", "ToolCallExecutionEvent", "ToolCallSummaryMessage"}
_PERSONS = frozenset({"user", "user_proxy", "human"})
_SPEAKERS = {
    "user": "user", "human": "user", "customer": "user", "assistant": "assistant", "bot": "assistant",
    "agent": "assistant", "ai": "assistant", "system": "assistant",
}  # fmt: skip
"""Who speaks in a dialogue; there, the system is who answers the user."""
_SPOKEN = ("content", "text", "utterance", "message")
_OF_SPEECH = frozenset({"sender", "speaker", "type", "kind", "parts", "blocks", *_SPOKEN})
"""What a turn of a dialogue says, and what would be taken for another vocabulary; the rest stays with it."""
_OF_RESPONSES = frozenset({"index", "finish_reason", "finishReason", "logprobs", "done", "done_reason"})
"""What stands beside a message that is one of several replies, or a piece of one, and no turn."""
_HARMONY = frozenset({"role", "channel", "recipient", "content"})
_LETTA = {"system_message": "system", "user_message": "user", "assistant_message": "assistant"}
_LETTA_CALLS = ("tool_call_message", "approval_request_message")
_LETTA_SILENT = ("hidden_reasoning_message", "approval_response_message")
_LETTA_TYPES = frozenset({*_LETTA, *_LETTA_CALLS, *_LETTA_SILENT, "reasoning_message", "tool_return_message"})
_CAMEL = {"toolCalls": "tool_calls", "toolCallId": "tool_call_id"}


def read_toolkit(item: Row) -> list[Row] | None:
    """The messages in an item without a role; `None` where it is none of these."""
    if _is_letta(item):
        return _read_letta(item)
    if item.keys() >= _HARMONY and isinstance(item["role"], str):
        return [_read_harmony(item)]
    if "role" in item or "from" in item:
        return [_rename_camel(item)] if _CAMEL.keys() & item.keys() else None
    for read in _READERS:
        if (found := read(item)) is not None:
            return found
    return None


def open_list(record: Any) -> list[Any]:
    """The items of a list as an API gives it (`object: list`); anything else as a list of one."""
    if get_text(record, "object") == "list" and (items := get_dicts(record, "data")):
        return [*items]
    return [record]


def put_in_order(items: list[tuple[int | None, Row]]) -> list[tuple[int | None, Row]]:
    """The items with the oldest first, where all are Letta's and their dates say that they are not."""
    dates = [get_text(item, "date") for _, item in items]
    if not items or not all(dates) or not all(_is_letta(item) for _, item in items) or dates[0] <= dates[-1]:
        return items
    # Those of one second stand newest first, too.
    oldest_first = items[::-1]
    return sorted(oldest_first, key=lambda pair: pair[1]["date"])


def _is_letta(item: Row) -> bool:
    return get_text(item, "message_type") in _LETTA_TYPES and bool(get_text(item, "id"))


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


def _read_harmony(item: Row) -> Row:
    """A message of gpt-oss: what is said to another is a call of it, what is said in `analysis` a thought."""
    blocks = item["content"] if isinstance(item["content"], list) else [{"text": item["content"]}]
    said = "".join(get_text(block, "text") for block in blocks)
    message = {**item, "content": said}
    called = get_text(item, "recipient")
    if item["role"] == "assistant" and called not in ("", "assistant", "all", "user"):
        call = make_call(called.removeprefix("functions."), said)
        return {**message, "content": "", "tool_calls": [call]}
    if item["role"] == "assistant" and item["channel"] == "analysis":
        return make_thought(said)
    return message


def is_task(item: Row) -> bool:
    """Whether an item may be the task before smolagents' steps; it is one where such a step is beside it."""
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
        message, author = item.get("content"), item.get("author")
        if not isinstance(message, dict) or not isinstance(author, str) or not isinstance(message.get("parts"), list):
            return None
        message = {"role": "user" if author == "user" else "model", **message}
    role = message.get("role")
    if not isinstance(role, str) or not message.keys() & {"content", "parts", "tool_calls", "toolCalls"}:
        return None
    if role == "thinking":
        return [make_thought(message.get("content"))]
    return [_rename_camel(message), *_read_call_states(item)]


def _read_call_states(item: Row) -> list[Row]:
    """What came of the calls of one of Continue's messages."""
    found: list[Row] = []
    for state in get_dicts(item, "toolCallStates"):
        output = state.get("output")
        if isinstance(output, (str, list)) and output:
            texts = [output] if isinstance(output, str) else [str(get_value(each, "content") or "") for each in output]
            found.append(make_result(state.get("toolCallId"), "\n".join(texts)))
    return found


def _read_autogen(item: Row) -> list[Row] | None:
    kind, content = get_text(item, "type"), item.get("content")
    if kind not in _AUTOGEN or not isinstance(item.get("source"), str):
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
    if kind == "ToolCallSummaryMessage":  # the results once more, in the agent's name
        return []
    return [{"role": "user" if item["source"] in _PERSONS else "assistant", "content": content}]


def _read_pydantic_ai(item: Row) -> list[Row] | None:
    parts = item.get("parts")
    if item.get("kind") not in ("request", "response") or not isinstance(parts, list):
        return None
    found: list[Row] = []
    said: list[Row] = []
    for part in parts:
        kind, content = get_value(part, "part_kind"), get_value(part, "content")
        if kind == "system-prompt":
            found.append({"role": "system", "content": content})
        elif kind == "user-prompt":
            found.append({"role": "user", "content": content})
        elif kind in ("tool-return", "retry-prompt"):
            found.append(make_result(get_value(part, "tool_call_id"), content, kind == "retry-prompt"))
        elif kind in ("tool-call", "builtin-tool-call"):
            called = {"type": "tool_use", "id": part.get("tool_call_id"), "name": part.get("tool_name")}
            said.append({**called, "input": part.get("args")})
        elif kind == "thinking":
            said.append({"type": "thinking", "thinking": str(content or "")})
        else:
            said.append({"type": kind or "unknown", "text": content} if isinstance(content, str) else part)
    return [*found, {"role": "assistant", "content": said}] if said else found


def _read_semantic_kernel(item: Row) -> list[Row] | None:
    role, pieces = get_value(item.get("Role"), "Label", item.get("Role")), item.get("Items")
    if not isinstance(role, str) or not isinstance(pieces, list):
        return None
    said: list[Any] = []
    results: list[Row] = []
    for piece in pieces:
        kind = get_value(piece, "$type")
        if kind == "FunctionCallContent":
            name = piece.get("FunctionName")
            if name and piece.get("PluginName"):
                name = f"{piece['PluginName']}-{name}"
            said.append({"type": "tool_use", "id": piece.get("Id"), "name": name, "input": piece.get("Arguments")})
        elif kind == "FunctionResultContent":
            results.append(make_result(piece.get("CallId"), piece.get("Result")))
        else:
            is_text = kind == "TextContent" and isinstance(piece.get("Text"), str)
            said.append({"type": "text", "text": piece["Text"]} if is_text else piece)
    given = {result["content"] for result in results}  # the kernel writes a result as a text too
    said = [each for each in said if get_text(each, "type") != "text" or get_text(each, "text") not in given]
    return [*results, *([{"role": role, "content": said}] if said or not results else [])]


def _read_pair(item: Row) -> list[Row] | None:
    """What a person or tools said, and the reply to it."""
    asked, said = get_value(item.get("user"), "content"), item.get("assistant")
    if not isinstance(asked, dict) or not isinstance(said, dict):
        return None
    found: list[Row] = []
    if isinstance(prompt := get_value(asked.get("Prompt"), "prompt"), str):
        found.append({"role": "user", "content": prompt})
    for result in get_list(asked.get("ToolUseResults"), "tool_use_results"):
        texts = [str(get_value(each, "Text") or encode_json(each)) for each in get_list(result, "content")]
        is_error = get_value(result, "status") == "Error"
        found.append(make_result(get_value(result, "tool_use_id"), "\n".join(texts), is_error))
    reply = said.get("ToolUse") or said.get("Response")
    calls = [make_call(each.get("name"), each.get("args"), each.get("id")) for each in get_dicts(reply, "tool_uses")]
    found.append(
        {"role": "assistant", "content": get_value(reply, "content"), **({"tool_calls": calls} if calls else {})}
    )
    return found


def _read_smolagents(item: Row) -> list[Row] | None:
    """A step of smolagents: what the model wrote, the call in it, and what was observed."""
    if not is_step(item):
        return None
    calls: list[Any] | None = item.get("tool_calls")
    found: list[Row] = [{"role": "assistant", "content": "" if calls else str(item.get("model_output") or "")}]
    if calls:
        written = str(item.get("model_output") or "")
        found[0]["reasoning"] = written.partition("<code>")[0].partition("```")[0].strip() or None
        found[0]["tool_calls"] = [_read_step_call(call) for call in calls]
    error = get_value(item.get("error"), "message", item.get("error"))
    observed = item.get("observations") or error
    if observed and calls:
        found.append(make_result(get_value(calls[0], "id"), observed, bool(error)))
    return found


def _read_step_call(call: Any) -> Any:
    function = get_value(call, "function", call)
    given = get_value(function, "arguments")
    if isinstance(given, str) and get_value(function, "name") == "python_interpreter":
        given = {"code": given}
    return make_call(get_value(function, "name"), given, get_value(call, "id"))


def get_speaker(item: Row) -> str:
    """Who speaks in a turn of a dialogue, in small letters; empty where it does not say."""
    name = item.get("sender", item.get("speaker"))
    return name.lower() if isinstance(name, str) else ""


def _read_speech(item: Row) -> list[Row] | None:
    """A turn of a dialogue: the export of Claude's chats, MultiWOZ and its kin."""
    role = _SPEAKERS.get(get_speaker(item))
    content = next((item[key] for key in _SPOKEN if item.get(key)), None)
    if content is None and item.keys() & {"tool_calls", *_SPOKEN}:
        content = ""
    if role is None or not isinstance(content, str | list):
        return None
    more = {key: value for key, value in item.items() if key not in _OF_SPEECH}
    return [_add_attached({"role": role, "content": content, **more})]


def _add_attached(message: Row) -> Row:
    """The message with the texts of the files that were attached to it (Claude's export), as the model saw them."""
    attached = get_list(message, "attachments")
    texts = [(get_text(each, "file_name"), get_text(each, "extracted_content")) for each in attached]
    blocks = [{"type": "text", "text": f"\n\n{name}\n{text}"} for name, text in texts if text]
    if not blocks:
        return message
    kept = [
        {k: v for k, v in each.items() if k != "extracted_content"} if isinstance(each, dict) else each
        for each in attached
    ]
    content = message["content"]
    said = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return {**message, "content": [*said, *blocks], "attachments": kept}


_READERS = (
    _read_speech,
    _read_smolagents,
    _read_autogen,
    _read_pydantic_ai,
    _read_semantic_kernel,
    _read_pair,
    _read_envelope,
)
