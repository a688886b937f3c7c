"""A file that is one conversation: a JSON list of messages, or one message per line, with or without an envelope.

Such files come from Cline and Roo (`api_conversation_history.json`), Goose, Droid, Qwen Code, `claude -p
--output-format stream-json`, Pydantic AI, and programs that dump the messages of an API. A message is
whatever `chat` accepts as a turn of a row.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Parent, Task, Trace
from foretrace.rows.base import Drop, RowRef
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
from foretrace.sources.chat import Chat
from foretrace.sources.json_values import get_text, read_objects
from foretrace.sources.row_messages import find_task_text
from foretrace.sources.row_turns import find_turns
from foretrace.sources.toolkit_messages import is_task, open_list, read_toolkit
from foretrace.sources.turn_items import ROLES, flatten_turns, is_agent, is_turn

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
        listed = head.records or ((head.document,) if head.document else ())
        opened = [each for record in listed for each in open_list(record)]
        # A document that is not a list is a message by itself, not a conversation.
        records = [each for each in opened if get_text(each, "type") not in _PARTIAL and each is not head.document]
        messages = [n for n, record in enumerate(records) if _is_message(record)]
        if not messages or messages[0] >= _MAX_BEFORE or find_turns(records[messages[0]]) is not None:
            return None
        if 2 * len(messages) <= len(records) - messages[0]:
            return None
        said = next((n for n in messages if _is_of_agent(records[n])), None)
        if said is None or not _is_answered(records):
            return None
        return f"record {said + 1} is a message of the agent"

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """A trace for each session, and for each conversation that a call started."""
        talks: dict[tuple[str, str], list[dict[str, Any]]] = {}
        types: Counter[str] = Counter()
        session = own = ""
        for record in itertools.chain.from_iterable(map(open_list, read_objects(path))):
            if isinstance(record, Drop):
                account.drop(record.reason)
                continue
            session = _find_session(record) or session
            own = own or session
            if _is_message(record) or is_task(record):
                account.use()
                talks.setdefault((session, get_text(record, "parent_tool_use_id")), []).append(record)
            else:
                kind = get_text(record, "type", "kind", "role") or "+".join(sorted(record)[:3])
                types[kind] += 1
                account.ignore(kind)
        own = own or _name_of(path)
        for (session, call), turns in _join_first(talks, own).items():
            yield self._make_trace(session, call, turns, path, types)

    def _make_trace(
        self, own: str, call: str, turns: list[dict[str, Any]], path: Path, types: Counter[str]
    ) -> Trace | Drop:
        name = f"{own}/{call}" if call else own
        try:
            found = Chat().to_trace({"messages": turns}, RowRef(0, path.name))
        except RowError as error:
            return error.drop
        if not call and not isinstance(found, Drop) and not _is_answered(turns):
            return Drop("no_user_turn", f"session {name}: {len(turns)} messages, all of the agent")
        if isinstance(found, Drop):
            met = ", ".join(f"{count} {kind}" for kind, count in types.most_common(8)) or "none"
            return Drop("no_agent_turn", f"session {name}: no turn of the agent; other records: {met}")
        key = f"{self.name}@{name}"
        asked = find_task_text(found.messages)
        return msgspec.structs.replace(
            found,
            key=key,
            task=Task(id=digest(key), group=digest(f"{self.name}:{own}"), kind="session", statement=asked or None),
            provenance=msgspec.structs.replace(
                found.provenance,
                source=self.name,
                raw_id=name,
                raw_row=None,
                split=None,
                created_at=next((m.started for m in found.messages if m.started), None),
            ),
            parent=Parent(key=f"{self.name}@{own}", call_id=call) if call else None,
        )


def _is_message(record: dict[str, Any]) -> bool:
    """Whether a record is a message. A role and a text are not enough: lists of staff and e-mails have these, too."""
    named = "role" in record or "from" in record
    is_vague = named and not record.keys() & {"content", "value", "parts", "blocks", "tool_calls", "function_call"}
    return is_turn(record) and not is_vague


def _is_answered(records: list[dict[str, Any]]) -> bool:
    """Whether somebody asks the agent something, or a tool answers it."""
    return any(is_task(record) or (_is_message(record) and _is_of_another(record)) for record in records)


def _is_of_another(record: dict[str, Any]) -> bool:
    """Whether a message is from a user or a tool, or contains one: steps of toolkits contain their results."""
    try:
        messages = list(flatten_turns([(None, record)], (None, None)))
    except RowError:
        return False
    names = [str(each.get("role", each.get("from"))).lower() for _, each in messages]
    return any(ROLES.get(name) in ("user", "tool") for name in names)


def _find_session(record: dict[str, Any]) -> str:
    """The id of the session that a record names, a text or a number; empty if there is none."""
    return next((str(record[key]) for key in _IDS if record.get(key) and isinstance(record[key], (str, int))), "")


def _join_first(
    talks: dict[tuple[str, str], list[dict[str, Any]]], own: str
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The conversations, with messages before the first one that names a session moved to that session. If there are no
    messages, one empty conversation."""
    joined: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (session, call), turns in talks.items():
        joined.setdefault((session or own, call), []).extend(turns)
    return joined or {(own, ""): []}


def _is_of_agent(record: dict[str, Any]) -> bool:
    return any(is_agent(each) for each in read_toolkit(record) or (record,)) or get_text(record, "type") in (
        "ai",
        "function_call",
    )


def _name_of(path: Path) -> str:
    """The file's name without suffixes; its folder's name if the file's says nothing."""
    name = path.name.partition(".")[0] or path.name.lstrip(".").partition(".")[0]
    return path.parent.name if name in _GENERAL_NAMES and path.parent.name else name


PLUGIN = MessageList
