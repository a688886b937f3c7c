"""Sessions of GitHub's Copilot CLI: ~/.copilot/session-state/*/events.jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.trace import Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.conversation import make_call, read_time
from foretrace.sources.json_values import get_dict, get_dicts, get_text
from foretrace.sources.sessions import NO_TYPE, Session

_IGNORED = ("assistant.", "session.", "hook.", "tool.", "subagent.", "skill.", "abort")
"""Prefixes of types that are known not to belong to the conversation: progress, turns, bookkeeping."""
_STARTS = frozenset({"session.start", "session.resume"})
_USED = _STARTS | {
    "session.model_change", "system.message", "user.message", "assistant.message", "tool.execution_complete",
}  # fmt: skip


class CopilotCli:
    """A file is one session of events with timestamps. A subagent's events are in the same file, but are not steps of
    the session: only its result is, as that of the call that started it."""

    name = "copilot_cli"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By a first event `session.start` or `session.resume` with data."""
        kind = get_text(head.first, "type")
        is_start = kind in _STARTS and isinstance(head.first.get("data"), dict)
        return f"line 1: type {kind} with data" if is_start else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        session = Session(account, self.name, "copilot-cli")
        for number, record in account.drop_unread(read_records(path)):
            kind, data = get_text(record, "type"), get_dict(record, "data")
            session.types[kind or NO_TYPE] += 1
            if get_text(data, "parentToolCallId"):
                account.ignore(f"{kind} of a subagent")
            elif kind in _USED:
                session.use(record, "data")
                _add_event(session, number, kind, data, read_time(record.get("timestamp")))
            else:
                session.skip(kind, kind.startswith(_IGNORED))
        session.id = session.id or path.parent.name
        yield session.make_trace(path)


def _add_event(session: Session, number: int, kind: str, data: dict[str, Any], at: float | None) -> None:
    text = get_text(data, "content")
    if kind in _STARTS:
        context = get_dict(data, "context")
        session.id = session.id or get_text(data, "sessionId")
        session.version = session.version or get_text(data, "copilotVersion")
        session.created_at = session.created_at or get_text(data, "startTime") or None
        session.folder = session.folder or get_text(context, "cwd")
        if repository := get_text(context, "repository"):
            session.remote = session.remote or f"https://github.com/{repository}"
    elif kind == "session.model_change":
        session.note_model(get_text(data, "newModel"))
    elif kind == "system.message":
        session.add_system(text, number)
    elif kind == "user.message":
        session.add_content(text, number, at=at)
    elif kind == "assistant.message":
        requests = get_dicts(data, "toolRequests")
        calls = [make_call(get_text(c, "toolCallId"), get_text(c, "name"), c.get("arguments")) for c in requests]
        reply, reasoning = get_text(data, "messageId") or None, get_text(data, "reasoningText")
        session.add_agent(number, text=text, reasoning=reasoning, calls=calls, reply=reply, at=at)
    else:
        failed = data.get("success") is False
        result = get_text(get_dict(data, "error" if failed else "result"), "content", "message", "detailedContent")
        session.add_result(get_text(data, "toolCallId"), result, number, is_error=True if failed else None, at=at)


PLUGIN = CopilotCli
