"""Tools of agents whose source does not list them, inferred from the calls of train groups.

A trace is offered the tools called in other groups, never from its own future or a test group. Traces belong to the
same agent if the source says so, or else if their first messages begin alike; other traces are offered nothing.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import ToolCall, ToolSpec, Trace
from foretrace.encodings.json_arguments import try_decode

DESCRIPTION = "Inferred from calls of this agent in other tasks: the source does not say what it was offered."
MAX_TOOLS = 128
"""Most tools of one agent. If more are called, they belong to several agents, and no tools are inferred."""
MAX_ARGUMENTS = 32
"""Most arguments of one tool. If more are given, none are shown."""
MAX_BEGINNINGS = 2000
"""Most beginnings of a source's traces. If there are more, they are tasks rather than agents."""
_BEGINNING = 100
"""Characters of the first message that identify an agent."""
_SHORTEST = {"system": 40, "user": 100}
"""Fewest characters of a first message, by role. A shorter one may be any agent's: `You are a helpful assistant.`"""
_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,63}")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}

_Groups = tuple[str, ...]
"""The two smallest digests of groups in which something was seen, enough to know whether another group has seen it."""
_CALLED, _GIVEN = "called", "given"
"""What is known of a tool: that it was called (`{"": {"": groups}}`), and its arguments (`{argument: {JSON type:
groups}}`)."""


class InferredTools(msgspec.Struct):
    """The tools that agents called. Its size is bounded for any number of traces."""

    agents: dict[str, Any] = msgspec.field(default_factory=dict)
    """Source and how its agents are distinguished -> agent -> tool -> what is known of it; `None` if over a limit."""

    def add_trace(self, trace: Trace) -> None:
        """Note the calls of a trace of a train group, unless its source gives the tools."""
        agent = _find_agent(trace)
        if agent is None or trace.tools:
            return
        group = digest(trace.task.group)
        for message in trace.messages:
            for call in message.tool_calls if message.author == "model" else ():
                if not call.error and _NAME.fullmatch(call.name):
                    known = {_CALLED: {"": {"": (group,)}}, _GIVEN: _read_arguments(call, group)}
                    _merge(self.agents, {agent[0]: {agent[1]: {call.name: known}}})

    def merge(self, other: InferredTools) -> None:
        """Add what another job noted, in any order."""
        _merge(self.agents, other.agents)

    def offer(self, trace: Trace) -> Trace:
        """The trace with its inferred tools; unchanged if it has tools, or none are known."""
        agent = _find_agent(trace)
        if trace.tools or agent is None:
            return trace
        tools: dict[str, Any] = (self.agents.get(agent[0]) or {}).get(agent[1]) or {}
        group = digest(trace.task.group)
        specs = tuple(
            _make_spec(name, tools[name][_GIVEN] or {}, group)
            for name in sorted(tools)
            if {*tools[name][_CALLED][""][""]} - {group}
        )
        return msgspec.structs.replace(trace, tools=specs) if specs else trace


def _merge(known: Any, more: Any, depth: int = 0) -> Any:
    """`known` extended by `more`, which has the same shape; `None` if it exceeds a limit."""
    if known is None or more is None:
        return None
    if isinstance(more, tuple):
        return tuple(sorted({*known, *more})[:2])
    for name, each in more.items():
        known[name] = _merge(known.get(name, () if isinstance(each, tuple) else {}), each, depth + 1)
    most = {1: MAX_BEGINNINGS, 2: MAX_TOOLS, 4: MAX_ARGUMENTS}.get(depth)
    return known if most is None or len(known) <= most else None


def _find_agent(trace: Trace) -> tuple[str, str] | None:
    """The agent of a trace: where to look it up (source), and which one; `None` if it is unknown."""
    origin = trace.provenance
    if origin.agent:
        return f"{origin.source} agent", origin.agent
    first = trace.messages[0] if trace.messages else None
    if first is None or first.role not in _SHORTEST or len(first.content) < _SHORTEST[first.role]:
        return None
    return f"{origin.source} beginning", digest(first.content[:_BEGINNING])


def _read_arguments(call: ToolCall, group: str) -> dict[str, dict[str, _Groups]]:
    values = try_decode(call.arguments)
    named = values.items() if isinstance(values, dict) else ()
    return {name: {_TYPES.get(type(value), "null"): (group,)} for name, value in named if _NAME.fullmatch(name)}


def _make_spec(name: str, given: dict[str, dict[str, _Groups]], group: str) -> ToolSpec:
    properties: dict[str, Any] = {}
    for argument, types in sorted(given.items()):
        kinds = sorted(kind for kind, groups in types.items() if {*groups} - {group})
        if kinds:
            properties[argument] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    schema = {"type": "object", "properties": properties}
    return ToolSpec(name=name, description=DESCRIPTION, parameters=msgspec.json.encode(schema).decode())
