"""The three encodings of a SWE-agent attempt: native calls, XML blocks, and fenced command lines."""

from __future__ import annotations

import hashlib
import json
import shlex
from typing import Any, NamedTuple

EDITOR = "str_replace_editor"
SLOTS = ("file_text", "view_range", "old_str", "new_str", "insert_line")
WRAPPED = ("file_text", "old_str", "new_str")


class Step(NamedTuple):
    """One assistant turn; without an observation the attempt ends, without a tool nothing is called."""

    thought: str
    tool: str
    arguments: dict[str, Any]
    observation: str | None


def action_line(tool: str, arguments: dict[str, Any]) -> str:
    """The shell-like form of a call; unused argument slots leave their blanks, as in the original agent."""
    if tool == "bash":
        return str(arguments["command"])
    if tool == "submit":
        return "submit"
    slots = [_slot(name, arguments[name]) if name in arguments else "" for name in SLOTS]
    return " ".join([EDITOR, arguments["command"], arguments["path"], *slots]).rstrip()


def _slot(name: str, value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else shlex.quote(str(value))
    return f"--{name} {text}"


def xml_block(tool: str, arguments: dict[str, Any]) -> str:
    """The call with one unescaped tag per argument."""
    lines = [f"<function={tool}>"]
    for name, value in arguments.items():
        text = f"\n{value}\n" if name in WRAPPED else json.dumps(value) if name == "view_range" else value
        lines.append(f"<parameter={name}>{text}</parameter>")
    return "\n".join([*lines, "</function>"])


def tool_messages(system: str, prompt: str, steps: list[Step], seed: str) -> list[dict[str, Any]]:
    """The agent's own history: native calls, observations that name the calls they answer."""
    out: list[dict[str, Any]] = [
        {"role": "system", "content": system, "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": _block(prompt), "agent": "main", "message_type": "observation"},
    ]
    for number, step in enumerate(steps):
        call_id = "call_" + hashlib.sha256(f"{seed}/{number}".encode()).hexdigest()[:16]
        message: dict[str, Any] = {"role": "assistant", "content": step.thought, "thought": step.thought}
        if step.tool:
            function = {"arguments": json.dumps(step.arguments), "name": step.tool}
            index = 1 if step.thought else 0
            call = {"index": index, "function": function, "id": call_id, "type": "function"}
            line = action_line(step.tool, step.arguments)
            message |= {"action": line, "agent": "main", "tool_calls": [call]}
        else:
            message |= {"action": "", "agent": "main"}
        out.append(message | {"message_type": "action"})
        if step.observation is not None:
            out.append({
                "role": "tool", "content": _block(step.observation), "agent": "main",
                "message_type": "observation", "tool_call_ids": [call_id],
            })  # fmt: skip
    last = next((m for m in reversed(out) if m["role"] == "tool"), None)
    if last is not None:
        last["cache_control"] = {"type": "ephemeral"}
    return out


def text_messages(system: str, prompt: str, steps: list[Step], encoding: str) -> list[dict[str, Any]]:
    """Messages of the `xml` and `ticks` encodings: calls in the text, observations as user turns."""
    out: list[dict[str, Any]] = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    for step in steps:
        if encoding == "xml":
            content = "\n\n".join(filter(None, [step.thought, xml_block(step.tool, step.arguments)]))
        else:
            content = f"{step.thought}\n\n```\n{action_line(step.tool, step.arguments)}\n```"
        out.append({"role": "assistant", "content": content})
        if step.observation is not None:
            out.append({"role": "user", "content": step.observation})
    return out


def _block(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
