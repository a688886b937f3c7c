"""SWE-smith trajectories in their three encodings: `tool` (native calls), `xml` and `ticks` (calls as text)."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from foretrace.core.trace import Message, Outcome, Provenance, Task, ToolSpec, Trace
from foretrace.encodings.base import Encoding
from foretrace.encodings.calls_in_text import remove_calls
from foretrace.encodings.fence import FENCE
from foretrace.encodings.parameter_tags import FUNCTION_XML
from foretrace.rows.base import Drop, Hub, RowRef
from foretrace.rows.head import FileHead
from foretrace.sources.argument_types import type_arguments
from foretrace.sources.base import UNCLEAR, RowError, make_row_id
from foretrace.sources.content_blocks import read_content
from foretrace.sources.json_values import read_success
from foretrace.sources.known_tools import SWE_AGENT, find_known_tools
from foretrace.sources.openai_messages import find_unknown_fields
from foretrace.sources.repositories import find_repository
from foretrace.sources.row_messages import make_messages
from foretrace.sources.row_turns import decode_turns, get_path
from foretrace.sources.turn_items import flatten_turns

Split = Literal["tool", "xml", "ticks"]

REWRITTEN_ENDING = "Since we have successfully fixed the issue and verified it works, let's submit the changes:"
"""The xml split replaces the turn at which a run met its limit with this text; the agent never wrote it."""
_COLUMNS = frozenset({"messages", "instance_id", "resolved", "model", "traj_id", "patch", "id"})
_INSTANCE = re.compile(r"[^/.]+__[^/]+?\.[0-9a-f]{8}\.\w")
_LIMIT = re.compile(r"^Exit due to (\w+(?: \w+)*)\s*$")
_ENCODINGS: dict[Split, Encoding] = {"xml": FUNCTION_XML, "ticks": FENCE}
_MINI = "<returncode>"
"""What mini-swe-agent writes before an output: its rows of the same instances are read as chats."""
_VOTES = 5
"""Number of turns that decide the encoding."""
_TYPES = {"model": str, "traj_id": str}
_FUNCTION = re.compile(r"\d+: (\S+) ----\n")
_PARAMETER = re.compile(r"^[ \t]*\(\d+\) (\w+) \((\w+), (required|optional)\): ?(.*)$", re.MULTILINE)


class SweSmith:
    """`patch` stays in `extra` and is never used: in published rows it belongs to another instance."""

    name = "swe_smith"
    license = "MIT"
    hub = Hub("SWE-bench/SWE-smith-trajectories", "tool")

    def recognize(self, head: FileHead) -> str | None:
        """By its columns and the form of its instance ids, `owner__name.0123abcd.kind__suffix`."""
        for row in head.rows:
            instance = row.get("instance_id")
            is_ours = "messages" in row and row.keys() <= _COLUMNS and _MINI not in str(row["messages"])
            if is_ours and isinstance(instance, str) and _INSTANCE.match(instance):
                return f"messages, and the instance_id of a made bug: {instance[:80]}"
        return None

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        """One row is one attempt at one instance."""
        raw = decode_turns(get_path(row, "messages"), "messages")
        instance = row.get("instance_id")
        if not isinstance(instance, str) or not instance:
            raise RowError("missing_column", "instance_id")
        split = _find_split(raw)
        start = next((i for i, m in enumerate(raw) if m.get("role") == "assistant"), len(raw))
        read = make_messages(list(flatten_turns(enumerate(raw), (None, None))), _ENCODINGS.get(split))
        messages = tuple(_unify(message, start) for message in read)
        resolved = row.get("resolved")
        known = ["resolved"] if read_success(resolved) is not None else []
        messages, outcome = _find_outcome(messages, resolved)
        if not any(m.role == "assistant" for m in messages):
            return Drop("empty_trace", "no assistant message")
        tools = _read_tools(messages)
        is_known = not tools and find_known_tools(messages) is SWE_AGENT
        if is_known:
            tools = SWE_AGENT.tools
        typed = {k: row[k] for k, kind in _TYPES.items() if isinstance(row.get(k), kind)}
        raw_id = typed.get("traj_id")
        own = raw_id or make_row_id(row)
        return Trace(
            key=f"{self.name}@{at.revision or 'local'}/{at.split or split}:{own}",
            task=Task(id=instance, group=find_repository(instance), kind="swe"),
            tools=tools,
            messages=type_arguments(messages, tools),
            outcome=outcome,
            provenance=Provenance(
                origin="imported",
                source=self.name,
                revision=at.revision,
                split=at.split or split,
                raw_file=at.file,
                raw_row=at.row,
                raw_id=raw_id,
                license=self.license,
                agent="SWE-agent",
                model=typed.get("model"),
                protocol=split,
                transforms=(f"tools of {SWE_AGENT.agent}",) if is_known else (),
            ),
            extra=find_unknown_fields(row, frozenset({"messages", "instance_id", *typed, *known}))
            | ({UNCLEAR: {"success": f"resolved is {resolved!r}"[:80]}} if resolved is not None and not known else {}),
        )


def _find_split(raw: list[dict[str, Any]]) -> Split:
    """Find the encoding from the messages, as a row may come without the name of its split."""
    tagged = fenced = 0
    for message in raw:
        if message.get("role") in ("tool", "function") or message.get("tool_calls"):
            return "tool"
        if message.get("role") == "assistant":
            text, _ = read_content(message.get("content"))
            tagged += "<function=" in text
            fenced += text.rstrip().endswith("\n```")
        if tagged + fenced == _VOTES:
            break
    # If the task is about an agent's source code, the text may contain the tags of the other encoding.
    if not tagged and not fenced:
        return "tool"
    return "xml" if tagged >= fenced else "ticks"


def _unify(message: Message, start: int) -> Message:
    """The message as in all three encodings: after the agent's first turn, user messages are the environment's."""
    extra = message.extra
    if extra.get("thought") == message.content:
        extra = {name: value for name, value in extra.items() if name != "thought"}
    if message.role == "user" and (message.raw_index or 0) > start:
        return msgspec.structs.replace(message, role="tool", author="environment", raw_role="user", extra=extra)
    return msgspec.structs.replace(message, extra=extra)


def _find_outcome(messages: tuple[Message, ...], resolved: Any) -> tuple[tuple[Message, ...], Outcome]:
    """How the attempt ended. An attempt that met a limit is not a success, whatever `resolved` says of its leftovers,
    and the agent did not write its last turn."""
    success = read_success(resolved)
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last < 0:
        return messages, Outcome(success=success)
    message = messages[last]
    limit = None if message.tool_calls else _LIMIT.match(message.content.strip())
    names = [c.name for c in message.tool_calls]
    rewritten = names == ["submit"] and remove_calls(message) == REWRITTEN_ENDING
    if not limit and not rewritten:
        return messages, Outcome(success=success, exit_reason="submitted" if names == ["submit"] else None)
    untrained = msgspec.structs.replace(message, train=False, author="environment")
    reason = limit.group(1).replace(" ", "_") if limit else "limit"
    outcome = Outcome(status="limit", success=False, exit_reason=reason, fabricated=rewritten)
    return (*messages[:last], untrained, *messages[last + 1 :]), outcome


def _read_tools(messages: tuple[Message, ...]) -> tuple[ToolSpec, ...]:
    """Tools described in the system prompt of the xml split."""
    system = messages[0].content if messages and messages[0].role == "system" else ""
    tools: list[ToolSpec] = []
    for piece in system.split("---- BEGIN FUNCTION #")[1:]:
        block, ended, _ = piece.partition("---- END FUNCTION")
        if not ended or not (head := _FUNCTION.match(block)):
            continue
        about, _, parameters = block[head.end() :].partition("Parameters:\n")
        about = about.strip().removeprefix("Description:").strip()
        tools.append(ToolSpec(name=head[1], description=about, parameters=_make_parameter_schema(parameters)))
    return tuple(tools)


def _make_parameter_schema(text: str) -> str:
    found: list[tuple[str, str, str, str]] = _PARAMETER.findall(text)
    properties = {name: {"type": kind, "description": about} for name, kind, _, about in found}
    required = [name for name, _, need, _ in found if need == "required"]
    schema = {"type": "object", "properties": properties, "required": required}
    return msgspec.json.encode(schema).decode()


PLUGIN = SweSmith
