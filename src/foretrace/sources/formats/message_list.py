"""A file that is one conversation: a JSON list of messages, or a message a line, with or without an envelope.

So write Cline and Roo (`api_conversation_history.json`), Goose, Droid, Qwen Code, `claude -p --output-format
stream-json`, Pydantic AI, Semantic Kernel, and whoever dumps the messages of an API. A message is what `chat` takes for
a turn of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
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
from foretrace.sources.toolkit_messages import read_toolkit
from foretrace.sources.turn_items import is_agent, is_turn

_MAX_BEFORE = 20
"""Records that are no messages which may stand before the first one: what the file is about."""
_IDS = ("sessionId", "session_id", "thread_id", "sessionID")
_GENERAL_NAMES = frozenset({"api_conversation_history", "ui_messages", "messages", "conversation", "events", "log"})
"""Names of files that say nothing: the folder does."""


class MessageList:
    """The messages of one file are one trace; those that a call of another one started (`parent_tool_use_id`) are a
    trace of their own."""

    name = "message_list"
    license: str | None = None
    is_general = True
    """Many programs write messages: one that is known goes before."""

    def recognize(self, head: FileHead) -> str | None:
        """By records that are messages, of the agent among them, and hold no conversation in a column."""
        records = head.records
        first = next((n for n, record in enumerate(records[:_MAX_BEFORE]) if is_turn(record)), None)
        if first is None or find_turns(records[first]) is not None:
            return None
        said = next((n for n, record in enumerate(records) if is_turn(record) and _is_of_agent(record)), None)
        return None if said is None else f"record {said + 1} is a message of the agent"

    def list_companions(self, path: Path) -> Iterable[Path]:
        """None: a file stands alone."""
        return ()

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The conversation, then those within it."""
        talks: dict[str, list[dict[str, Any]]] = {"": []}
        types: Counter[str] = Counter()
        session = ""
        for record in read_objects(path):
            if isinstance(record, Drop):
                account.drop(record.reason)
                continue
            session = session or get_text(record, *_IDS)
            if is_turn(record):
                account.use()
                talks.setdefault(get_text(record, "parent_tool_use_id"), []).append(record)
            else:
                kind = get_text(record, "type", "kind", "role") or "+".join(sorted(record)[:3])
                types[kind] += 1
                account.ignore(kind)
        own = session or _name_of(path)
        for call, turns in talks.items():
            yield self._make_trace(own, call, turns, path, types)

    def _make_trace(
        self, own: str, call: str, turns: list[dict[str, Any]], path: Path, types: Counter[str]
    ) -> Trace | Drop:
        name = f"{own}/{call}" if call else own
        try:
            found = Chat().to_trace({"messages": turns}, RowRef(0, path.name))
        except RowError as error:
            return error.drop
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
                found.provenance, source=self.name, raw_id=name, raw_row=None, split=None
            ),
            parent=Parent(key=f"{self.name}@{own}", call_id=call) if call else None,
        )


def _is_of_agent(record: dict[str, Any]) -> bool:
    return any(is_agent(each) for each in read_toolkit(record) or (record,)) or get_text(record, "type") in (
        "ai",
        "function_call",
    )


def _name_of(path: Path) -> str:
    """What the file is called without its endings; its folder where that says nothing."""
    name = path.name.partition(".")[0] or path.name.lstrip(".").partition(".")[0]
    return path.parent.name if name in _GENERAL_NAMES and path.parent.name else name


PLUGIN = MessageList
