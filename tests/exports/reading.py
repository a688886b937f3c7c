"""Read back what was exported, with foretrace's own sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core import plugins
from foretrace.core.trace import Trace
from foretrace.exports.base import Exported, Family, drop_numbers
from foretrace.registry import make_format
from foretrace.rows.base import Drop, RowRef
from foretrace.sources.account import Account
from foretrace.sources.chat import Chat


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


def as_carried(trace: Trace) -> Trace:
    """The trace as spans carry it: without token ids and logprobs."""
    return msgspec.structs.replace(trace, id="", messages=tuple(map(drop_numbers, trace.messages)))


def count_turns(trace: Trace) -> dict[str, Any]:
    """Turns, calls and results."""
    said = [message for message in trace.messages if message.role == "assistant"]
    return {
        "turns": len(said),
        "calls": sum(len(message.tool_calls) for message in said),
        "results": sum(message.role == "tool" for message in trace.messages),
    }
