"""SWE-smith trajectories in their three encodings: `tool` (native calls), `xml` and `ticks` (calls as text)."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from foretrace.core.trace import Message, Outcome, Task, ToolSpec, Trace
from foretrace.encodings.base import TextEncoding
from foretrace.encodings.calls_in_text import remove_calls
from foretrace.encodings.fence import FENCE
from foretrace.encodings.parameter_tags import FUNCTION_XML
from foretrace.rows.base import Drop, Hub, RowRef
from foretrace.rows.head import FileHead
from foretrace.sources.base import UNCLEAR, RowError, make_origin, make_row_id
from foretrace.sources.content_blocks import read_content
from foretrace.sources.json_values import get_text, read_success
from foretrace.sources.openai_messages import find_unknown_fields
from foretrace.sources.repositories import find_repository
from foretrace.sources.row_messages import make_messages
from foretrace.sources.row_turns import decode_turns, get_path
from foretrace.sources.tool_schemas import SWE_AGENT, find_swe_agent_tools, type_arguments
from foretrace.sources.turn_items import flatten_turns

Split = Literal["tool", "xml", "ticks"]

REWRITTEN_ENDING = "Since we have successfully fixed the issue and verified it works, let's submit the changes:"
"""The xml split replaces the turn at which a run met its limit with this text; the agent never wrote it."""
_COLUMNS = frozenset({"messages", "instance_id", "resolved", "model", "traj_id", "patch", "id"})
_INSTANCE = re.compile(r"[^/.]+__[^/]+?\.[0-9a-f]{8}\.\w")
_LIMIT = re.compile(r"^Exit due to (\w+(?: \w+)*)\s*$")
_ENCODINGS: dict[Split, TextEncoding] = {"xml": FUNCTION_XML, "ticks": FENCE}
_MINI = "<returncode>"
"""What mini-swe-agent writes before an output: its rows of the same instances are read as chats."""
_VOTES = 5
"""Number of turns that decide the encoding."""
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
            instance = get_text(row, "instance_id")
            is_ours = "messages" in row and row.keys() <= _COLUMNS and _MINI not in str(row["messages"])
            if is_ours and _INSTANCE.match(instance):
                return f"messages, and the instance_id of a made bug: {instance[:80]}"
        return None

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        raw = decode_turns(get_path(row, "messages"), "messages")
        instance = get_text(row, "instance_id")
        if not instance:
            raise RowError("missing_column", "instance_id")
        split = _find_split(raw)
        start = next((i for i, m in enumerate(raw) if m.get("role") == "assistant"), len(raw))
        read = make_messages(flatten_turns(enumerate(raw)), _ENCODINGS.get(split))
        resolved = row.get("resolved")
        success = read_success(resolved)
        messages, outcome = _find_outcome(tuple(_unify(message, start) for message in read), success)
        if not any(m.role == "assistant" for m in messages):
            return Drop("empty_trace", "no assistant message")
        described = _read_tools(messages)
        tools = described or find_swe_agent_tools(messages)
        raw_id = row["traj_id"] if isinstance(row.get("traj_id"), str) else None
        model = row["model"] if isinstance(row.get("model"), str) else None
        used = {"traj_id": raw_id, "model": model, "resolved": success}
        unclear = {"success": f"resolved is {resolved!r}"[:80]} if resolved is not None and success is None else {}
        return Trace(
            key=f"{self.name}@{at.revision or 'local'}/{at.split or split}:{raw_id or make_row_id(row)}",
            task=Task(id=instance, group=find_repository(instance), kind="swe"),
            tools=tools,
            messages=type_arguments(messages, tools),
            outcome=outcome,
            provenance=make_origin(
                self,
                at,
                split=at.split or split,
                raw_id=raw_id,
                agent="SWE-agent",
                model=model,
                protocol=split,
                transforms=(SWE_AGENT,) if tools and not described else (),
            ),
            extra=find_unknown_fields(row, {"messages", "instance_id"} | {k for k, v in used.items() if v is not None})
            | ({UNCLEAR: unclear} if unclear else {}),
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


def _find_outcome(messages: tuple[Message, ...], success: bool | None) -> tuple[tuple[Message, ...], Outcome]:
    """How the attempt ended. An attempt that met a limit is not a success, whatever `resolved` says of its leftovers,
    and the agent did not write its last turn."""
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last < 0:
        return messages, Outcome(success=success)
    message = messages[last]
    limit = None if message.tool_calls else _LIMIT.match(message.content.strip())
    is_submit = [call.name for call in message.tool_calls] == ["submit"]
    rewritten = is_submit and remove_calls(message) == REWRITTEN_ENDING
    if not limit and not rewritten:
        return messages, Outcome(success=success, exit_reason="submitted" if is_submit else None)
    untrained = msgspec.structs.replace(message, train=False, author="environment")
    reason = limit.group(1).replace(" ", "_") if limit else "limit"
    outcome = Outcome(status="limit", success=False, exit_reason=reason, fabricated=rewritten)
    return (*messages[:last], untrained, *messages[last + 1 :]), outcome


def _read_tools(messages: tuple[Message, ...]) -> tuple[ToolSpec, ...]:
    system = messages[0].content if messages[0].role == "system" else ""
    tools: list[ToolSpec] = []
    for piece in system.split("---- BEGIN FUNCTION #")[1:]:
        block, ended, _ = piece.partition("---- END FUNCTION")
        if ended and (head := _FUNCTION.match(block)):
            about, _, parameters = block[head.end() :].partition("Parameters:\n")
            about = about.strip().removeprefix("Description:").strip()
            found: list[tuple[str, str, str, str]] = _PARAMETER.findall(parameters)
            schema = {
                "type": "object",
                "properties": {name: {"type": kind, "description": text} for name, kind, _, text in found},
                "required": [name for name, _, need, _ in found if need == "required"],
            }
            tools.append(ToolSpec(name=head[1], description=about, parameters=msgspec.json.encode(schema).decode()))
    return tuple(tools)


PLUGIN = SweSmith
