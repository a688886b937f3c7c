"""Session traces of the Hugging Face Hub: JSON lines that begin with `{type: session, harness, id}`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.trace import Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import make_function_call, read_any_content
from foretrace.sources.conversation import Conversation, read_time
from foretrace.sources.file_traces import finish_trace, make_task
from foretrace.sources.json_values import as_dicts, as_text, get_bool, get_dict
from foretrace.sources.openai_messages import read_tool_specs


class HubSession:
    """Usually one session per file; several in a row are read as well."""

    name = "hub_session"
    license: str | None = None

    def recognize(self, head: FileHead) -> str | None:
        """By the first line."""
        first = head.first
        is_session = first.get("type") == "session" and isinstance(first.get("harness"), str)
        return f"line 1 is a session of the harness {first['harness'][:40]!r}" if is_session else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        talk: _Talk | None = None
        for _, record in account.drop_unread(read_records(path)):
            if record.get("type") == "session":
                if talk is not None:
                    yield talk.make_trace(path)
                talk = _Talk(record, account)
            elif talk is None:
                account.drop("no_session")
            else:
                talk.add_record(record)
        if talk is not None:
            yield talk.make_trace(path)


class _Talk(Conversation):
    def __init__(self, head: dict[str, Any], account: Account) -> None:
        super().__init__(account)
        self._head = head
        self._model = self._created = self._first = ""
        self.use(head)

    def add_record(self, record: dict[str, Any]) -> None:
        kind, message = record.get("type"), get_dict(record, "message")
        role, is_message = message.get("role"), kind == "message" and bool(message)
        self.types[f"{role} messages" if is_message else str(kind)[:80]] += 1
        if not is_message or role not in ("user", "assistant", "system", "tool"):
            self.account.meet_unknown(f"message of {role!r}" if is_message else kind)
            return
        self.use(record, "message")
        text, parts = read_any_content(message.get("content"))
        stamp = message.get("timestamp", record.get("timestamp"))
        self._created = self._created or as_text(stamp)
        self._first = self._first or text
        self._model = self._model or as_text(message.get("model"))
        self.add(
            str(role), text, len(self), at=read_time(stamp), parts=parts,
            reasoning=as_text(message.get("reasoningContent")) or None,
            calls=[make_function_call(call) for call in as_dicts(message.get("toolCalls"))],
            call_id=as_text(message.get("toolCallId")), is_error=get_bool(message, "isError"),
        )  # fmt: skip

    def make_trace(self, path: Path) -> Trace | Drop:
        own_id = as_text(self._head.get("id")) or digest(self._first)
        key = f"{HubSession.name}@{own_id}"
        return finish_trace(
            self, key=key, task=make_task(key), path=path, raw_id=own_id, model=self._model,
            agent=as_text(self._head.get("harness")), created_at=self._created,
            tools=read_tool_specs(self._head.get("tools")),
        )  # fmt: skip


PLUGIN = HubSession
