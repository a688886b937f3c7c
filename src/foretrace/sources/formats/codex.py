"""Sessions of Codex: ~/.codex/sessions/**/rollout-*.jsonl and .jsonl.zst, in every version of the format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Parent, ToolCall, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_blocks
from foretrace.sources.conversation import make_call, read_time
from foretrace.sources.json_values import as_dict, decode_json, get_dict, get_dicts, get_list, get_number, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import NO_TYPE, Session, is_injected

_ENVELOPES = frozenset({
    "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
    "inter_agent_communication_metadata",
})  # fmt: skip
_CALLS = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call", "tool_call",
    "image_generation_call",
})  # fmt: skip
_OUTPUTS = frozenset({
    "function_call_output", "custom_tool_call_output", "tool_search_output", "tool_result", "function_result",
    "local_shell_call_output",
})  # fmt: skip
_ITEMS = _CALLS | _OUTPUTS | {"message", "reasoning", "agent_message", "compaction"}
_EXECUTIONS = frozenset({
    "exec_command_end", "mcp_tool_call_end", "patch_apply_end", "web_search_end", "dynamic_tool_call_response",
    "image_generation_end", "view_image_tool_call", "collab_agent_spawn_end", "collab_agent_interaction_end",
    "collab_waiting_end", "collab_close_end", "collab_resume_end",
})  # fmt: skip
"""Events that say how a call was executed."""
_EXECUTION_ITEMS = frozenset({
    "commandexecution", "filechange", "mcptoolcall", "dynamictoolcall", "collabagenttoolcall", "websearch", "extension",
    "imageview", "imagegeneration", "subagentactivity", "sleep",
})  # fmt: skip
"""The types of `item_completed` items that say the same, in lower case without `_`."""
_NOTED_EVENTS = {
    "error": "errors of the model's API", "stream_error": "errors of the model's API",
    "turn_aborted": "turns that were broken off",
}  # fmt: skip
_PERSON_TOOLS = frozenset({"request_user_input", "request_permissions"})
_WALL_TIME = re.compile(r"^Wall time:? ([\d.]{1,20}) seconds", re.MULTILINE)
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,9})", re.MULTILINE)
_RUNNING = re.compile(r"^(?:Process running with session ID|Script running with cell ID) \S", re.MULTILINE)
_HEADER = 600
"""Characters at the start of an output that may hold its header."""


class Codex:
    """A rollout is one trace. Response items are the conversation; events repeat them and add times."""

    name = "codex"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By envelopes with a type, a `payload` and a timestamp."""
        for number, record in enumerate(head.records or (head.first,), 1):
            kind = get_text(record, "type")
            if kind in _ENVELOPES and isinstance(record.get("payload"), dict) and "timestamp" in record:
                return f"line {number}: type {kind} with a payload"
        return None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        rollout = _Rollout(account)
        for number, record in account.drop_unread(read_records(path)):
            rollout.take(number, record)
        yield rollout.make(path)


class _Item(msgspec.Struct):
    number: int
    at: float | None
    kind: str
    payload: dict[str, Any]
    record: dict[str, Any]
    """The payload, in its envelope if it has one."""
    is_event: bool = False


class _Execution(msgspec.Struct):
    id: str
    name: str
    arguments: Any
    output: Any
    seconds: float | None
    exit_code: int | None
    failed: bool | None
    by_user: bool
    by_approval: bool
    """Whether a person had to approve it."""


class _Rollout(Session):
    """Takes the records of a file, counting all but items and facts, which are counted when they are used; then makes
    the conversation of them, since a person may go back."""

    def __init__(self, account: Account) -> None:
        super().__init__(account, Codex.name, "codex", person_tools=_PERSON_TOOLS)
        self._items: list[_Item] = []
        self._facts: list[_Item] = []
        """Records about the session as a whole."""
        self._meta: dict[str, Any] = {}
        self._tokens: float | None = None
        self._measured: dict[str, _Execution] = {}
        self._open: dict[str, str] = {}
        """Names of the calls without a result, by id."""
        self._running: set[str] = set()
        """Calls that came back before their process ended."""
        self._exec: ToolCall | None = None
        """The latest `exec` call of code mode, a program that calls tools."""

    def take(self, number: int, record: dict[str, Any]) -> None:
        kind, payload = get_text(record, "type"), record.get("payload")
        at = read_time(record.get("timestamp", record.get("created_at")))
        if kind not in _ENVELOPES or not isinstance(payload, dict):  # early versions have no envelopes
            self.types[kind or NO_TYPE] += 1
            if kind in ("message", "") and get_text(record, "role"):
                self.note_model(get_text(record, "model"))
                said = {**record, "content": record.get("content", record.get("message"))}
                self._take_item(_Item(number, at, "message", said, record))
            else:
                self._take_item(_Item(number, at, kind, record, record))
            return
        inner = get_text(payload, "type")
        self.types[f"{kind} {inner}".strip()] += 1
        if kind == "response_item":
            self._take_item(_Item(number, at, inner or "message" * ("role" in payload), payload, record))
        elif kind == "event_msg":
            self._take_event(_Item(number, at, inner, payload, record, is_event=True))
        elif kind == "compacted":
            self._items.append(_Item(number, at, kind, payload, record))
        elif kind == "turn_context" or (kind == "session_meta" and not self._meta):
            self._facts.append(_Item(number, at, kind, payload, record))
            self.folder = self.folder or get_text(payload, "cwd")
            if kind == "session_meta":
                self._read_meta(payload)
            else:
                self.note_model(get_text(payload, "model"))
        else:
            self.account.ignore("session_meta of another session" if kind == "session_meta" else kind)

    def _take_item(self, item: _Item) -> None:
        if item.kind in _ITEMS:
            self._items.append(item)
        else:
            self.skip(item.kind, item.kind == "ghost_snapshot")

    def _take_event(self, item: _Item) -> None:
        """Keep events that say how calls were executed; most others repeat response items."""
        kind, payload = item.kind, item.payload
        if kind == "item_completed":  # files have `FileChange`, `fileChange` and `file_change`
            item.kind = get_text(get_dict(payload, "item"), "type")
            is_kept = item.kind.replace("_", "").lower() in _EXECUTION_ITEMS
        else:
            is_kept = kind in _EXECUTIONS or kind == "token_count"
        if is_kept:
            self._items.append(item)
        elif kind in ("thread_rolled_back", "thread_name_updated"):
            self._facts.append(item)
            self.note_title(get_text(payload, "thread_name"))
            self._roll_back(int(get_number(payload, "num_turns") or 0))
        else:
            self.account.ignore(item.kind or NO_TYPE)
            self.account.note(_NOTED_EVENTS.get(kind, ""), kind in _NOTED_EVENTS)

    def _read_meta(self, payload: dict[str, Any]) -> None:
        self._meta = payload
        git = get_dict(payload, "git")
        self.id = get_text(payload, "id")
        self.remote = get_text(git, "repository_url", "repositoryUrl")
        self.version = get_text(payload, "cli_version")
        self.created_at = get_text(payload, "timestamp") or None
        self.tools = _read_tools(payload)
        spawn = get_dict(get_dict(get_dict(payload, "source"), "subagent"), "thread_spawn")
        parent = get_text(payload, "parent_thread_id") or get_text(spawn, "parent_thread_id")
        self.parent = Parent(key=f"{Codex.name}@{parent}") if parent else None
        if branch := get_text(git, "branch"):
            self.extra["git_branch"] = branch

    def _roll_back(self, turns: int) -> None:
        """Remove the last turns: the user went back, and what follows does not build on them."""
        prompts = [index for index, item in enumerate(self._items) if _is_prompt(item)]
        if turns > 0 and prompts:
            start = prompts[-min(turns, len(prompts))]
            self.account.ignore("rolled back", len(self._items) - start)
            self.account.note("abandoned branches")
            del self._items[start:]

    def make(self, path: Path) -> Trace | Drop:
        self.id = self.id or path.name.partition(".jsonl")[0]
        base = get_text(get_dict(self._meta, "base_instructions"), "text")
        if text := base or get_text(self._meta, "instructions"):
            self.add_system(text, 0)
        for fact in self._facts:
            self._use_item(fact)
        for item in self._items:
            if item.is_event:
                self._add_event(item)
            else:
                self._use_item(item)
                self._add_item(item)
        return self.make_trace(path)

    def _use_item(self, item: _Item, call: str = "") -> None:
        self.use(item.record, "payload" if item.payload is item.record.get("payload") else "", call=call)

    def _add_item(self, item: _Item) -> None:
        kind, payload = item.kind, item.payload
        if kind == "message":
            self._add_message(item)
        elif kind == "reasoning":
            blocks = get_dicts(payload, "summary") + get_dicts(payload, "content")
            text = "\n\n".join(filter(None, (get_text(block, "text") for block in blocks)))
            self.account.note("thoughts that are not readable", not text and bool(payload.get("encrypted_content")))
            self.add_part(item.number, at=item.at, reasoning=text)
        elif kind in _CALLS:
            self._add_call(item)
        elif kind in _OUTPUTS:
            self._add_output(item)
        else:  # a summary, or what another agent says
            said = [block for block in get_dicts(payload, "content") if "encrypted_content" not in block]
            text = read_blocks(said)[0] if kind == "agent_message" else get_text(payload, "message")
            self.add_user(text, item.number, author="environment", at=item.at, extra={"kind": kind})
            self.reply += 1

    def _add_message(self, item: _Item) -> None:
        role, content = get_text(item.payload, "role"), item.payload.get("content")
        if role == "user":
            self.reply += 1
            kinds = get_list(get_dict(item.payload, "internal_chat_message_metadata_passthrough"), "content_item_kinds")
            if not isinstance(content, list) or len(kinds) != len(content):
                self.add_content(content, item.number, at=item.at)
                return
            for block, kind in zip(content, kinds, strict=True):
                author = "user" if isinstance(kind, str) and kind.startswith("user.") else "environment"
                self.add_content([block], item.number, at=item.at, author=author)
            return
        text, parts = read_blocks(content)
        if role == "assistant":
            self.add_part(item.number, at=item.at, text=text, parts=parts)
        else:
            self.add_system(text, item.number, raw_role=None if role == "system" else role or None, parts=parts)

    def _add_call(self, item: _Item) -> None:
        call = _read_call(item.payload)
        self._open[call.id] = call.name
        if call.name == "exec" and item.kind == "custom_tool_call":
            self._exec = call
            call.extra["commands"] = []
        self.add_part(item.number, at=item.at, calls=[call])
        if item.kind == "image_generation_call" and get_text(item.payload, "result"):
            image = {"type": "image", "data": item.payload["result"], "media_type": "image/png"}
            self._add_answer(item, call.id, [image])

    def _add_answer(self, item: _Item, call_id: str, content: Any, **more: Any) -> None:
        text, parts = read_blocks(content)
        self.add_result(call_id, text, item.number, at=item.at, parts=parts, **more)
        self._open.pop(call_id, None)
        self.reply += 1

    def _add_output(self, item: _Item) -> None:
        value, metadata = _open_output(item.payload)
        call_id = get_text(item.payload, "call_id")
        head = read_blocks(value)[0][:_HEADER]
        code, seconds = get_number(metadata, "exit_code"), get_number(metadata, "duration_seconds")
        if code is None and (match := _EXIT_CODE.search(head)):
            code = int(match[1])
        if match := _WALL_TIME.search(head):
            seconds = float(match[1]) if match[1].count(".") < 2 and match[1] != "." else None
        seconds = seconds or None  # the runner writes 0 for what it did not measure
        if _RUNNING.search(head):
            self._running.add(call_id)
        if (ran := self._measured.get(call_id)) is not None:
            if ran.by_approval and seconds is None and ran.seconds is None:
                self.wait_for_person(call_id)
            code = ran.exit_code if code is None else code
            # An execution lasts as long as its process; a call that returns before that is shorter.
            if ran.seconds is not None and call_id not in self._running:
                seconds = ran.seconds
        failed = code != 0 if code is not None else None if ran is None else ran.failed
        extra = {} if code is None else {"exit_code": int(code)}
        self._add_answer(item, call_id, value, is_error=failed, seconds=seconds, extra=extra)

    def _add_event(self, item: _Item) -> None:
        account = self.account
        if item.kind == "token_count":  # it ends a reply of the model, unless it repeats the one before
            account.ignore(item.kind)
            tokens = get_number(get_dict(get_dict(item.payload, "info"), "total_token_usage"), "total_tokens")
            if tokens is not None and tokens != self._tokens:
                self.reply += self._tokens is not None
                self._tokens = tokens
            return
        ran = _read_execution(item.payload, item.kind)
        call_id = ran.id
        if not self.has_call(call_id) and len(self._open) == 1 and "exec" not in self._open.values():
            call_id = next(iter(self._open))  # an item whose id is not that of its call
        if ran.by_user and not self.has_call(ran.id):
            account.ignore(f"{item.kind} of the user")
        elif self.has_call(call_id):
            self._use_item(item, call_id)
            self._measured[call_id] = ran
            if item.kind in ("web_search_end", "WebSearch") and call_id in self._open:
                self._add_answer(item, call_id, ran.output or "", seconds=ran.seconds)
            elif ran.seconds is not None and call_id not in {*self._open} | self._running:
                self.time_call(call_id, ran.seconds)
        elif self._exec is not None:
            self._use_item(item, self._exec.id)
            facts = {"name": ran.name, "arguments": ran.arguments, "exit_code": ran.exit_code, "seconds": ran.seconds}
            self._exec.extra["commands"].append({name: value for name, value in facts.items() if value is not None})
        else:
            account.ignore(f"{item.kind} without its call")


def _is_prompt(item: _Item) -> bool:
    if item.is_event or item.kind != "message" or get_text(item.payload, "role") != "user":
        return False
    content = item.payload.get("content")
    blocks = content if isinstance(content, list) else [content]
    return any(not is_injected(text) for block in blocks if (text := read_blocks([block])[0]))


def _read_tools(meta: dict[str, Any]) -> Any:
    """Tools that the client provides; no others are recorded."""
    tools: list[dict[str, Any]] = []
    given = meta.get("dynamic_tools")
    for group in given if isinstance(given, list) else [given]:
        for tool in get_dicts(group, "tools") or ([group] if isinstance(group, dict) else []):
            tools.append({**tool, "parameters": tool.get("inputSchema", tool.get("parameters"))})
    return read_tool_specs(tools)


def _read_call(payload: dict[str, Any]) -> ToolCall:
    kind, function = get_text(payload, "type"), get_dict(payload, "function")
    name = get_text(payload, "name") or get_text(function, "name") or kind.removesuffix("_call")
    arguments = payload.get("arguments", function.get("arguments"))
    if kind == "custom_tool_call":
        arguments = {"input": payload.get("input") or ""}
    elif kind in ("local_shell_call", "web_search_call"):
        arguments = {k: v for k, v in get_dict(payload, "action").items() if k != "type" and v is not None}
    elif "revised_prompt" in payload:
        arguments = arguments or {"prompt": payload["revised_prompt"]}
    extra = {key: payload[key] for key in ("namespace", "summary") if get_text(payload, key)}
    return make_call(get_text(payload, "call_id", "id"), name, arguments, **extra)


def _open_output(payload: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The text or blocks in an output, and what the runner measured."""
    value: Any = payload.get("output", payload.get("result", payload.get("tools")))
    if isinstance(value, str) and value.startswith("{") and '"metadata"' in value:
        whole = as_dict(decode_json(value))
        return (whole["output"], get_dict(whole, "metadata")) if {"output", "metadata"} <= whole.keys() else (value, {})
    if not isinstance(value, dict):
        return value, {}
    code = get_number(value, "exitCode", "exit_code")
    metadata = ({} if code is None else {"exit_code": code}) | get_dict(value, "metadata")
    inner = [value[key] for key in ("content", "output") if key in value]
    inner = inner or [value[key] for key in ("stdout", "stderr") if get_text(value, key)]
    return (inner[0] if len(inner) == 1 else "\n".join(map(str, inner)) if inner else value), metadata


def _read_execution(payload: dict[str, Any], kind: str) -> _Execution:
    item = get_dict(payload, "item") if get_text(payload, "type") == "item_completed" else payload
    call = get_dict(item, "invocation") or item
    name = ".".join(filter(None, (get_text(call, "server"), get_text(call, "tool", "name"))))
    command, changes, query = get_list(item, "command"), get_dict(item, "changes"), get_text(item, "query")
    arguments, output = call.get("arguments"), _find_result(item)
    if command:
        name, arguments = name or "shell", {"command": command}
    elif changes or "change" in kind.lower() or "patch" in kind:
        name, arguments = "apply_patch", {"changes": changes}
    elif query:
        name, arguments, output = name or "web_search", {"query": query}, item.get("results") or output
    duration, milliseconds = get_dict(item, "duration"), get_number(item, "duration_ms", "durationMs")
    seconds = (milliseconds or 0) / 1000
    if (whole := get_number(duration, "secs")) is not None:
        seconds = whole + (get_number(duration, "nanos") or 0) / 1e9
    code = get_number(item, "exit_code", "exitCode")
    stated = {"failed": True, "completed": False}.get(get_text(item, "status").lower())
    return _Execution(
        id=get_text(item, "call_id", "callId", "id"),
        name=name or kind,
        arguments=arguments,
        output=output,
        seconds=seconds or None,
        exit_code=None if code is None else int(code),
        failed=stated if code is None else code != 0,
        by_user="user" in get_text(item, "source").lower(),
        by_approval=item.get("auto_approved", item.get("autoApproved")) is False,
    )


def _find_result(item: dict[str, Any]) -> Any:
    result = item.get("result")
    for key in ("Ok", "Err"):
        result = result[key] if isinstance(result, dict) and key in result else result
    return get_list(result, "content") or result or get_dicts(item, "content_items") or None


PLUGIN = Codex
