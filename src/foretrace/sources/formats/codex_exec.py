"""Events that `codex exec --json` prints: a thread, its turns, and items that are started, updated and completed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Failure, Outcome, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_blocks
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.json_values import get_dict, get_dicts, get_list, get_number, get_text, write_text
from foretrace.sources.sessions import Session

_STARTS = ("thread.started", "session.created")
_TURNS = frozenset({"turn.started", "turn.completed", "turn.failed", "error"})
_ITEMS = frozenset({"item.started", "item.updated", "item.completed"})
_IGNORED = frozenset({"item.plan.delta", "request_user_input"})


class CodexExec:
    """The prompt is not among the events: a trace begins with what the agent does. A file may hold several runs; those
    of one thread are one trace."""

    name = "codex_exec"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By an event that starts a thread, or an event of an item of a known type."""
        for number, record in enumerate(head.records or (head.first,), 1):
            kind = get_text(record, "type")
            if kind in _STARTS and get_text(record, "thread_id", "session_id"):
                return f"line {number}: type {kind} with the id of a thread"
            if kind in _ITEMS and _get_type(get_dict(record, "item")) in _ADDERS:
                return f"line {number}: type {kind} with an item of Codex"
        return None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """A trace for each thread of the file, in the order of their starts."""
        runs: dict[str, _Run] = {}
        run: _Run | None = None
        for number, record in account.drop_unread(read_records(path)):
            thread = get_text(record, "thread_id", "session_id") if get_text(record, "type") in _STARTS else ""
            if run is None or thread:
                own = thread or path.name.partition(".")[0]
                run = runs.setdefault(own, _Run(own, account))
            run.add(number, record)
        for each in runs.values():
            yield each.make_trace(path)


class _Run:
    """One thread. What the model writes up to the next result is one reply."""

    def __init__(self, own: str, account: Account) -> None:
        self.session = Session(source=CodexExec.name, agent="codex", id=own)
        self.talk = Conversation(account)
        self._account = account
        self._reply = 0
        self._made: dict[str, str] = {}
        """Item -> the id of its call: each run of a thread numbers its items anew."""
        self._count = 0

    def add(self, number: int, record: dict[str, Any]) -> None:
        """Add an event."""
        kind = get_text(record, "type")
        item = get_dict(record, "item")
        self.session.types[_get_type(item) or kind or "(no type)"] += 1
        if kind in _STARTS or kind in _TURNS:
            self.talk.use(record)
            self._reply += 1
            self._made.clear()
            self._note_failure(kind, record)
        elif kind in _IGNORED or _get_type(item) == "error":  # warnings, and errors that the run survives
            self._account.ignore(f"{kind} {_get_type(item)}".strip())
        elif kind not in _ITEMS:
            self._account.meet_unknown(kind or "(no type)")
        elif (add := _ADDERS.get(_get_type(item))) is None:
            self._account.meet_unknown(f"{kind} {_get_type(item)}")
        else:
            self.talk.use(record, "item", count=0)
            if add(self, number, item, kind, read_time(record.get("timestamp"))):
                self._account.use()
            else:
                self.talk.used.pop()
                self._account.ignore(f"{kind} {_get_type(item)}")

    def make_trace(self, path: Path) -> Trace | Drop:
        """The trace of the thread."""
        return self.session.make_trace(self.talk, path)

    def _note_failure(self, kind: str, record: dict[str, Any]) -> None:
        if kind in ("turn.failed", "error"):
            message = get_text(get_dict(record, "error"), "message") or get_text(record, "message")
            self.session.outcome = Outcome(status="error", error=Failure(kind=kind, message=message[:2000]))
        elif kind == "turn.completed":
            self.session.outcome = Outcome()

    def add_text(self, number: int, item: dict[str, Any], kind: str, at: float | None) -> bool:
        """Add the model's text or reasoning when it is complete; returns whether the event was used."""
        if kind != "item.completed":
            return False
        text = get_text(item, "text")
        if _get_type(item) == "reasoning":
            self.talk.add_agent(number, reply=str(self._reply), at=at, reasoning=text)
        elif text:
            self.talk.add_agent(number, reply=str(self._reply), at=at, text=text)
        return True

    def add_call(self, number: int, item: dict[str, Any], kind: str, at: float | None) -> bool:
        """Add a call at its start (at its end if there is no start), and its result at the end."""
        own = _identify(item)
        is_new = own not in self._made
        if not is_new and kind != "item.completed":
            return False
        if is_new:
            self._count += 1
            self._made[own] = f"item_{self._count}"
            name, arguments = _read_call(item)
            self.talk.add_agent(
                number, calls=[make_call(self._made[own], name, arguments)], reply=str(self._reply), at=at
            )
        if kind == "item.completed":
            text, failed = _read_result(item)
            self.talk.add_result(self._made.pop(own), text, number, is_error=failed, at=at)
            self._reply += 1
        return True

    def add_plan(self, number: int, item: dict[str, Any], kind: str, at: float | None) -> bool:
        """Add each version of the to-do list as a call without a result; the completed item repeats the last one."""
        own = _identify(item)
        if kind == "item.completed" and own in self._made:
            return False
        self._count += 1
        self._made[own] = f"item_{self._count}"
        steps = [
            {"step": get_text(step, "text"), "status": "completed" if step.get("completed") is True else "pending"}
            for step in get_dicts(item, "items")
        ]
        call = make_call("", "update_plan", {"plan": steps})
        self.talk.add_agent(number, calls=[call], reply=str(self._reply), at=at)
        self._reply += 1
        return True


_ADDERS = {
    "agent_message": _Run.add_text,
    "assistant_message": _Run.add_text,
    "plan": _Run.add_text,
    "reasoning": _Run.add_text,
    "command_execution": _Run.add_call,
    "file_change": _Run.add_call,
    "mcp_tool_call": _Run.add_call,
    "collab_tool_call": _Run.add_call,
    "web_search": _Run.add_call,
    "todo_list": _Run.add_plan,
}


def _get_type(item: dict[str, Any]) -> str:
    """The type of an item; early versions say `item_type`."""
    return get_text(item, "type", "item_type")


def _identify(item: dict[str, Any]) -> str:
    """The id of an item; if it has none, what is the same at its start and its end."""
    kind = _get_type(item)
    if (own := get_text(item, "id")) or kind in ("web_search", "todo_list"):  # the query is only known at the end
        return own or kind
    return f"{kind} {write_text(_read_call(item))}"


def _read_call(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = _get_type(item)
    if kind == "command_execution":
        return "shell", {"command": item.get("command")}
    if kind == "file_change":
        return "apply_patch", {"changes": get_list(item, "changes")}
    if kind == "web_search":
        action = {name: value for name, value in get_dict(item, "action").items() if name != "type" and value}
        return "web_search", {"query": get_text(item, "query"), **action}
    if kind == "collab_tool_call":
        given = {"prompt": item.get("prompt"), "receiver_thread_ids": get_list(item, "receiver_thread_ids")}
        return get_text(item, "tool"), {name: value for name, value in given.items() if value}
    arguments = item.get("arguments")
    name = ".".join(filter(None, (get_text(item, "server"), get_text(item, "tool"))))
    return name, arguments if isinstance(arguments, dict) else {} if arguments is None else {"input": arguments}


def _read_result(item: dict[str, Any]) -> tuple[str, bool | None]:
    """The result of a call, and whether it failed."""
    failed = get_text(item, "status") in ("failed", "declined")
    code = get_number(item, "exit_code")
    is_error = code != 0 if code is not None else True if failed else None
    error = get_text(get_dict(item, "error"), "message")
    result = get_dict(item, "result")
    text = get_text(item, "aggregated_output") or error or read_blocks(result.get("content"))[0]
    if not text and result.get("structured_content") is not None:
        text = write_text(result["structured_content"])
    if not text and (states := get_dict(item, "agents_states")):
        text = msgspec.json.encode(states).decode()
    return text, is_error


PLUGIN = CodexExec
