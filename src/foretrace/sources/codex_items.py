"""Codex's records of single calls: the call, its output with the runner's measurements, and execution events."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.core.trace import Part, ToolCall
from foretrace.sources.content_blocks import read_blocks
from foretrace.sources.conversation import make_call
from foretrace.sources.json_values import get_dict, get_dicts, get_list, get_number, get_text

_WALL_TIME = re.compile(r"^Wall time:? ([\d.]{1,20}) seconds", re.MULTILINE)
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,9})", re.MULTILINE)
_RUNNING = re.compile(r"^(?:Process running with session ID|Script running with cell ID) (\S{1,64})", re.MULTILINE)
_HEADER = 600
"""Characters at the start of an output that may hold its header."""

CALLS = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call", "tool_call",
    "image_generation_call",
})  # fmt: skip
OUTPUTS = frozenset({
    "function_call_output", "custom_tool_call_output", "tool_search_output", "tool_result", "function_result",
    "local_shell_call_output",
})  # fmt: skip
EXECUTIONS = frozenset({
    "exec_command_end", "mcp_tool_call_end", "patch_apply_end", "web_search_end", "dynamic_tool_call_response",
    "image_generation_end", "view_image_tool_call", "collab_agent_spawn_end", "collab_agent_interaction_end",
    "collab_waiting_end", "collab_close_end", "collab_resume_end",
})  # fmt: skip
"""Events that say how a call was executed."""
EXECUTION_ITEMS = frozenset({
    "commandexecution", "filechange", "mcptoolcall", "dynamictoolcall", "collabagenttoolcall", "websearch", "extension",
    "imageview", "imagegeneration", "subagentactivity", "sleep",
})  # fmt: skip
"""The types of `item_completed` items that say the same, in lower case without `_`."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a call."""

    text: str
    parts: tuple[Part, ...] = ()
    seconds: float | None = None
    """Duration measured by the runner; the call may have returned before the process ended."""
    exit_code: int | None = None
    running: str | None = None
    """Id of the session in which the process continues; `write_stdin` polls it."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How a call, or a part of one, was executed."""

    id: str
    kind: str
    name: str
    arguments: Any
    output: Any = None
    seconds: float | None = None
    exit_code: int | None = None
    failed: bool | None = None
    by_user: bool = False
    approved_by_person: bool = False


def make_codex_call(payload: dict[str, Any]) -> ToolCall:
    """The call in a record of one of the types in `CALLS`."""
    kind = get_text(payload, "type")
    function = get_dict(payload, "function")
    name = get_text(payload, "name") or get_text(function, "name")
    arguments = payload.get("arguments", function.get("arguments"))
    if kind == "custom_tool_call":
        arguments = {"input": payload.get("input") or ""}
    elif kind in ("local_shell_call", "web_search_call"):
        name = name or kind.removesuffix("_call")
        arguments = {k: v for k, v in get_dict(payload, "action").items() if k != "type" and v is not None}
    elif kind in ("tool_search_call", "image_generation_call"):
        name = name or kind.removesuffix("_call")
        arguments = arguments or {"prompt": payload["revised_prompt"]} if "revised_prompt" in payload else arguments
    extra = {key: payload[key] for key in ("namespace", "summary") if get_text(payload, key)}
    return make_call(get_text(payload, "call_id", "id"), name, arguments, **extra)


def read_output(payload: dict[str, Any]) -> Output:
    """The output in a record of one of the types in `OUTPUTS`."""
    value: Any = payload.get("output", payload.get("result", payload.get("tools")))
    metadata: dict[str, Any] = {}
    if isinstance(value, str) and value.startswith("{") and '"metadata"' in value:
        value, metadata = _unwrap(value)
    elif isinstance(value, dict):
        metadata = get_dict(value, "metadata")
        inner = [value[key] for key in ("content", "output") if key in value]
        inner = inner or [value[key] for key in ("stdout", "stderr") if get_text(value, key)]
        code = get_number(value, "exitCode", "exit_code")
        metadata = {"exit_code": code} | metadata if code is not None else metadata
        value = inner[0] if len(inner) == 1 else "\n".join(map(str, inner)) if inner else value
    text, parts = read_blocks(value)
    head = text[:_HEADER]
    code = get_number(metadata, "exit_code")
    if code is None and (match := _EXIT_CODE.search(head)):
        code = int(match[1])
    running = _RUNNING.search(head)
    return Output(
        text=text,
        parts=parts,
        seconds=_find_seconds(head, metadata),
        exit_code=None if code is None else int(code),
        running=running[1] if running else None,
    )


def read_execution(payload: dict[str, Any]) -> Execution | None:
    """The contents of an event with a type in `EXECUTIONS`, or of an item in `EXECUTION_ITEMS`; `None` for others."""
    item = get_dict(payload, "item") if get_text(payload, "type") == "item_completed" else payload
    kind = get_text(item, "type")
    if kind not in EXECUTIONS and kind.replace("_", "").lower() not in EXECUTION_ITEMS:
        return None
    call = get_dict(item, "invocation") or item
    name = get_text(call, "tool", "name")
    if server := get_text(call, "server"):
        name = f"{server}.{name}"
    command, changes, query = get_list(item, "command"), get_dict(item, "changes"), get_text(item, "query")
    arguments: Any = call.get("arguments")
    output: Any = None
    if command:
        name, arguments = name or "shell", {"command": command}
        output = item.get("aggregated_output", item.get("aggregatedOutput", item.get("stdout")))
    elif changes or "change" in kind.lower() or "patch" in kind:
        name, arguments, output = "apply_patch", {"changes": changes}, item.get("stdout")
    elif query:
        name, arguments, output = name or "web_search", {"query": query}, item.get("results")
    code = get_number(item, "exit_code", "exitCode")
    status = get_text(item, "status").lower()
    return Execution(
        id=get_text(item, "call_id", "callId", "id"),
        kind=kind,
        name=name or kind,
        arguments=arguments,
        output=_find_result(item) if output is None else output,
        seconds=_read_duration(item),
        exit_code=None if code is None else int(code),
        failed=code != 0 if code is not None else status == "failed" if status in ("failed", "completed") else None,
        by_user="user" in get_text(item, "source").lower(),
        approved_by_person=item.get("auto_approved", item.get("autoApproved")) is False,
    )


def _find_result(item: dict[str, Any]) -> Any:
    result = item.get("result")
    for key in ("Ok", "Err"):
        if isinstance(result, dict) and key in result:
            result = result[key]
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        return result["content"]
    return result if result is not None else get_dicts(item, "content_items") or None


def _read_duration(item: dict[str, Any]) -> float | None:
    duration = get_dict(item, "duration")
    seconds = get_number(duration, "secs")
    if seconds is not None:
        return seconds + (get_number(duration, "nanos") or 0) / 1e9 or None
    milliseconds = get_number(item, "duration_ms", "durationMs")
    return milliseconds / 1000 if milliseconds else None


def _find_seconds(head: str, metadata: dict[str, Any]) -> float | None:
    """The duration measured by the runner. It writes 0 for what it did not measure: no process takes no time."""
    match = _WALL_TIME.search(head)
    try:
        return (float(match[1]) if match else get_number(metadata, "duration_seconds")) or None
    except ValueError:
        return None


def _unwrap(value: str) -> tuple[Any, dict[str, Any]]:
    try:
        whole = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return value, {}
    if not isinstance(whole, dict) or "output" not in whole or "metadata" not in whole:
        return value, {}
    return whole["output"], get_dict(whole, "metadata")
