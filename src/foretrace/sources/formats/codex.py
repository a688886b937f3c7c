"""Sessions of Codex: ~/.codex/sessions/**/rollout-*.jsonl and .jsonl.zst, in all their vocabularies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Parent, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.codex_items import (
    CALLS,
    EXECUTIONS,
    OUTPUTS,
    Execution,
    make_codex_call,
    read_execution,
    read_output,
)
from foretrace.sources.content_blocks import read_blocks
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.injected_text import is_injected
from foretrace.sources.json_values import get_dict, get_dicts, get_list, get_number, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import Session, add_user_content

_ENVELOPES = frozenset({
    "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
    "inter_agent_communication_metadata",
})  # fmt: skip
_IGNORED_EVENTS = frozenset({
    "task_started", "task_complete", "turn_started", "turn_complete", "turn.completed", "thread_settings_applied",
    "context_compacted", "thread_goal_updated", "entered_review_mode", "exited_review_mode", "undo_completed",
    "guardian_assessment", "dynamic_tool_call_request", "sub_agent_activity", "codex/event/raw_item",
    "account/rateLimits/updated", "agent_reasoning_section_break", "background_event", "plan_update", "turn_diff",
    "shutdown_complete", "session_configured", "item_started", "mcp_tool_call_begin", "exec_command_begin",
    "patch_apply_begin", "web_search_begin", "deprecation_notice", "warning",
})  # fmt: skip
_NOTED_EVENTS = {
    "error": "errors of the model's API", "stream_error": "errors of the model's API",
    "turn_aborted": "turns that were broken off",
}  # fmt: skip
_COPIES = frozenset({
    "user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "UserMessage", "AgentMessage",
    "Reasoning", "Plan", "HookPrompt", "ContextCompaction", "injected_message",
})  # fmt: skip
"""Events that repeat response items."""
_PERSON_TOOLS = frozenset({"request_user_input", "request_permissions"})


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
        """The one session of the file."""
        rollout = _Rollout(path, account)
        talk = _Talk(rollout, account)
        for item in rollout.items:
            talk.add(item)
        yield talk.make_trace()


class _Item(msgspec.Struct):
    number: int
    at: float | None
    kind: str
    payload: dict[str, Any]
    record: dict[str, Any]
    """The payload, in its envelope if it has one."""
    is_event: bool = False


class _Rollout:
    """Reads the records of one file, and counts all but `items` and `facts`, which are counted when they are used."""

    def __init__(self, path: Path, account: Account) -> None:
        self.path = path
        self.account = account
        self.items: list[_Item] = []
        self.meta: dict[str, Any] = {}
        self.facts: list[_Item] = []
        """Records about the session as a whole."""
        self.session = Session(source=Codex.name, agent="codex", id="")
        for number, record in account.drop_unread(read_records(path)):
            self._take(number, record)
        self.session.id = get_text(self.meta, "id") or self.session.id or path.name.partition(".jsonl")[0]

    def _take(self, number: int, record: dict[str, Any]) -> None:
        kind, payload = get_text(record, "type"), record.get("payload")
        at = read_time(record.get("timestamp", record.get("created_at")))
        if kind in _ENVELOPES and isinstance(payload, dict):
            inner = get_text(payload, "type")
            self.session.types[f"{kind} {inner}".strip()] += 1
            if kind == "response_item":
                self._take_item(_Item(number, at, inner or "message" * ("role" in payload), payload, record))
            elif kind == "event_msg":
                self._take_event(_Item(number, at, inner, payload, record, is_event=True))
            else:
                self._take_fact(_Item(number, at, kind, payload, record))
            return
        self.session.types[kind or "(no type)"] += 1
        if kind in ("message", "") and get_text(record, "role"):
            content = record.get("content", record.get("message"))
            self._take_item(_Item(number, at, "message", {**record, "content": content}, record))
            self.session.models.update(filter(None, [get_text(record, "model")]))
        else:
            self._take_item(_Item(number, at, kind, record, record))

    def _take_item(self, item: _Item) -> None:
        kind = item.kind
        if kind == "ghost_snapshot":
            self.account.ignore(kind)
        elif kind in CALLS or kind in OUTPUTS or kind in ("message", "reasoning", "agent_message", "compaction"):
            self.items.append(item)
        else:
            self.account.meet_unknown(kind or "(no type)")

    def _take_event(self, item: _Item) -> None:
        kind, payload, account = item.kind, item.payload, self.account
        if kind == "item_completed":
            item.kind = get_text(get_dict(payload, "item"), "type")
            execution = read_execution(payload)
            if execution is not None:
                self.items.append(item)
            elif (copied := _spell_item(item.kind)) in _COPIES:
                account.ignore(f"copy {copied}")
            else:
                account.meet_unknown(f"item_completed {item.kind}")
        elif kind in _COPIES:
            account.ignore(f"copy {kind}")
        elif kind in EXECUTIONS or kind == "token_count":
            self.items.append(item)
        elif kind == "thread_rolled_back":
            self.facts.append(item)
            self._roll_back(int(get_number(payload, "num_turns") or 0))
        elif kind == "thread_name_updated":
            self.facts.append(item)
            self.session.extra["title"] = get_text(payload, "thread_name")
        elif kind in _NOTED_EVENTS:
            account.ignore(kind)
            account.note(_NOTED_EVENTS[kind])
        elif kind in _IGNORED_EVENTS:
            account.ignore(kind)
        else:
            account.meet_unknown(f"event_msg {kind}")

    def _take_fact(self, item: _Item) -> None:
        payload, session = item.payload, self.session
        if item.kind == "session_meta" and not self.meta:
            self.meta = payload
            self.facts.append(item)
            git = get_dict(payload, "git")
            session.folder = get_text(payload, "cwd")
            session.remote = get_text(git, "repository_url", "repositoryUrl")
            session.version = get_text(payload, "cli_version")
            session.created_at = get_text(payload, "timestamp") or None
            session.tools = _read_tools(payload)
            session.parent = _find_parent(payload)
            if branch := get_text(git, "branch"):
                session.extra["git_branch"] = branch
        elif item.kind == "session_meta":
            self.account.ignore("session_meta of another session")
        elif item.kind == "turn_context":
            self.facts.append(item)
            session.folder = session.folder or get_text(payload, "cwd")
            session.models.update(filter(None, [get_text(payload, "model")]))
        elif item.kind == "compacted":
            self.items.append(item)
        else:
            self.account.ignore(item.kind)

    def _roll_back(self, turns: int) -> None:
        """Remove the last turns: the user went back, and what follows does not build on them."""
        prompts = [i for i, item in enumerate(self.items) if _is_prompt(item)]
        if turns <= 0 or not prompts:
            return
        start = prompts[-min(turns, len(prompts))]
        self.account.ignore("rolled back", len(self.items) - start)
        self.account.note("abandoned branches")
        del self.items[start:]


class _Talk:
    """Builds the conversation of a rollout."""

    def __init__(self, rollout: _Rollout, account: Account) -> None:
        self.session = rollout.session
        self._path = rollout.path
        self._account = account
        self._talk = Conversation(account)
        self._reply = 0
        self._tokens: float | None = None
        self._measured: dict[str, Execution] = {}
        self._open: dict[str, str] = {}
        """Names of the calls without a result, by id."""
        self._exec: list[dict[str, Any]] | None = None
        """Commands of the latest `exec` call of code mode, a program that calls tools."""
        self._exec_id = ""
        self._sessions: dict[str, dict[str, Any]] = {}
        """Processes that outlive their call, by session id."""
        self._left: dict[str, dict[str, Any]] = {}
        """The same, by the id of the call that they outlive."""
        self._arguments: dict[str, Any] = {}
        base = get_text(get_dict(rollout.meta, "base_instructions"), "text")
        if text := base or get_text(rollout.meta, "instructions"):
            self._talk.add_system(text, 0)
        for fact in rollout.facts:
            self._use(fact)

    def make_trace(self) -> Trace | Drop:
        return self.session.make_trace(self._talk, self._path)

    def _use(self, item: _Item, call: str = "", *, counts: bool = True) -> None:
        inside = "payload" if item.payload is item.record.get("payload") else ""
        self._talk.use(item.record, inside, call=call, count=int(counts))

    def add(self, item: _Item) -> None:
        if item.is_event:
            self._add_event(item)
            return
        self._use(item)
        kind, payload = item.kind, item.payload
        if kind == "message":
            self._add_message(item)
        elif kind == "reasoning":
            summary = [
                get_text(block, "text") for block in get_dicts(payload, "summary") + get_dicts(payload, "content")
            ]
            text = "\n\n".join(filter(None, summary))
            if not text and payload.get("encrypted_content"):
                self._account.note("thoughts that are not readable")
            self._add_agent(item, reasoning=text or None)
        elif kind in CALLS:
            self._add_call(item)
        elif kind in OUTPUTS:
            self._add_output(item)
        elif kind == "agent_message":
            text, _ = read_blocks([b for b in get_dicts(payload, "content") if "encrypted_content" not in b])
            self._add_input(item, text, extra={"kind": kind})
        else:
            self._add_input(item, get_text(payload, "message"), extra={"kind": kind})

    def _add_agent(self, item: _Item, **more: Any) -> None:
        self._talk.add_agent(item.number, reply=f"reply {self._reply}", at=item.at, **more)

    def _add_input(self, item: _Item, text: str, **more: Any) -> None:
        """Add what the program says; the model's next item begins a new reply."""
        self._talk.add_user(text, item.number, author="environment", at=item.at, **more)
        self._reply += 1

    def _add_message(self, item: _Item) -> None:
        payload = item.payload
        role, content = get_text(payload, "role"), payload.get("content")
        if role == "assistant":
            text, parts = read_blocks(content)
            self._add_agent(item, text=text, parts=parts)
        elif role == "user":
            self._add_user(item, content)
        else:
            text, parts = read_blocks(content)
            self._talk.add_system(text, item.number, raw_role=None if role == "system" else role or None, parts=parts)

    def _add_user(self, item: _Item, content: Any) -> None:
        self._reply += 1
        kinds = get_list(get_dict(item.payload, "internal_chat_message_metadata_passthrough"), "content_item_kinds")
        if not isinstance(content, list) or len(kinds) != len(content):
            add_user_content(self._talk, content, item.number, at=item.at)
            return
        for block, kind in zip(content, kinds, strict=True):
            person = isinstance(kind, str) and kind.startswith("user.")
            add_user_content(self._talk, [block], item.number, at=item.at, author="user" if person else "environment")

    def _add_call(self, item: _Item) -> None:
        call = make_codex_call(item.payload)
        self._open[call.id] = call.name
        if call.name in ("write_stdin", "wait"):
            self._arguments[call.id] = get_text(item.payload, "arguments")
        if call.name == "exec" and item.kind == "custom_tool_call":
            self._exec, self._exec_id = [], call.id
            call.extra["commands"] = self._exec
        waits = [call.id] if call.name in _PERSON_TOOLS else []
        self._add_agent(item, calls=[call], waits_for_person=waits)
        if item.kind == "image_generation_call" and get_text(item.payload, "result"):
            image = {"type": "image", "data": item.payload["result"], "media_type": "image/png"}
            self._add_result(item, call.id, [image])

    def _add_output(self, item: _Item) -> None:
        output = read_output(item.payload)
        call_id = get_text(item.payload, "call_id")
        measured = self._measured.get(call_id)
        seconds, code = output.seconds, output.exit_code
        if measured is not None:
            if measured.approved_by_person and seconds is None and measured.seconds is None:
                self._talk.wait_for_person(call_id)
            code = measured.exit_code if code is None else code
            # An execution lasts as long as its process; a call that returns before that is shorter.
            if measured.seconds is not None and output.running is None:
                seconds = measured.seconds
        extra: dict[str, Any] = {} if code is None else {"exit_code": code}
        self._join_polls(call_id, output.running, seconds, extra)
        failed = code != 0 if code is not None else None if measured is None else measured.failed
        self._talk.add_result(
            call_id, output.text, item.number, is_error=failed, at=item.at, seconds=seconds, parts=output.parts,
            extra=extra,
        )  # fmt: skip
        self._open.pop(call_id, None)
        self._reply += 1

    def _join_polls(self, call_id: str, running: str | None, seconds: float | None, extra: dict[str, Any]) -> None:
        """Add up the time of a command that outlives its call and is polled; the first result has the total."""
        arguments = make_call("", "", self._arguments.pop(call_id, "")).arguments
        polled = msgspec.json.decode(arguments).get("session_id")
        process = self._sessions.get(str(polled)) if polled is not None else None
        if process is not None:
            process["command_s"] = round(process["command_s"] + (seconds or 0), 6)
            process["polls"] += 1
        elif running is not None:
            process = {"session": running, "command_s": seconds or 0, "polls": 0}
            extra["process"] = self._sessions[running] = self._left[call_id] = process

    def _add_result(self, item: _Item, call_id: str, content: Any, **more: Any) -> None:
        text, parts = read_blocks(content)
        self._talk.add_result(call_id, text, item.number, at=item.at, parts=parts, **more)
        self._open.pop(call_id, None)
        self._reply += 1

    def _add_event(self, item: _Item) -> None:
        if item.kind == "token_count":
            self._count_tokens(item)
        elif (execution := read_execution(item.payload)) is not None:
            self._add_execution(item, execution)

    def _count_tokens(self, item: _Item) -> None:
        """A token count ends a reply of the model, unless it repeats the one before."""
        self._account.ignore("token_count")
        tokens = get_number(get_dict(get_dict(item.payload, "info"), "total_token_usage"), "total_tokens")
        if tokens is not None and tokens != self._tokens:
            self._reply += self._tokens is not None
            self._tokens = tokens

    def _add_execution(self, item: _Item, execution: Execution) -> None:
        account = self._account
        call_id = execution.id
        if not self._talk.has_call(call_id) and len(self._open) == 1 and "exec" not in self._open.values():
            call_id = next(iter(self._open))  # an item whose id is not that of its call
        if execution.by_user and not self._talk.has_call(execution.id):
            account.ignore(f"{item.kind} of the user")
        elif self._talk.has_call(call_id):
            self._use(item, call_id)
            self._measure(item, call_id, execution)
        elif self._exec is not None:
            self._use(item, self._exec_id, counts=False)
            account.keep(f"{item.kind} inside of exec")
            facts = {"name": execution.name, "arguments": execution.arguments, "exit_code": execution.exit_code}
            facts["seconds"] = execution.seconds
            self._exec.append({name: value for name, value in facts.items() if value is not None})
        else:
            account.ignore(f"{item.kind} without its call")

    def _measure(self, item: _Item, call_id: str, execution: Execution) -> None:
        self._measured[call_id] = execution
        if execution.kind in ("web_search_end", "WebSearch") and call_id in self._open:
            self._add_result(item, call_id, execution.output or "", seconds=execution.seconds)
        elif execution.seconds is not None and (process := self._left.get(call_id)) is not None:
            process["command_s"] = execution.seconds
        elif call_id not in self._open and execution.seconds is not None:
            self._talk.time_call(call_id, execution.seconds)


def _is_prompt(item: _Item) -> bool:
    if item.is_event or item.kind != "message" or get_text(item.payload, "role") != "user":
        return False
    content = item.payload.get("content")
    blocks = content if isinstance(content, list) else [content]
    return any(not is_injected(text) for block in blocks if (text := read_blocks([block])[0]))


def _spell_item(kind: str) -> str:
    """The type as `_COPIES` spells it: files have `UserMessage`, `userMessage` and `user_message`."""
    words = kind.split("_") if "_" in kind else [kind]
    return "".join(word[:1].upper() + word[1:] for word in words)


def _find_parent(meta: dict[str, Any]) -> Parent | None:
    spawn = get_dict(get_dict(get_dict(meta, "source"), "subagent"), "thread_spawn")
    parent = get_text(meta, "parent_thread_id") or get_text(spawn, "parent_thread_id")
    return Parent(key=f"{Codex.name}@{parent}") if parent else None


def _read_tools(meta: dict[str, Any]) -> Any:
    """Tools that the client provides; no others are recorded."""
    tools: list[dict[str, Any]] = []
    given = meta.get("dynamic_tools")
    for group in given if isinstance(given, list) else [given]:
        for tool in get_dicts(group, "tools") or ([group] if isinstance(group, dict) else []):
            tools.append({**tool, "parameters": tool.get("inputSchema", tool.get("parameters"))})
    return read_tool_specs(tools)


PLUGIN = Codex
