"""A file that is one conversation: a JSON list of messages, or one message per line, with or without an envelope.

Such files come from Cline and Roo (`api_conversation_history.json`), Goose, Droid, Qwen Code, `claude -p
--output-format stream-json`, Pydantic AI, and programs that dump the messages of an API. A message is whatever `chat`
accepts as a turn of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.errors import count_things
from foretrace.core.trace import Parent, Task, Trace
from foretrace.rows.base import Drop, RowRef
from foretrace.rows.head import FileHead, read_objects
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.json_values import get_text
from foretrace.sources.row_messages import find_task_text
from foretrace.sources.row_turns import find_turns
from foretrace.sources.turn_items import flatten_turns, get_role, is_turn

_MAX_BEFORE = 20
"""The first message must be among this many records; those before it describe the file."""
_IDS = ("sessionId", "session_id", "thread_id", "sessionID", "conversation_id", "conversationId", "threadId", "chat_id")
_PARTIAL = frozenset({"stream_event"})
"""Types of records that are pieces of messages that also come whole."""
_GENERAL_NAMES = frozenset({"api_conversation_history", "ui_messages", "messages", "conversation", "events", "log"})
"""File names that say nothing: the folder's name is used instead."""


class MessageList:
    """The messages of a file are one trace, or one for each session that they name. Those of a subagent, which a call
    started (`parent_tool_use_id`), are another trace."""

    name = "message_list"
    license: str | None = None
    is_general = True
    """Many programs write messages, so the format of a known program is preferred."""

    def recognize(self, head: FileHead) -> str | None:
        """By records that are mostly messages, of the agent and of a user or tool. Records with a conversation in a
        column are rows; so are messages that are all of the agent, which answer separate questions."""
        records = [record for record in head.records if get_text(record, "type") not in _PARTIAL]
        messages = [n for n, record in enumerate(records) if _is_message(record)]
        if not messages or messages[0] >= _MAX_BEFORE or 2 * len(messages) <= len(records) - messages[0]:
            return None
        said = next((n for n in messages if "assistant" in _list_roles(records[n])), None)
        if said is None or not _is_answered(records) or find_turns(records[messages[0]]) is not None:
            return None
        return f"record {said + 1} is a message of the agent"

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        said: list[tuple[str, str, dict[str, Any]]] = []
        session = first = ""
        for record in read_objects(path):
            if isinstance(record, Drop):
                account.drop(record.reason)
                continue
            session = next(
                (str(record[k]) for k in _IDS if isinstance(record.get(k), (str, int)) and record[k]), session
            )
            first = first or session
            if _is_message(record):
                account.use()
                said.append((session, get_text(record, "parent_tool_use_id"), record))
            else:
                account.ignore(get_text(record, "type", "kind", "role") or "+".join(sorted(record)[:3]))
        first = first or _name_of(path)
        talks: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for session, call, record in said:  # those before the first one that names a session are of that session
            talks.setdefault((session or first, call), []).append(record)
        for (session, call), turns in talks.items():
            yield self._make_trace(session, call, turns, path)

    def _make_trace(self, own: str, call: str, turns: list[dict[str, Any]], path: Path) -> Trace | Drop:
        name = f"{own}/{call}" if call else own
        try:
            found = Chat().to_trace({"messages": turns}, RowRef(0, path.name))
        except RowError as error:
            return error.drop
        if isinstance(found, Drop):
            return Drop(
                "no_agent_turn", f"session {name}: no turn of the agent in {count_things(len(turns), 'message')}"
            )
        if not call and not _is_answered(turns):
            return Drop("no_user_turn", f"session {name}: {count_things(len(turns), 'message')}, all of the agent")
        key, asked = f"{self.name}@{name}", find_task_text(found.messages)
        created = next((m.started for m in found.messages if m.started), None)
        return msgspec.structs.replace(
            found,
            key=key,
            task=Task(id=digest(key), group=digest(f"{self.name}:{own}"), kind="session", statement=asked or None),
            provenance=msgspec.structs.replace(
                found.provenance, source=self.name, raw_id=name, raw_row=None, split=None, created_at=created
            ),
            parent=Parent(key=f"{self.name}@{own}", call_id=call) if call else None,
        )


def _is_message(record: dict[str, Any]) -> bool:
    """Whether a record is a message. A role and a text are not enough: lists of staff and e-mails have these, too."""
    named = "role" in record or "from" in record
    is_vague = named and not record.keys() & {"content", "value", "parts", "blocks", "tool_calls", "function_call"}
    return not is_vague and is_turn(record)


def _list_roles(record: dict[str, Any]) -> set[str | None]:
    return {get_role(item) for _, item in flatten_turns([(None, record)])} if _is_message(record) else set()


def _is_answered(records: Iterable[dict[str, Any]]) -> bool:
    """Whether somebody asks the agent something, or a tool answers it."""
    return any(_list_roles(record) & {"user", "tool"} for record in records)


def _name_of(path: Path) -> str:
    """The file's name without suffixes; its folder's name if the file's says nothing."""
    name = path.name.partition(".")[0] or path.name.lstrip(".").partition(".")[0]
    return path.parent.name if name in _GENERAL_NAMES and path.parent.name else name


PLUGIN = MessageList
