"""Read back what was exported, with foretrace's own sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core import plugins
from foretrace.core.trace import Message, Trace
from foretrace.exports.base import Exported, Family
from foretrace.registry import make_format
from foretrace.rows.base import Drop, RowRef
from foretrace.sources.account import Account
from foretrace.sources.chat import Chat

WITH_KEPT_FIELDS = ("atif", "hub_session", "otlp")
"""Formats with a place that is free for anything."""
TOKENS = ("hub_session", "otlp")
"""Formats that lose the tokens."""


def export(name: str, *families: Family) -> bytes:
    """What a format makes of these traces."""
    found = [make_format(name).write(family) for family in families]
    assert all(isinstance(done, Exported) for done in found), found
    return b"".join(done.data for done in found if isinstance(done, Exported))


def read_back(name: str, data: bytes, folder: Path) -> list[Trace]:
    """The traces that the format's own source finds in a file."""
    path = folder / "exported.json"
    path.write_bytes(data)
    account = Account()
    found = list(plugins.load_plugin("source", name.partition(":")[0])().read_traces(path, account))
    account.check()
    assert not [drop for drop in found if isinstance(drop, Drop)], found
    return [trace for trace in found if isinstance(trace, Trace)]


def read_rows(data: bytes) -> list[Trace]:
    """The traces that the source `chat` finds in rows."""
    chat = Chat()
    found = [chat.to_trace(json.loads(line), RowRef(row=n)) for n, line in enumerate(data.splitlines())]
    return [trace for trace in found if isinstance(trace, Trace)]


def as_carried(trace: Trace, name: str) -> Trace:
    """The trace as a format with a free place carries it: without what it loses."""
    messages = tuple(_as_carried(message, name) for message in trace.messages)
    return msgspec.structs.replace(trace, id="", messages=messages)


def _as_carried(message: Message, name: str) -> Message:
    sampled = message.sampled
    if sampled is not None and name in TOKENS:
        sampled = msgspec.structs.replace(sampled, token_ids=(), logprobs=(), prompt_token_ids=None)
    return msgspec.structs.replace(message, sampled=sampled)


def count_turns(trace: Trace) -> dict[str, Any]:
    """Turns, calls and results."""
    said = [message for message in trace.messages if message.role == "assistant"]
    return {
        "turns": len(said),
        "calls": sum(len(message.tool_calls) for message in said),
        "results": sum(message.role == "tool" for message in trace.messages),
    }
