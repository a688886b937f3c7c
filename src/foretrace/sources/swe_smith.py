"""SWE-smith trajectories in their three encodings: `tool` (native calls), `xml` and `ticks` (calls as text)."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from foretrace.core.trace import Message, Outcome, Part, Provenance, Task, ToolSpec, Trace
from foretrace.encodings.fence import PLUGIN as FENCE
from foretrace.encodings.function_xml import PLUGIN as FUNCTION_XML
from foretrace.encodings.text import without_calls
from foretrace.sources._openai import content_of, decode_list, native_calls
from foretrace.sources.base import Drop, Hub, RowError, RowRef

Split = Literal["tool", "xml", "ticks"]

REWRITTEN_ENDING = "Since we have successfully fixed the issue and verified it works, let's submit the changes:"
"""What the xml split has in place of the turn at which a run met its limit: the agent never wrote it."""
_LIMIT = re.compile(r"^Exit due to (\w+(?: \w+)*)\s*$")
_MARKER = "OBSERVATION:\n"
_REPO = re.compile(r"^(?P<owner>[^/]+?)__(?P<name>[^/]+?)(?:\.[0-9a-f]{6,40}(?:\..*)?|-\d+)?$")
_KNOWN = frozenset({"messages", "instance_id", "resolved", "model", "traj_id"})
_FUNCTION = re.compile(
    r"---- BEGIN FUNCTION #\d+: (?P<name>\S+) ----\n"
    r"(?:Description: (?P<description>.*?))?(?:\n+Parameters:\n(?P<parameters>.*?))?\s*---- END FUNCTION",
    re.DOTALL,
)
_PARAMETER = re.compile(r"^\s*\(\d+\) (\w+) \((\w+), (required|optional)\): ?(.*)$", re.MULTILINE)


class SweSmith:
    """`patch` is kept aside and never used: in published rows it belongs to another instance."""

    name = "swe_smith"
    licence = "MIT"
    hub = Hub("SWE-bench/SWE-smith-trajectories", "tool")

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Trace | Drop:
        """One row is one attempt at one instance."""
        raw = decode_list(row, "messages")
        instance = row.get("instance_id")
        if not isinstance(instance, str) or not instance:
            raise RowError("missing_column", "instance_id")
        split = _split_of(raw)
        start = next((i for i, m in enumerate(raw) if m.get("role") == "assistant"), len(raw))
        messages = tuple(_message(m, i, split, i > start) for i, m in enumerate(raw))
        messages, outcome = _ending(messages, row.get("resolved"))
        if not any(m.role == "assistant" for m in messages):
            return Drop("empty_trace", "no assistant message")
        raw_id = row.get("traj_id") if isinstance(row.get("traj_id"), str) else None
        own = raw_id or f"{at.file or 'row'}#{at.row}"
        return Trace(
            key=f"{self.name}@{at.revision or 'local'}/{at.split or split}:{own}",
            task=Task(id=instance, group=repository(instance), kind="swe"),
            tools=_tools(messages),
            messages=messages,
            outcome=outcome,
            provenance=Provenance(
                origin="imported",
                source=self.name,
                revision=at.revision,
                split=at.split or split,
                raw_file=at.file,
                raw_row=at.row,
                raw_id=raw_id,
                licence=self.licence,
                agent="SWE-agent",
                model=row.get("model") if isinstance(row.get("model"), str) else None,
                protocol=split,
            ),
            extra={k: v for k, v in row.items() if k not in _KNOWN and v is not None},
        )


def repository(instance: str) -> str:
    """`owner/name` of a SWE instance id such as `owner__name.0123abcd.kind__suffix` or `owner__name-123`."""
    match = _REPO.match(instance) or re.match(r"^(?P<owner>[^/]+?)__(?P<name>[^./]+)", instance)
    return f"{match['owner']}/{match['name']}" if match else instance


def _split_of(raw: list[dict[str, Any]]) -> Split:
    """The encoding, from the structure of the messages: the same row may come without its split's name."""
    fenced = False
    for message in raw:
        if message.get("role") in ("tool", "function") or message.get("tool_calls"):
            return "tool"
        if message.get("role") == "assistant" and isinstance(message.get("content"), str):
            if "<function=" in message["content"]:
                return "xml"
            fenced = fenced or "```" in message["content"]
    return "ticks" if fenced else "tool"


def _message(raw: dict[str, Any], index: int, split: Split, begun: bool) -> Message:
    role = raw.get("role")
    text, parts = content_of(raw.get("content"))
    extra = {k: raw[k] for k in ("agent", "message_type", "action", "cache_control") if raw.get(k) is not None}
    if isinstance(raw.get("thought"), str) and raw["thought"] != text:
        extra["thought"] = raw["thought"]
    if role == "assistant":
        return _assistant(raw, index, split, text, parts, extra)
    if role == "system":
        return Message(role="system", author="user", content=text, turn=index, raw_index=index, extra=extra)
    if role == "tool" or (role == "user" and begun):
        marker = _MARKER if text.startswith(_MARKER) else ""
        ids = raw.get("tool_call_ids") or ([raw["tool_call_id"]] if raw.get("tool_call_id") else [])
        return Message(
            role="tool",
            author="environment",
            content=text[len(marker) :],
            prefix=marker,
            parts=parts,
            tool_call_ids=tuple(str(i) for i in ids),
            raw_role=None if role == "tool" else role,
            turn=index,
            raw_index=index,
            extra=extra,
        )
    if role == "user":
        demo = raw.get("is_demo") is True
        return Message(
            role="user", author="demo" if demo else "user", content=text, parts=parts, turn=index,
            raw_index=index, extra=extra,
        )  # fmt: skip
    raise RowError("unknown_role", f"message {index} has role {role!r}")


def _assistant(
    raw: dict[str, Any], index: int, split: Split, text: str, parts: tuple[Part, ...], extra: dict[str, Any]
) -> Message:
    calls = native_calls(raw.get("tool_calls"), index)
    if not calls and split != "tool":
        calls = tuple((FUNCTION_XML if split == "xml" else FENCE).parse(text))
    return Message(
        role="assistant",
        author="demo" if raw.get("is_demo") is True else "model",
        content=text,
        parts=parts,
        tool_calls=calls,
        turn=index,
        raw_index=index,
        extra=extra,
    )


def _ending(messages: tuple[Message, ...], resolved: Any) -> tuple[tuple[Message, ...], Outcome]:
    """How the attempt ended. An attempt cut off by a limit is no success, whatever `resolved` says of its
    leftovers, and its last turn was never written by the agent."""
    success = resolved if isinstance(resolved, bool) else None
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last < 0:
        return messages, Outcome(success=success)
    message = messages[last]
    limit = None if message.tool_calls else _LIMIT.match(message.content.strip())
    names = [c.name for c in message.tool_calls]
    rewritten = names == ["submit"] and without_calls(message) == REWRITTEN_ENDING
    if not limit and not rewritten:
        return messages, Outcome(success=success, exit_reason="submitted" if names == ["submit"] else None)
    untrained = msgspec.structs.replace(message, train=False, author="environment" if limit else "model")
    reason = limit.group(1).replace(" ", "_") if limit else "limit"
    outcome = Outcome(status="limit", success=False, exit_reason=reason, fabricated=rewritten)
    return (*messages[:last], untrained, *messages[last + 1 :]), outcome


def _tools(messages: tuple[Message, ...]) -> tuple[ToolSpec, ...]:
    """Tools that the system text of the xml split describes."""
    system = messages[0].content if messages and messages[0].role == "system" else ""
    return tuple(
        ToolSpec(
            name=match["name"],
            description=(match["description"] or "").strip(),
            parameters=_parameters(match["parameters"] or ""),
        )
        for match in _FUNCTION.finditer(system)
    )


def _parameters(text: str) -> str:
    found: list[tuple[str, str, str, str]] = _PARAMETER.findall(text)
    properties = {name: {"type": kind, "description": about} for name, kind, _, about in found}
    required = [name for name, _, need, _ in found if need == "required"]
    schema = {"type": "object", "properties": properties, "required": required}
    return msgspec.json.encode(schema).decode()


PLUGIN = SweSmith
