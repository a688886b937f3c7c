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
from foretrace.sources.content_blocks import read_blocks, split_anthropic_reply
from foretrace.sources.conversation import read_time
from foretrace.sources.json_values import get_bool, get_dict, get_number, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import NO_TYPE, Session, find_main_line

AVAILABLE_TOOLS = "teich-available-tools"
"""Type of a custom entry that lists the tools, which the reader of `datasets` also knows."""
_IGNORED = frozenset({"thinking_level_change", "label", "custom"})
_SPOKEN = frozenset({"message", "custom_message", "compaction", "branch_summary"})
_ROLES = frozenset({
    "user", "toolResult", "system", "bashExecution", "custom", "hookMessage", "branchSummary", "compactionSummary",
})  # fmt: skip
"""Of messages that are not replies; after the first three, notices of the program."""


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
        session = Session(account, self.name, "pi")
        entries: list[tuple[int, dict[str, Any]]] = []
        parents: dict[str, str | None] = {}
        for number, record in account.drop_unread(read_records(path)):
            kind = get_text(record, "type")
            session.types[f"{kind or NO_TYPE} {get_text(get_dict(record, 'message'), 'role')}".strip()] += 1
            if kind == "session":
                if session.id:
                    account.ignore("session header")
                else:
                    session.use(record)
                    _read_header(session, record)
                continue
            if entry := get_text(record, "id"):
                parents[entry] = get_text(record, "parentId") or None
            if kind in _SPOKEN:
                entries.append((number, record))
            elif kind in ("session_info", "model_change"):
                session.use(record)
                session.note_title(get_text(record, "name"))
            elif record.get("customType") == AVAILABLE_TOOLS:
                account.use()
                session.tools = read_tool_specs(record.get("data"))
            else:
                session.skip(kind, kind in _IGNORED)
        session.id = session.id or path.name.partition(".jsonl")[0]
        main = find_main_line(parents, [*parents])
        for number, record in entries:
            entry = get_text(record, "id")
            if not entry or entry in main:
                _add_entry(session, number, record)
            else:
                session.skip_abandoned(entry, parents.get(entry))
        yield session.make_trace(path)


def _read_header(session: Session, record: dict[str, Any]) -> None:
    session.id = get_text(record, "id")
    session.folder = get_text(record, "cwd")
    session.created_at = get_text(record, "timestamp") or None
    session.extra["format_version"] = int(get_number(record, "version") or 1)
    if parent := get_text(record, "parentSession", "branchedFrom"):
        session.extra["forked_from"] = parent.replace("\\", "/").rsplit("/", 1)[-1]
    session.note_model(get_text(record, "modelId"))


def _add_entry(session: Session, number: int, record: dict[str, Any]) -> None:
    kind, at = get_text(record, "type"), read_time(record.get("timestamp"))
    message = get_dict(record, "message") if kind == "message" else record
    kind = get_text(message, "role") if kind == "message" else kind
    content = message.get("content", message.get("summary"))
    if kind == "assistant":
        _add_reply(session, number, record, at)
        return
    if message is not record and kind not in _ROLES:
        session.account.meet_unknown(f"message {kind}")
        return
    session.use(record, "" if message is record else "message")
    if kind == "user":
        session.add_content(content, number, at=at)
        return
    if kind == "bashExecution":
        content = f"$ {get_text(message, 'command')}\n{get_text(message, 'output')}"
    text, parts = read_blocks(content)
    if kind == "system":
        session.add_system(text, number, at=at)
    elif kind == "toolResult":
        failed = get_bool(message, "isError")
        session.add_result(get_text(message, "toolCallId"), text, number, is_error=failed, at=at, parts=parts)
    else:
        session.add_user(text, number, author="environment", at=at, parts=parts, extra={"kind": kind})


def _add_reply(session: Session, number: int, record: dict[str, Any], at: float | None) -> None:
    message = get_dict(record, "message")
    stop = get_text(message, "stopReason")
    session.account.note("errors of the model's API", stop == "error")
    if not (content := message.get("content")):
        session.account.ignore(f"reply without content ({stop or 'unknown'})")
        return
    session.use(record, "message")
    session.note_model(get_text(message, "model"))
    extra: dict[str, Any] = {"stop_reason": stop} if stop else {}
    forked_at = read_time(session.created_at) if "forked_from" in session.extra else None
    inherited = at is not None and forked_at is not None and at < forked_at
    if inherited:
        extra["inherited"] = True
    # The message's own stamp is the start of the reply; the entry's stamp is its end.
    began = read_time(message.get("timestamp"))
    said = split_anthropic_reply(content, session.account)
    session.add_reply(said, number, at=at, began=began, extra=extra, train=False if inherited else None)


PLUGIN = Pi
