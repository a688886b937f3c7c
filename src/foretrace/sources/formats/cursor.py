"""Transcripts of Cursor's agent: ~/.cursor/projects/*/agent-transcripts/*.jsonl. They hold no times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.trace import Parent, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_blocks, split_reply
from foretrace.sources.conversation import Conversation, make_call
from foretrace.sources.json_values import get_bool, get_dict, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import Session, add_user_content

_FIELDS = frozenset({"role", "message", "id", "timestamp_ms"})


class Cursor:
    """A file is one session: a line for each message, without a type."""

    name = "cursor"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By lines with a role and a `message` with content, and without the fields of other programs."""
        for number, record in enumerate(head.records, 1):
            if get_text(record, "type").startswith("cursor_"):
                return f"line {number}: type {record['type']}"
            if record.keys() <= _FIELDS and get_text(record, "role") in ("user", "assistant"):
                content = get_dict(record, "message").get("content")
                return f"line {number}: only role and message.content" if isinstance(content, list) else None
            if get_text(record, "type") != "turn_ended":
                return None
        return None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The one session of the file."""
        session = Session(source=self.name, agent="cursor", id=path.name.partition(".jsonl")[0])
        if path.parent.name == "subagents":
            parent = path.parent.parent.name
            session.parent = Parent(key=f"{self.name}@{parent}")
            session.id = f"{parent}/{session.id}"
        talk = Conversation(account)
        for number, record in account.drop_unread(read_records(path)):
            kind = get_text(record, "type", "role")
            session.types[kind or "(no type)"] += 1
            if kind == "cursor_session_meta":
                talk.use(record)
                session.id = get_text(record, "session_id") or session.id
                session.models.update(filter(None, [get_text(record, "model")]))
            elif kind == "cursor_available_tools":
                talk.use(record)
                session.tools = read_tool_specs(record.get("tools"))
            elif kind == "turn_ended":
                account.ignore(kind)
            elif kind in ("user", "assistant"):
                _add_message(talk, number, kind, record, account)
            else:
                account.meet_unknown(kind or "(no type)")
        yield session.make_trace(talk, path)


def _add_message(talk: Conversation, number: int, role: str, record: dict[str, Any], account: Account) -> None:
    content = get_dict(record, "message").get("content")
    if not isinstance(content, (str, list)):
        account.drop("no_content")
        return
    talk.use(record, "message")
    said = split_reply(content, account)
    for block in said.results:
        text, parts = read_blocks(block.get("content"))
        failed = get_bool(block, "is_error")
        talk.add_result(get_text(block, "tool_use_id"), text, number, is_error=failed, parts=parts)
    if role == "user":
        rest = [block for block in content if block not in said.results] if isinstance(content, list) else content
        if rest:
            add_user_content(talk, rest, number, at=None)
        return
    calls = [make_call(get_text(b, "id"), get_text(b, "name"), b.get("input")) for b in said.calls]
    if said.text or said.parts or calls or said.reasoning or not said.results:
        talk.add_agent(number, text=said.text, reasoning=said.reasoning, calls=calls, parts=said.parts)


PLUGIN = Cursor
