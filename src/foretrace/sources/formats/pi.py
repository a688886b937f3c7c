"""Sessions of Pi (and OpenClaw, which writes the same): ~/.pi/agent/sessions/*/*.jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.trace import Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_blocks, split_reply
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.json_values import get_bool, get_dict, get_number, get_text
from foretrace.sources.sessions import Session, add_user_content, count_abandoned, find_main_line

_IGNORED = frozenset({"thinking_level_change", "label", "custom"})
_FACTS = frozenset({"session_info", "model_change"})
_SUMMARIES = frozenset({"compaction", "branch_summary"})
_SPOKEN = _SUMMARIES | {"message", "custom_message"}
_ROLES = frozenset({
    "user", "toolResult", "bashExecution", "custom", "hookMessage", "branchSummary", "compactionSummary",
})  # fmt: skip
"""Roles of messages that are not replies; all but `user` and `toolResult` are added as notices of the program."""


class Pi:
    """A file is one session: a list of entries in version 1, a tree since. The path to the last entry is the trace."""

    name = "pi"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By the first line: type session, with a working directory and no harness."""
        first = head.first
        if get_text(first, "type") != "session" or "harness" in first or not get_text(first, "id"):
            return None
        return "line 1: type session with cwd" if isinstance(first.get("cwd"), str) and "timestamp" in first else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The one session of the file."""
        session = Session(source=self.name, agent="pi", id="")
        entries: list[tuple[int, dict[str, Any]]] = []
        facts: list[dict[str, Any]] = []
        parents: dict[str, str | None] = {}
        order: list[str] = []
        for number, record in account.drop_unread(read_records(path)):
            kind = get_text(record, "type")
            session.types[f"{kind or '(no type)'} {get_text(get_dict(record, 'message'), 'role')}".strip()] += 1
            if kind == "session":
                if session.id:
                    account.ignore("session header")
                else:
                    facts.append(record)
                    _read_header(session, record)
                continue
            if entry := get_text(record, "id"):
                parents[entry] = get_text(record, "parentId") or None
                order.append(entry)
            if kind in _FACTS:
                facts.append(record)
            elif kind in _SPOKEN:
                entries.append((number, record))
            elif kind in _IGNORED:
                account.ignore(kind)
            else:
                account.meet_unknown(kind or "(no type)")
        session.id = session.id or path.name.partition(".jsonl")[0]
        main = find_main_line(parents, order)
        talk = _Talk(session, account)
        for record in facts:
            talk.talk.use(record)
            if get_text(record, "type") == "session_info":
                session.extra["title"] = get_text(record, "name")
        left: set[str] = set()
        for number, record in entries:
            entry = get_text(record, "id")
            if not entry or entry in main:
                talk.add(number, record)
                continue
            count_abandoned(account, entry, parents.get(entry), left)
        yield session.make_trace(talk.talk, path)


def _read_header(session: Session, record: dict[str, Any]) -> None:
    session.id = get_text(record, "id")
    session.folder = get_text(record, "cwd")
    session.created_at = get_text(record, "timestamp") or None
    session.extra["format_version"] = int(get_number(record, "version") or 1)
    if parent := get_text(record, "parentSession", "branchedFrom"):
        session.extra["forked_from"] = parent.replace("\\", "/").rsplit("/", 1)[-1]
    session.models.update(filter(None, [get_text(record, "modelId")]))


class _Talk:
    def __init__(self, session: Session, account: Account) -> None:
        self.talk = Conversation(account)
        self._session = session
        self._account = account
        self._forked_at = read_time(session.created_at) if "forked_from" in session.extra else None

    def add(self, number: int, record: dict[str, Any]) -> None:
        kind = get_text(record, "type")
        at = read_time(record.get("timestamp"))
        if kind != "message":
            self.talk.use(record)
            content = record.get("summary") if kind in _SUMMARIES else record.get("content")
            self._add_notice(number, content, at, kind)
            return
        message = get_dict(record, "message")
        role = get_text(message, "role")
        if role == "assistant":
            self._add_reply(number, record, at)
            return
        if role == "system":
            self.talk.use(record, "message")
            self.talk.add_system(read_blocks(message.get("content"))[0], number, at=at)
            return
        if role not in _ROLES:
            self._account.meet_unknown(f"message {role}")
            return
        self.talk.use(record, "message")
        if role == "user":
            add_user_content(self.talk, message.get("content"), number, at=at)
        elif role == "toolResult":
            text, parts = read_blocks(message.get("content"))
            failed = get_bool(message, "isError")
            self.talk.add_result(get_text(message, "toolCallId"), text, number, is_error=failed, at=at, parts=parts)
        elif role == "bashExecution":
            text = f"$ {get_text(message, 'command')}\n{get_text(message, 'output')}"
            self._add_notice(number, text, at, role)
        else:
            self._add_notice(number, message.get("content", message.get("summary")), at, role)

    def _add_notice(self, number: int, content: Any, at: float | None, kind: str) -> None:
        text, parts = read_blocks(content)
        self.talk.add_user(text, number, author="environment", at=at, parts=parts, extra={"kind": kind})

    def _add_reply(self, number: int, record: dict[str, Any], at: float | None) -> None:
        message = get_dict(record, "message")
        content = message.get("content")
        stop = get_text(message, "stopReason")
        if stop == "error":
            self._account.note("errors of the model's API")
        if not content:
            self._account.ignore(f"reply without content ({stop or 'unknown'})")
            return
        self.talk.use(record, "message")
        said = split_reply(content, self._account)
        calls = [make_call(get_text(b, "id"), get_text(b, "name"), b.get("input")) for b in said.calls]
        if model := get_text(message, "model"):
            self._session.models[model] += 1
        extra: dict[str, Any] = {"stop_reason": stop} if stop else {}
        inherited = at is not None and self._forked_at is not None and at < self._forked_at
        if inherited:
            extra["inherited"] = True
        # The message's own stamp is the start of the reply; the entry's stamp is its end.
        began = read_time(message.get("timestamp"))
        self.talk.add_agent(
            number, text=said.text, reasoning=said.reasoning, calls=calls, at=at, began=began,
            parts=said.parts, extra=extra, train=False if inherited else None,
        )  # fmt: skip


PLUGIN = Pi
