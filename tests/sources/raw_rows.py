"""Raw rows in the published formats, in our own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from foretrace.core.trace import Trace
from foretrace.rows.base import Drop, RawRow, RowRef
from foretrace.sources.chat import Chat

INSTANCE = "acme__gadget.0123abcd.func_pm__x1"
REWRITTEN = "Since we have successfully fixed the issue and verified it works, let's submit the changes:"
SUBMIT = "<function=submit>\n</function>"
SYSTEM = """You help.
---- BEGIN FUNCTION #1: bash ----
Description: run a shell line

Parameters:
  (1) command (string, required): the line to run.
---- END FUNCTION ----

---- BEGIN FUNCTION #2: submit ----
Description: hand in
---- END FUNCTION ----
"""


def xml_call(name: str, **arguments: str) -> str:
    lines = [f"<parameter={k}>{v}</parameter>" for k, v in arguments.items()]
    return "\n".join([f"<function={name}>", *lines, "</function>"])


def xml_messages(commands: list[str], last: str = "All done.\n\n" + SUBMIT) -> list[dict[str, Any]]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Fix the gadget."}]
    for command in commands:
        messages.append({"role": "assistant", "content": f"I run it.\n\n{xml_call('bash', command=command)}"})
        messages.append({"role": "user", "content": f"OBSERVATION:\nran {command}"})
    return [*messages, {"role": "assistant", "content": last}]


def ticks_messages(commands: list[str]) -> list[dict[str, Any]]:
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Fix the gadget."}]
    for command in commands:
        messages.append({"role": "assistant", "content": f"I run it.\n\n```\n{command}\n```"})
        messages.append({"role": "user", "content": f"OBSERVATION:\nran {command}"})
    return [*messages, {"role": "assistant", "content": "Done.\n\n```\nsubmit\n```"}]


def native_call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"index": 0, "id": f"call_{number}", "type": "function", "function": function}


def tool_messages(commands: list[str], last: str = "submit") -> list[dict[str, Any]]:
    """SWE-agent 1.0 history; `submit` is called twice, as it is there."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You help.", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": [{"type": "text", "text": "Fix the gadget."}], "agent": "main"},
    ]
    for number, command in enumerate([*commands, "submit", "submit"] if last == "submit" else commands):
        call = native_call(number, "submit") if command == "submit" else native_call(number, "bash", command=command)
        said = {"role": "assistant", "content": "I run it.", "thought": "I run it.", "action": command}
        messages.append({**said, "agent": "main", "message_type": "action", "tool_calls": [call]})
        text = [{"type": "text", "text": f"OBSERVATION:\nran {command}"}]
        messages.append({"role": "tool", "content": text, "tool_call_ids": [f"call_{number}"], "agent": "main"})
    if last != "submit":
        messages.append({"role": "assistant", "content": last, "tool_calls": None, "agent": "main"})
    return messages


def swe_row(messages: Any, number: int = 0, **columns: Any) -> dict[str, Any]:
    facts = {"resolved": True, "model": "model-1", "traj_id": f"{INSTANCE}.{number:04d}", "patch": "diff --git a/x b/x"}
    return {"messages": messages, "instance_id": INSTANCE, **facts, **columns}


def swe_rows(count: int) -> list[dict[str, Any]]:
    return [
        swe_row(json.dumps(xml_messages([f"echo {n}", f"ls dir{n}"])), n, instance_id=f"acme__w{n % 7}.0123abcd.k__{n}")
        for n in range(count)
    ]


TOOLS = (
    "[{'name': 'find_for_maps', 'description': 'finds', 'parameters': {'type': 'object', 'optional': [None, True]}}]"
)
BENCH_SYSTEM = f"You are AutoGPT.\nSpecifically, you have access to the following APIs: {TOOLS}"


TRACE_ROW = {
    "key": "k",
    "task": {"id": "t", "group": "g"},
    "messages": [{"role": "assistant", "author": "model", "content": "x"}],
    "provenance": {"origin": "imported", "source": "s"},
}


def act(name: str, arguments: Any, thought: str = "") -> tuple[str, str]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return "assistant", f"\nThought: {thought}\nAction: {name}\nAction Input: {text}"


def answer(text: str) -> tuple[str, str]:
    return "function", json.dumps({"error": "", "response": text})


FINISH = act("Finish", {"return_type": "give_answer", "final_answer": "42"})
GIVE_UP = act("Finish", {"return_type": "give_up_and_restart"})


def bench_row(turns: list[tuple[str, str]], query: str = "Where is the well?", parallel: bool = True) -> dict[str, Any]:
    turns = [("system", BENCH_SYSTEM), ("user", f"\n{query}\nBegin!\n"), *turns]
    roles, texts = [r for r, _ in turns], [t for _, t in turns]
    pairs = [{"from": r, "value": t} for r, t in turns]
    step = sum(r != "system" for r in roles)
    return {"id": f"Step {step}: {query}", "conversations": {"from": roles, "value": texts} if parallel else pairs}


def bench_prefixes(turns: list[tuple[str, str]], query: str = "Where is the well?") -> list[dict[str, Any]]:
    """The growing prefixes of one branch: a row for each assistant turn."""
    ends = [i for i, (role, _) in enumerate(turns, 1) if role == "assistant"]
    return [bench_row(turns[:end], query) for end in ends]


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_row(row: dict[str, Any], **settings: Any) -> Trace:
    """What `chat` reads in a row."""
    trace = Chat(**settings).to_trace(row, RowRef(0, "rows.jsonl"))
    assert isinstance(trace, Trace)
    return trace


class Given:
    """Rows from memory, as another library decoded them."""

    label = fingerprint = "given"

    def __init__(self, rows: list[dict[str, Any] | Drop]) -> None:
        self.rows = rows

    def read(self, start: int = 0) -> Any:
        for number, row in enumerate(self.rows[start:], start):
            yield RawRow(RowRef(number, "given.jsonl"), row)
