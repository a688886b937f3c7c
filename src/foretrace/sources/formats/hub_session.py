"""Session traces of the Hugging Face Hub: JSON lines that begin with `{type: session, harness, id}`."""

from __future__ import annotations

from collections import Counter
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
from foretrace.sources.json_values import as_dicts, as_text, get_bool
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
        """A trace for each session record with the messages that follow it."""
        session: _Session | None = None
        for _, record in account.drop_unread(read_records(path)):
            if record.get("type") == "session":
                if session is not None:
                    yield session.finish(path)
                session = _Session(record, account)
            elif session is None:
                account.drop("no_session")
            else:
                session.add(record)
        if session is not None:
            yield session.finish(path)


class _Session:
    def __init__(self, head: dict[str, Any], account: Account) -> None:
        self._head = head
        self._account = account
        self._talk = Conversation(account)
        self._met: Counter[str] = Counter()
        self._model: str | None = None
        self._created: str | None = None
        self._first: str = ""
        self._talk.use(head)

    def add(self, record: dict[str, Any]) -> None:
        kind, message = record.get("type"), record.get("message")
        if kind != "message" or not isinstance(message, dict):
            self._met[str(kind)[:80]] += 1
            self._account.meet_unknown(kind)
            return
        index, role = len(self._talk), message.get("role")
        self._met[f"{role} messages"] += 1
        if role not in ("user", "assistant", "system", "tool"):
            self._account.meet_unknown(f"message of {role!r}")
            return
        self._talk.use(record, "message")
        text, parts = read_any_content(message.get("content"))
        stamp = message.get("timestamp", record.get("timestamp"))
        at = read_time(stamp)
        self._created = self._created or (stamp if isinstance(stamp, str) else None)
        self._first = self._first or text
        self._model = self._model or as_text(message.get("model")) or None
        self._talk.add(
            str(role), text, index, at=at, parts=parts,
            reasoning=as_text(message.get("reasoningContent")) or None,
            calls=[make_function_call(call) for call in as_dicts(message.get("toolCalls"))],
            call_id=as_text(message.get("toolCallId")), is_error=get_bool(message, "isError"),
        )  # fmt: skip

    def finish(self, path: Path) -> Trace | Drop:
        own_id = as_text(self._head.get("id")) or digest(self._first)
        key = f"hub_session@{own_id}"
        return finish_trace(
            self._talk,
            key=key,
            task=make_task(key),
            path=path,
            raw_id=own_id,
            agent=as_text(self._head.get("harness")),
            model=self._model,
            created_at=self._created,
            met=self._met,
            tools=read_tool_specs(self._head.get("tools")),
        )


PLUGIN = HubSession
