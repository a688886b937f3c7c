"""Sessions that Hermes Agent exports: rows of messages, without times. Saved trajectories are read as `chat`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from foretrace.core.trace import Parent, ToolCall, Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import make_row_id
from foretrace.sources.content_blocks import make_function_call, read_blocks
from foretrace.sources.conversation import make_call, read_time, write_time
from foretrace.sources.file_traces import RecordFiles
from foretrace.sources.json_values import as_dicts, decode_json, get_dicts, get_list, get_text
from foretrace.sources.sessions import Session


class Hermes(RecordFiles):
    """A row is one session. Its stamps were written at the end of each turn, so they do not show durations."""

    name = "hermes"

    def recognize(self, head: FileHead) -> str | None:
        """By messages with `session_id` and `tool_name`."""
        first = head.first
        if get_text(first, "id") and any({"session_id", "tool_name"} <= m.keys() for m in get_dicts(first, "messages")):
            return "messages with session_id and tool_name"
        return None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        parent = get_text(record, "parent_session_id")
        started = read_time(record.get("started_at", record.get("timestamp")))
        session = Session(account, Hermes.name, "hermes-agent", get_text(record, "id") or make_row_id(record))
        session.folder = get_text(record, "cwd")
        session.parent = Parent(key=f"{Hermes.name}@{parent}") if parent else None
        session.created_at = None if started is None else write_time(started)
        session.note_model(get_text(record, "model"))
        facts = {"title": get_text(record, "title"), "platform": get_text(record, "source")}
        session.extra.update({name: value for name, value in facts.items() if value})
        rest = [message for message in get_list(record, "messages") if not isinstance(message, dict)]
        session.use({**record, "messages": rest})
        _read_messages(record, session)
        yield session.make_trace(path)


def _read_messages(row: dict[str, Any], session: Session) -> None:
    if prompt := get_text(row, "system_prompt"):
        session.add_system(prompt, 0)
    for number, message in enumerate(get_dicts(row, "messages")):
        role = get_text(message, "role")
        session.types[role or "(no role)"] += 1
        text, parts = read_blocks(message.get("content"))
        session.use(message, count=0)
        if message.get("active") in (0, False):
            session.account.note("messages that were taken back")
        elif role == "user":
            session.add_content(message.get("content"), number)
        elif role in ("assistant", "tool", "system", "developer"):
            name = get_text(message, "tool_name") if role == "tool" else ""
            session.add(
                role.replace("developer", "system"), text, number, parts=parts, extra={"name": name} if name else {},
                reasoning=get_text(message, "reasoning", "reasoning_content") or None,
                calls=_read_calls(message.get("tool_calls")), call_id=get_text(message, "tool_call_id"),
            )  # fmt: skip
        else:
            session.account.note(f"messages of the unknown role {role[:40]!r}")


def _read_calls(value: Any) -> list[ToolCall]:
    """Calls from a list or the JSON text of one; other text is kept as a call that cannot be read."""
    calls = decode_json(value)
    if calls is None and isinstance(value, str):
        return [make_call("", "", value)] if value.strip() not in ("", "null") else []
    return [make_function_call(call) for call in as_dicts(calls)]


PLUGIN = Hermes
