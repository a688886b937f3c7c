"""Read a file as a source does it, with the account checked."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foretrace.core import plugins
from foretrace.core.trace import Message, Trace, add_trace_id, decode_trace, encode_trace
from foretrace.rows.base import Drop
from foretrace.rows.head import read_head
from foretrace.sources.account import Account

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of shared development data is not there")


class Read(NamedTuple):
    """All that a source finds in a file."""

    traces: list[Trace]
    drops: list[Drop]
    account: Account

    @property
    def messages(self) -> tuple[Message, ...]:
        """Those of the only trace."""
        (trace,) = self.traces
        return trace.messages


def read(name: str, path: Path) -> Read:
    """All that a source finds in a file: traces (each written and read back), drops, and the account, which adds up."""
    account = Account()
    traces, drops = list[Trace](), list[Drop]()
    for result in plugins.load_plugin("source", name)().read_traces(path, account):
        if isinstance(result, Drop):
            drops.append(result)
        else:
            traces.append(decode_trace(encode_trace(add_trace_id(result))))
    account.check()
    assert len({trace.key for trace in traces}) == len(traces), "two traces with one key"
    assert all(trace.provenance.source == name and trace.key.startswith(f"{name}@") for trace in traces)
    return Read(traces, drops, account)


def read_one(name: str, path: Path) -> tuple[Trace, Account]:
    """The one trace of a file."""
    traces, drops, account = read(name, path)
    assert len(traces) == 1 and not drops, (traces, drops)
    return traces[0], account


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    """A file of JSON lines; a text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_document(path: Path, value: Any) -> Path:
    """A file of one JSON value, indented."""
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return path


def recognize(path: Path) -> dict[str, str]:
    """Names of the sources of files that claim a file, with what each says of it; not of those that know a shape only,
    which are asked last."""
    head = read_head(path)
    claims: dict[str, str] = {}
    for name in plugins.BUILT_IN["source"]:
        source = plugins.load_plugin("source", name)()
        is_asked = hasattr(source, "read_traces") and not getattr(source, "is_general", False)
        if is_asked and (reason := source.recognize(head)):
            claims[name] = reason
    return claims


def count(trace: Trace) -> dict[str, int]:
    """Turns of the agent, calls and results of a trace."""
    turns = [m for m in trace.messages if m.role == "assistant" and m.author != "demo"]
    results = [m for m in trace.messages if m.role == "tool"]
    return {"turns": len(turns), "calls": sum(len(m.tool_calls) for m in turns), "results": len(results)}


def outline(trace: Trace) -> list[tuple[str, str, str]]:
    """Role, author and the beginning of each message, or the names of its calls."""
    return [(m.role, m.author, _describe(m)) for m in trace.messages]


def _describe(message: Message) -> str:
    return message.content[:40] or "+".join(call.name for call in message.tool_calls)


def find_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from find_places(value[key], (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place."""
    made = copy.deepcopy(value)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return made
