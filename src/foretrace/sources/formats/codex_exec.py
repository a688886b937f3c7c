"""Events that `codex exec --json` prints: a thread, its turns, and items that are started, updated and completed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.trace import Failure, Outcome, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_blocks
from foretrace.sources.conversation import make_call, read_time
from foretrace.sources.json_values import get_dict, get_dicts, get_list, get_number, get_text, write_text
from foretrace.sources.sessions import NO_TYPE, Session

_START = "thread.started"
_TURNS = frozenset({"turn.started", "turn.completed", "turn.failed", "error"})
_EVENTS = frozenset({"item.started", "item.updated", "item.completed"})
_IGNORED = frozenset({"item.plan.delta", "request_user_input"})
_TEXTS = frozenset({"agent_message", "plan", "reasoning"})
_CALLS = frozenset({"command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search"})
_ITEMS = _TEXTS | _CALLS | {"todo_list"}


class CodexExec:
    """The prompt is not among the events: a trace begins with what the agent does. A file may hold several runs; those
    of one thread are one trace."""

    name = "codex_exec"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By an event that starts a thread, or an event of an item of a known type."""
        for number, record in enumerate(head.records or (head.first,), 1):
            kind = get_text(record, "type")
            if kind == _START and get_text(record, "thread_id"):
                return f"line {number}: type {kind} with the id of a thread"
            if kind in _EVENTS and get_text(get_dict(record, "item"), "type") in _ITEMS:
                return f"line {number}: type {kind} with an item of Codex"
        return None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        runs: dict[str, _Run] = {}
        run: _Run | None = None
        for number, record in account.drop_unread(read_records(path)):
            thread = get_text(record, "thread_id") if get_text(record, "type") == _START else ""
            if run is None or thread:
                own = thread or path.name.partition(".")[0]
                run = runs.setdefault(own, _Run(account, self.name, "codex", own))
            run.add_event(number, record)
        for run in runs.values():
            yield run.make_trace(path)


class _Run(Session):
    """One thread. What the model writes up to the next result is one reply."""

    _count = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._made: dict[str, str] = {}
        """Item -> the id of its call: each run of a thread numbers its items anew."""

    def add_event(self, number: int, record: dict[str, Any]) -> None:
        kind, item = get_text(record, "type"), get_dict(record, "item")
        what = get_text(item, "type")
        self.types[what or kind or NO_TYPE] += 1
        if kind == _START or kind in _TURNS:
            self.use(record)
            self.reply += 1
            self._made.clear()
            if kind in ("turn.failed", "error"):
                message = get_text(get_dict(record, "error"), "message") or get_text(record, "message")
                self.outcome = Outcome(status="error", error=Failure(kind=kind, message=message[:2000]))
            elif kind == "turn.completed":
                self.outcome = Outcome()
        elif kind not in _EVENTS or what not in _ITEMS:  # of errors, the run survives those that are items
            self.skip(f"{kind} {what}".strip(), kind in _IGNORED or what == "error")
        elif self._is_new(kind, item, what):
            self.use(record, "item")
            self._add_item(number, kind, item, read_time(record.get("timestamp")))
        else:
            self.account.ignore(f"{kind} {what}")

    def _is_new(self, kind: str, item: dict[str, Any], what: str) -> bool:
        """Whether an event says more than the ones before: texts at their end, calls at their start and end, and each
        version of a to-do list, of which the end repeats the last."""
        is_end, is_known = kind == "item.completed", (get_text(item, "id") or what) in self._made
        if what in _TEXTS:
            return is_end
        return not (is_end and is_known) if what == "todo_list" else is_end or not is_known

    def _add_item(self, number: int, kind: str, item: dict[str, Any], at: float | None) -> None:
        what = get_text(item, "type")
        own = get_text(item, "id") or what
        if what in _TEXTS:
            name = "reasoning" if what == "reasoning" else "text"
            if text := get_text(item, "text"):
                self.add_part(number, at=at, **{name: text})
            return
        if what == "todo_list" or own not in self._made:
            self._count += 1
            self._made[own] = f"item_{self._count}"
            name, arguments = _read_call(item)
            call = make_call("" if what == "todo_list" else self._made[own], name, arguments)
            self.add_part(number, at=at, calls=[call])
        if what == "todo_list":
            self.reply += 1
        elif kind == "item.completed":
            text, failed = _read_result(item)
            self.add_result(self._made.pop(own), text, number, is_error=failed, at=at)
            self.reply += 1


def _read_call(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = get_text(item, "type")
    if kind == "command_execution":
        return "shell", {"command": item.get("command")}
    if kind == "file_change":
        return "apply_patch", {"changes": get_list(item, "changes")}
    if kind == "todo_list":
        steps = [(get_text(step, "text"), step.get("completed") is True) for step in get_dicts(item, "items")]
        return "update_plan", {
            "plan": [{"step": text, "status": "completed" if is_done else "pending"} for text, is_done in steps]
        }
    if kind == "web_search":
        action = {name: value for name, value in get_dict(item, "action").items() if name != "type" and value}
        return kind, {"query": get_text(item, "query"), **action}
    if kind == "collab_tool_call":
        names = ("prompt", "receiver_thread_ids")
        return get_text(item, "tool"), {name: item[name] for name in names if item.get(name)}
    arguments = item.get("arguments")
    name = ".".join(filter(None, (get_text(item, "server"), get_text(item, "tool"))))
    return name, arguments if isinstance(arguments, dict) else {} if arguments is None else {"input": arguments}


def _read_result(item: dict[str, Any]) -> tuple[str, bool | None]:
    """The result of a call, and whether it failed."""
    failed = get_text(item, "status") in ("failed", "declined")
    code, result = get_number(item, "exit_code"), get_dict(item, "result")
    text = get_text(item, "aggregated_output") or get_text(get_dict(item, "error"), "message")
    text = text or read_blocks(result.get("content"))[0]
    text = text or write_text(result.get("structured_content") or get_dict(item, "agents_states") or None)
    return text, code != 0 if code is not None else True if failed else None


PLUGIN = CodexExec
