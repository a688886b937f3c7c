"""Tools of agents whose source does not say what they were offered, inferred from the calls of train groups.

A trace is offered what attempts of other groups called: never its own future, nor that of a test group. Traces are of
one agent where the source names it, else where their first message begins alike; others are offered nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import ToolCall, ToolSpec, Trace

DESCRIPTION = "Inferred from calls of this agent in other tasks: the source does not say what it was offered."
MAX_TOOLS = 128
"""Tools of one agent; where more are called, they are not those of one agent, and none is inferred."""
MAX_ARGUMENTS = 32
"""Arguments of one tool; where more are given, none is told."""
MAX_BEGINNINGS = 2000
"""Beginnings of a source's traces; where there are more, they are tasks and not agents."""
_BEGINNING = 100
"""Characters by which two first messages begin alike."""
_SHORTEST = {"system": 40, "user": 100}
"""Role of the first message -> characters below which it may be any agent's: `You are a helpful assistant.`"""
_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,63}")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}

_Groups = tuple[str, ...]
"""The two smallest digests of the groups in which something was seen: enough to know whether it was seen in another."""
_Arguments = dict[str, dict[str, _Groups]]
"""Name -> JSON type -> groups."""


class _Tool(msgspec.Struct):
    """What was seen of one tool."""

    groups: _Groups = ()
    arguments: _Arguments | None = msgspec.field(default_factory=dict)
    """`None` where there were too many."""


_Tools = dict[str, _Tool]


class InferredTools(msgspec.Struct):
    """The tools that agents were seen to call. Its size is bounded, whatever the number of traces."""

    agents: dict[str, dict[str, _Tools | None] | None] = msgspec.field(default_factory=dict)
    """Source and how its agents are told apart -> agent -> tools; `None` where there were too many."""

    def add_trace(self, trace: Trace) -> None:
        """Note the calls of a trace of a train group, unless its source gives the tools."""
        agent = _find_agent(trace)
        if agent is None or trace.tools:
            return
        group = digest(trace.task.group)
        tools: _Tools = {}
        for message in trace.messages:
            for call in message.tool_calls if message.author == "model" else ():
                if not call.error and _NAME.fullmatch(call.name):
                    _merge_tool(tools, call.name, _read_call(call, group))
        if tools:
            self._merge(agent[0], {agent[1]: tools})

    def merge(self, other: InferredTools) -> None:
        """Add what another job noted; the order of jobs does not matter."""
        for source, agents in other.agents.items():
            self._merge(source, agents)

    def _merge(self, source: str, more: Mapping[str, _Tools | None] | None) -> None:
        agents = self.agents.setdefault(source, {})
        if agents is None or more is None:
            self.agents[source] = None
            return
        for agent, tools in more.items():
            known = agents.setdefault(agent, {})
            if known is None or tools is None:
                agents[agent] = None
                continue
            for name, tool in tools.items():
                _merge_tool(known, name, tool)
            if len(known) > MAX_TOOLS:
                agents[agent] = None
        if len(agents) > MAX_BEGINNINGS:
            self.agents[source] = None

    def offer(self, trace: Trace) -> Trace:
        """The trace with the tools inferred for it, or as it is: where it has tools, or none is known."""
        if trace.tools:
            return trace
        tools = self._find_tools(trace)
        group = digest(trace.task.group)
        specs = tuple(
            _make_spec(name, tools[name], group) for name in sorted(tools) if _is_elsewhere(tools[name], group)
        )
        return msgspec.structs.replace(trace, tools=specs) if specs else trace

    def _find_tools(self, trace: Trace) -> _Tools:
        agent = _find_agent(trace)
        return {} if agent is None else (self.agents.get(agent[0]) or {}).get(agent[1]) or {}


def infer_tools(traces: Iterable[Trace], splits: Mapping[str, str]) -> InferredTools:
    """Note what agents call in the traces of train groups.

    Args:
        traces: In any order.
        splits: Split of each group.
    """
    inferred = InferredTools()
    for trace in traces:
        if splits.get(trace.task.group) == "train":
            inferred.add_trace(trace)
    return inferred


def _find_agent(trace: Trace) -> tuple[str, str] | None:
    """Whose traces this is one of: where to look (source), and who; `None` where nothing says so."""
    origin = trace.provenance
    if origin.agent:
        return f"{origin.source} agent", origin.agent
    first = trace.messages[0] if trace.messages else None
    if first is None or first.role not in _SHORTEST or len(first.content) < _SHORTEST[first.role]:
        return None
    return f"{origin.source} beginning", digest(first.content[:_BEGINNING])


def _read_call(call: ToolCall, group: str) -> _Tool:
    try:
        values: Any = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return _Tool((group,))
    named = {name: value for name, value in values.items() if _NAME.fullmatch(name)}
    if len(named) > MAX_ARGUMENTS:
        return _Tool((group,), None)
    return _Tool((group,), {name: {_TYPES.get(type(value), "null"): (group,)} for name, value in named.items()})


def _merge_tool(tools: _Tools, name: str, more: _Tool) -> None:
    tool = tools.setdefault(name, _Tool())
    tool.groups = _merge_groups(tool.groups, more.groups)
    if tool.arguments is None or more.arguments is None:
        tool.arguments = None
        return
    for argument, types in more.arguments.items():
        known = tool.arguments.setdefault(argument, {})
        for kind, groups in types.items():
            known[kind] = _merge_groups(known.get(kind, ()), groups)
    if len(tool.arguments) > MAX_ARGUMENTS:
        tool.arguments = None


def _merge_groups(some: Iterable[str], others: Iterable[str]) -> _Groups:
    return tuple(sorted({*some, *others})[:2])


def _is_elsewhere(tool: _Tool, group: str) -> bool:
    return any(each != group for each in tool.groups)


def _make_spec(name: str, tool: _Tool, group: str) -> ToolSpec:
    """The tool as it was seen in other groups than this one."""
    properties: dict[str, Any] = {}
    for argument, types in sorted((tool.arguments or {}).items()):
        kinds = sorted(kind for kind, groups in types.items() if any(each != group for each in groups))
        if kinds:
            properties[argument] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    schema = {"type": "object", "properties": properties}
    return ToolSpec(name=name, description=DESCRIPTION, parameters=msgspec.json.encode(schema).decode())
