"""Sessions of Hermes Agent: exported rows of messages, or saved trajectories of from and value. They hold no times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Outcome, Parent, ToolCall, ToolSpec, Trace
from foretrace.encodings.json_calls import TOOL_CALL_JSON
from foretrace.rows.base import Drop
from foretrace.rows.files import read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import make_row_id
from foretrace.sources.content_blocks import read_blocks
from foretrace.sources.conversation import Conversation, make_call, read_time, write_time
from foretrace.sources.json_values import get_dict, get_dicts, get_list, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import Session, add_user_content

_SPEAKERS = frozenset({"system", "human", "gpt", "tool"})


class Hermes:
    """A row is one session. Its stamps were written at the end of each turn, and so say nothing of times."""

    name = "hermes"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By messages with `session_id` and `tool_name`; or by `completed` beside conversations of system, human,
        gpt and tool."""
        first = head.first
        if get_text(first, "id") and any({"session_id", "tool_name"} <= m.keys() for m in get_dicts(first, "messages")):
            return "messages with session_id and tool_name"
        speakers = {get_text(turn, "from") for turn in get_dicts(first, "conversations")[:50]}
        if {"completed", "timestamp", "model"} <= first.keys() and speakers and speakers <= _SPEAKERS:
            return "conversations with completed, timestamp and model"
        return None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """A trace for each row."""
        for record in read_records(path):
            if isinstance(record, Drop):
                account.drop(record.reason)
                yield record
                continue
            yield _read_row(record, path, account)


def _read_row(row: dict[str, Any], path: Path, account: Account) -> Trace | Drop:
    parent = get_text(row, "parent_session_id")
    started = read_time(row.get("started_at", row.get("timestamp")))
    session = Session(
        source=Hermes.name,
        agent="hermes-agent",
        id=get_text(row, "id") or make_row_id(row),
        folder=get_text(row, "cwd"),
        parent=Parent(key=f"{Hermes.name}@{parent}") if parent else None,
        created_at=None if started is None else write_time(started),
    )
    session.models.update(filter(None, [get_text(row, "model")]))
    facts = {"title": get_text(row, "title"), "platform": get_text(row, "source")}
    session.extra.update({name: value for name, value in facts.items() if value})
    talk = Conversation(account)
    turns = "conversations" if get_list(row, "conversations") else "messages"
    talk.use({**row, turns: [turn for turn in get_list(row, turns) if not isinstance(turn, dict)]})
    if turns == "conversations":
        _read_turns(row, session, talk, account)
    else:
        _read_messages(row, session, talk, account)
    return session.make_trace(talk, path)


def _read_messages(row: dict[str, Any], session: Session, talk: Conversation, account: Account) -> None:
    if prompt := get_text(row, "system_prompt"):
        talk.add_system(prompt, 0)
    for number, message in enumerate(get_dicts(row, "messages")):
        role = get_text(message, "role")
        session.types[role or "(no role)"] += 1
        text, parts = read_blocks(message.get("content"))
        talk.use(message, count=0)
        if message.get("active") in (0, False):
            account.note("messages that were taken back")
        elif role == "user":
            add_user_content(talk, message.get("content"), number, at=None)
        elif role == "assistant":
            reasoning = get_text(message, "reasoning", "reasoning_content") or None
            calls = _read_calls(message.get("tool_calls"))
            talk.add_agent(number, text=text, reasoning=reasoning, calls=calls, parts=parts)
        elif role == "tool":
            name = get_text(message, "tool_name")
            extra = {"name": name} if name else {}
            talk.add_result(get_text(message, "tool_call_id"), text, number, parts=parts, extra=extra)
        elif role in ("system", "developer"):
            talk.add_system(text, number)
        else:
            account.note(f"messages of the unknown role {role[:40]!r}")


def _read_turns(row: dict[str, Any], session: Session, talk: Conversation, account: Account) -> None:
    """Calls and results stand in the text, between tags."""
    for number, turn in enumerate(get_dicts(row, "conversations")):
        speaker, text = get_text(turn, "from"), get_text(turn, "value")
        session.types[speaker or "(no speaker)"] += 1
        talk.use(turn, count=0)
        if speaker == "system":
            talk.add_system(text, number)
            session.tools = session.tools or _find_tools(text)
        elif speaker == "human":
            add_user_content(talk, text, number, at=None)
        elif speaker == "gpt":
            talk.add_agent(number, text=text, calls=TOOL_CALL_JSON.parse(text))
        elif speaker == "tool":
            talk.add_result("", text, number)
        else:
            account.note(f"messages of the unknown role {speaker[:40]!r}")
    completed = row.get("completed")
    if isinstance(completed, bool):
        session.outcome = Outcome(status="done" if completed else "limit")


def _read_call(call: dict[str, Any]) -> ToolCall:
    function = get_dict(call, "function") or call
    return make_call(get_text(call, "id", "call_id"), get_text(function, "name"), function.get("arguments"))


def _read_calls(value: Any) -> list[ToolCall]:
    """Calls as a list, or as the JSON text of one; text that is none is kept as a call that cannot be read."""
    calls = value
    if isinstance(value, str):
        try:
            calls = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return [make_call("", "", value)] if value.strip() else []
    return [_read_call(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _find_tools(prompt: str) -> tuple[ToolSpec, ...]:
    _, _, rest = prompt.partition("<tools>")
    return read_tool_specs(rest.partition("</tools>")[0].strip())


PLUGIN = Hermes
