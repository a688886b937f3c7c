"""Transcripts of Cursor's agent: ~/.cursor/projects/*/agent-transcripts/*.jsonl. They hold no times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foretrace.core.trace import Parent, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.json_values import get_dict, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import NO_TYPE, Session

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
        session = Session(account, self.name, "cursor", path.name.partition(".jsonl")[0])
        if path.parent.name == "subagents":
            parent = path.parent.parent.name
            session.parent = Parent(key=f"{self.name}@{parent}")
            session.id = f"{parent}/{session.id}"
        for number, record in account.drop_unread(read_records(path)):
            kind = get_text(record, "type", "role")
            session.types[kind or NO_TYPE] += 1
            if kind in ("user", "assistant"):
                content = get_dict(record, "message").get("content")
                if isinstance(content, (str, list)):
                    session.use(record, "message")
                    session.add_blocks(kind, content, number)
                else:
                    account.drop("no_content")
            elif kind == "cursor_session_meta":
                session.use(record)
                session.id = get_text(record, "session_id") or session.id
                session.note_model(get_text(record, "model"))
            elif kind == "cursor_available_tools":
                session.use(record)
                session.tools = read_tool_specs(record.get("tools"))
            else:
                session.skip(kind, kind == "turn_ended")
        yield session.make_trace(path)


PLUGIN = Cursor
