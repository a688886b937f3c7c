"""Messages that have no role of their own, as toolkits and programs keep them, made into messages that have one.

Known are the steps of smolagents, AutoGen's events, the requests and responses of Pydantic AI, Semantic Kernel's
`Items`, the pairs of Amazon Q and Kiro, and a message in an envelope: Continue's, the events of Google's ADK, the lines
of Goose, Droid and others.
"""

from __future__ import annotations

from typing import Any

from foretrace.encodings.json_arguments import encode_json

Row = dict[str, Any]

_SAID = frozenset({"TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage", "StructuredMessage"})
_AUTOGEN = _SAID | {"ThoughtEvent", "ToolCallRequestEvent", "ToolCallExecutionEvent", "ToolCallSummaryMessage"}
_PERSONS = frozenset({"user", "user_proxy", "human"})
_CAMEL = {"toolCalls": "tool_calls", "toolCallId": "tool_call_id"}


def read_toolkit(item: Row) -> list[Row] | None:
    """The messages in an item without a role; `None` where it is none of these."""
    if "role" in item or "from" in item:
        return [_rename_camel(item)] if _CAMEL.keys() & item.keys() else None
    for read in _READERS:
        if (found := read(item)) is not None:
            return found
    return None


def _rename_camel(item: Row) -> Row:
    return {_CAMEL.get(key, key): value for key, value in item.items()}


def _read_envelope(item: Row) -> list[Row] | None:
    message = item.get("message")
    if not isinstance(message, dict):
        message, author = item.get("content"), item.get("author")
        if not isinstance(message, dict) or not isinstance(author, str) or not isinstance(message.get("parts"), list):
            return None
        message = {"role": "user" if author == "user" else "model", **message}
    role = message.get("role")
    if not isinstance(role, str) or not message.keys() & {"content", "parts", "tool_calls", "toolCalls"}:
        return None
    if role == "thinking":
        return [_make_thought(message.get("content"))]
    return [_rename_camel(message), *_read_call_states(item)]


def _read_call_states(item: Row) -> list[Row]:
    """What came of the calls of one of Continue's messages."""
    found: list[Row] = []
    for state in item.get("toolCallStates") or ():
        output = state.get("output") if isinstance(state, dict) else None
        if isinstance(output, (str, list)) and output:
            texts = [output] if isinstance(output, str) else [str(_get(each, "content") or "") for each in output]
            found.append({"role": "tool", "content": "\n".join(texts), "tool_call_id": state.get("toolCallId")})
    return found


def _read_autogen(item: Row) -> list[Row] | None:
    kind, content = item.get("type"), item.get("content")
    if kind not in _AUTOGEN or not isinstance(item.get("source"), str):
        return None
    if kind == "ToolCallRequestEvent" and isinstance(content, list):
        return [{"role": "assistant", "content": "", "tool_calls": content}]
    if kind == "ToolCallExecutionEvent" and isinstance(content, list):
        return [_make_result(each, _get(each, "call_id"), _get(each, "content")) for each in content]
    if kind == "ThoughtEvent":
        return [_make_thought(content)]
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
        kind, content = _get(part, "part_kind"), _get(part, "content")
        if kind == "system-prompt":
            found.append({"role": "system", "content": content})
        elif kind == "user-prompt":
            found.append({"role": "user", "content": content})
        elif kind in ("tool-return", "retry-prompt"):
            call_id, failed = _get(part, "tool_call_id"), {"is_error": True} if kind == "retry-prompt" else {}
            found.append(_make_result({}, call_id, content) | failed)
        elif kind in ("tool-call", "builtin-tool-call"):
            called = {"type": "tool_use", "id": part.get("tool_call_id"), "name": part.get("tool_name")}
            said.append({**called, "input": part.get("args")})
        elif kind == "thinking":
            said.append({"type": "thinking", "thinking": str(content or "")})
        else:
            said.append({"type": kind or "unknown", "text": content} if isinstance(content, str) else part)
    return [*found, {"role": "assistant", "content": said}] if said else found


def _read_semantic_kernel(item: Row) -> list[Row] | None:
    role, pieces = _get(item.get("Role"), "Label", item.get("Role")), item.get("Items")
    if not isinstance(role, str) or not isinstance(pieces, list):
        return None
    said: list[Row] = []
    results: list[Row] = []
    for piece in pieces:
        kind = _get(piece, "$type")
        if kind == "FunctionCallContent":
            name = "-".join(filter(None, (piece.get("PluginName"), str(piece.get("FunctionName")))))
            said.append({"type": "tool_use", "id": piece.get("Id"), "name": name, "input": piece.get("Arguments")})
        elif kind == "FunctionResultContent":
            results.append(_make_result({}, piece.get("CallId"), piece.get("Result")))
        else:
            said.append({"type": "text", "text": _get(piece, "Text")} if kind == "TextContent" else piece)
    return results or [{"role": role, "content": said}]


def _read_pair(item: Row) -> list[Row] | None:
    """What a person or tools said, and the reply to it."""
    asked, said = _get(item.get("user"), "content"), item.get("assistant")
    if not isinstance(asked, dict) or not isinstance(said, dict):
        return None
    found: list[Row] = []
    if isinstance(prompt := _get(asked.get("Prompt"), "prompt"), str):
        found.append({"role": "user", "content": prompt})
    for result in _get(asked.get("ToolUseResults"), "tool_use_results") or ():
        texts = [str(_get(each, "Text") or encode_json(each)) for each in _get(result, "content") or ()]
        failed = {"is_error": True} if _get(result, "status") == "Error" else {}
        found.append(_make_result({}, _get(result, "tool_use_id"), "\n".join(texts)) | failed)
    reply = said.get("ToolUse") or said.get("Response")
    calls = [{"id": c.get("id"), "function": {"name": c.get("name"), "arguments": c.get("args")}}
             for c in _get(reply, "tool_uses") or () if isinstance(c, dict)]  # fmt: skip
    found.append({"role": "assistant", "content": _get(reply, "content"), **({"tool_calls": calls} if calls else {})})
    return found


def _read_smolagents(item: Row) -> list[Row] | None:
    """A step of smolagents: what the model wrote, the call in it, and what was observed."""
    if isinstance(item.get("task"), str) and item.keys() <= {"task", "task_images"}:
        return [{"role": "user", "content": item["task"]}]
    calls = item.get("tool_calls")
    if not isinstance(item.get("step_number"), int) or not isinstance(calls, list | None) or "observations" not in item:
        return None
    found: list[Row] = [{"role": "assistant", "content": "" if calls else str(item.get("model_output") or "")}]
    if calls:
        written = str(item.get("model_output") or "")
        found[0]["reasoning"] = written.partition("<code>")[0].partition("```")[0].strip() or None
        found[0]["tool_calls"] = [_read_step_call(call) for call in calls]
    error = _get(item.get("error"), "message", item.get("error"))
    observed = item.get("observations") or error
    if observed and calls:
        found.append(_make_result({"is_error": bool(error)}, _get(calls[0], "id"), observed))
    return found


def _read_step_call(call: Any) -> Any:
    function = _get(call, "function", call)
    given = _get(function, "arguments")
    if isinstance(given, str) and _get(function, "name") == "python_interpreter":
        given = {"code": given}
    return {"id": _get(call, "id"), "function": {"name": _get(function, "name"), "arguments": given}}


def _make_thought(text: Any) -> Row:
    """An item of the Responses API, which joins the message that follows."""
    return {"type": "reasoning", "summary": [{"text": str(text or "")}]}


def _make_result(more: Any, call_id: Any, value: Any) -> Row:
    result = {"role": "tool", "content": value if isinstance(value, str) else encode_json(value)}
    result["tool_call_id"] = call_id
    return result | ({"is_error": True} if _get(more, "is_error") is True else {})


def _get(value: Any, key: str, other: Any = None) -> Any:
    return value.get(key, other) if isinstance(value, dict) else other


_READERS = (_read_smolagents, _read_autogen, _read_pydantic_ai, _read_semantic_kernel, _read_pair, _read_envelope)
