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
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.json_values import get_dict, get_dicts, get_text
from foretrace.sources.sessions import Session, add_user_content

_IGNORED = ("assistant.", "session.", "hook.", "tool.", "subagent.", "skill.", "abort")
"""Prefixes of types that are known not to belong to the conversation: progress, turns, bookkeeping."""
_STARTS = frozenset({"session.start", "session.resume"})
_USED = _STARTS | {
    "session.model_change", "system.message", "user.message", "assistant.message", "tool.execution_complete",
}  # fmt: skip
_OTHER_AGENT = "parentToolCallId"


class CopilotCli:
    """A file is one session of events with timestamps. A subagent's events are in the same file, but are not steps of
    the session: only its result is, as that of the call that started it."""

    name = "copilot_cli"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By a first event `session.start` or `session.resume` with data."""
        kind = get_text(head.first, "type")
        if kind not in _STARTS or not isinstance(head.first.get("data"), dict):
            return None
        return f"line 1: type {kind} with data"

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The one session of the file."""
        session = Session(source=self.name, agent="copilot-cli", id="")
        talk = Conversation(account)
        for number, record in account.drop_unread(read_records(path)):
            session.types[get_text(record, "type") or "(no type)"] += 1
            _add_event(session, talk, number, record, account)
        session.id = session.id or path.parent.name
        yield session.make_trace(talk, path)


def _add_event(session: Session, talk: Conversation, number: int, record: dict[str, Any], account: Account) -> None:
    kind, data, at = get_text(record, "type"), get_dict(record, "data"), read_time(record.get("timestamp"))
    if get_text(data, _OTHER_AGENT):
        account.ignore(f"{kind} of a subagent")
        return
    if kind not in _USED:
        if kind.startswith(_IGNORED):
            account.ignore(kind)
        else:
            account.meet_unknown(kind or "(no type)")
        return
    talk.use(record, "data")
    if kind in _STARTS:
        _read_header(session, data)
    elif kind == "session.model_change":
        session.models.update(filter(None, [get_text(data, "newModel")]))
    elif kind == "system.message":
        talk.add_system(get_text(data, "content"), number)
    elif kind == "user.message":
        add_user_content(talk, get_text(data, "content"), number, at=at)
    elif kind == "assistant.message":
        _add_reply(talk, number, data, at)
    else:
        _add_result(talk, number, data, at)


def _read_header(session: Session, data: dict[str, Any]) -> None:
    context = get_dict(data, "context")
    session.id = session.id or get_text(data, "sessionId")
    session.version = session.version or get_text(data, "copilotVersion")
    session.created_at = session.created_at or get_text(data, "startTime") or None
    session.folder = session.folder or get_text(context, "cwd")
    if repository := get_text(context, "repository"):
        session.remote = session.remote or f"https://github.com/{repository}"


def _add_reply(talk: Conversation, number: int, data: dict[str, Any], at: float | None) -> None:
    calls = [
        make_call(get_text(call, "toolCallId"), get_text(call, "name"), call.get("arguments"))
        for call in get_dicts(data, "toolRequests")
    ]
    talk.add_agent(
        number,
        text=get_text(data, "content"),
        reasoning=get_text(data, "reasoningText") or None,
        calls=calls,
        reply=get_text(data, "messageId") or None,
        at=at,
    )


def _add_result(talk: Conversation, number: int, data: dict[str, Any], at: float | None) -> None:
    failed = data.get("success") is False
    result = get_dict(data, "error" if failed else "result")
    text = get_text(result, "content", "message", "detailedContent")
    talk.add_result(get_text(data, "toolCallId"), text, number, is_error=True if failed else None, at=at)


PLUGIN = CopilotCli
