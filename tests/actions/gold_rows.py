"""A deliberately crude reader of the development rows: just enough structure to score the labels."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from foretrace.core.trace import Message, Provenance, Task, ToolCall, Trace

Row = dict[str, Any]

OBSERVATION = re.compile(
    r"\s*(OBSERVATION:|Observation:|EXECUTION RESULT of \[.*?\]:|Execution result:|The output of the OS:)\s*"
)
FUNCTION = re.compile(r"<function=([\w.-]+)>(.*?)(?:</function>|\Z)", re.S)
PARAMETER = re.compile(r"<parameter=([\w.-]+)>(.*?)</parameter>", re.S)
REACT = re.compile(r"(?:^|\n)Action:\s*(\S+)[ \t]*\nAction Input:\s*(.*)", re.S)
BRACKET = re.compile(r"(?:^|\n)Action:\s*(search|click)\[(.*?)\]", re.S | re.I)
MOVE = re.compile(r"(?:^|\n)\s*ACTION:\s*(.+)")
KB_CALL = re.compile(r"(?:^|\n)Action:\s*([a-z_]+)\((.*)\)")
SQL_BLOCK = re.compile(r"Action: Operation\s*```sql\n(.*?)```", re.S)
ANSWER = re.compile(r"(?:^|\n)(?:Action: Answer|Final Answer)\b:?\s*(.*)", re.S)
FENCE = re.compile(r"```\n(.*)\n```", re.S)
SPLIT_TURNS = re.compile(r"^(user|assistant|tool): ", re.M)


def load(folder: Path, source: str) -> Iterator[Trace]:
    """Yield one trace for each row of a source."""
    with (folder / source / "rows.jsonl").open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            yield Trace(
                key=f"{source}:dev:{number}",
                task=Task(id=str(number), group=source),
                messages=tuple(READERS[source](row)),
                provenance=Provenance(origin="imported", source=source),
            )


def text_of(content: Any) -> str:
    """The text of a message content of any shape."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def assistant(text: str, index: int, calls: tuple[ToolCall, ...] = ()) -> Message:
    """An assistant message."""
    return Message(role="assistant", author="model", content=text, tool_calls=calls, raw_index=index, turn=index)


def other(role: str, text: str, index: int, ids: tuple[str, ...] = ()) -> Message:
    """A message that the agent did not write; observations that arrive as `user` become `tool`."""
    mark = OBSERVATION.match(text) if role == "user" else None
    if mark:
        role = "tool"
    prefix, text = (mark.group(), text[mark.end() :]) if mark else ("", text)
    return Message(
        role=role if role in ("system", "user", "tool") else "tool",  # type: ignore[arg-type]
        author="environment" if role == "tool" else "user",
        content=text,
        prefix=prefix,
        tool_call_ids=ids,
        raw_index=index,
    )


def call(name: str, **arguments: Any) -> ToolCall:
    """A call with JSON arguments."""
    return ToolCall(name=name, arguments=json.dumps(arguments))


def chat(rows: list[Row], calls_of: Callable[[str], tuple[ToolCall, ...]]) -> Iterator[Message]:
    """Messages of a chat list whose calls, if any, are in the text or in `tool_calls`."""
    for index, row in enumerate(rows):
        role = str(row.get("role") or row.get("from"))
        role = {"human": "user", "gpt": "assistant", "function": "tool", "ai": "assistant"}.get(role, role)
        text = text_of(row.get("content", row.get("value")))
        if role != "assistant":
            ids = row.get("tool_call_ids") or ([row["tool_call_id"]] if row.get("tool_call_id") else [])
            yield other(role, text, index, tuple(ids))
            continue
        native = tuple(
            ToolCall(id=c.get("id") or "", name=c["function"]["name"], arguments=c["function"]["arguments"])
            for c in row.get("tool_calls") or ()
        )
        message = assistant(text, index, native or calls_of(text))
        yield (
            Message(**{f: getattr(message, f) for f in message.__struct_fields__} | {"author": "demo"})
            if row.get("is_demo")
            else message
        )


def xml_calls(text: str) -> tuple[ToolCall, ...]:
    """Calls written `<function=NAME><parameter=KEY>VALUE</parameter></function>`; every value is a string."""
    return tuple(
        call(name, **{key: value.removeprefix("\n").removesuffix("\n") for key, value in PARAMETER.findall(body)})
        for name, body in FUNCTION.findall(text)
    )


def tick_calls(text: str) -> tuple[ToolCall, ...]:
    """One action line in a bare fence: a tool with shell-quoted options, or a shell command."""
    found = FENCE.search(text)
    if not found:
        return ()
    line = found.group(1)
    if line.split()[:1] == ["submit"]:
        return (call("submit"),)
    if line.startswith("str_replace_editor"):
        words = shlex.split(line)[1:]
        arguments: Row = {"command": words[0], "path": words[1]}
        position = 2
        while position < len(words):
            key, values = words[position].removeprefix("--"), []
            position += 1
            while position < len(words) and not words[position].startswith("--"):
                values.append(words[position])
                position += 1
            arguments[key] = [int(v) for v in values] if key == "view_range" else " ".join(values)
        return (call("str_replace_editor", **arguments),)
    return (call("bash", command=line),)


def react_calls(text: str) -> tuple[ToolCall, ...]:
    """`Action: NAME` and `Action Input: JSON`."""
    found = REACT.search(text)
    return (ToolCall(name=found.group(1), arguments=found.group(2).strip()),) if found else ()


def bracket_calls(text: str) -> tuple[ToolCall, ...]:
    """The text actions of the AgentInstruct family."""
    if found := BRACKET.search(text):
        return (call(found.group(1), input=found.group(2)),)
    if found := SQL_BLOCK.search(text):
        return (call("sql", query=found.group(1)),)
    if found := KB_CALL.search(text):
        return (call(found.group(1), input=found.group(2)),)
    if found := MOVE.search(text):
        return (call("act", input=found.group(1)),)
    if found := ANSWER.search(text):
        return (call("answer", answer=found.group(1)),)
    if found := re.search(r"(?:^|\n)Action:\s*([A-Z]+)\s*(?:\Z|\nValue:)", text):
        return (call(found.group(1).lower(), input=text),)
    return ()


def code_act_calls(text: str) -> tuple[ToolCall, ...]:
    """`<execute>` is a code cell, `<solution>` ends."""
    if found := re.search(r"<execute>(.*?)(?:</execute>|\Z)", text, re.S):
        return (call("execute", code=found.group(1).strip()),)
    if found := re.search(r"<solution>(.*?)(?:</solution>|\Z)", text, re.S):
        return (call("solution", answer=found.group(1)),)
    return ()


def sweagent_calls(text: str) -> tuple[ToolCall, ...]:
    """SWE-agent: a bare fence or `<command>` whose first word may be one of its own tools."""
    found = re.search(r"```\n(.*?)\n```(?:\n|\Z)", text, re.S) or re.search(
        r"<command>\n?(.*?)\n?</command>", text, re.S
    )
    return (sweagent_call(found.group(1)),) if found else ()


def sweagent_call(line: str) -> ToolCall:
    """One action line of SWE-agent as a call."""
    name, _, rest = line.partition(" ")
    name = name.strip()
    head, _, body = rest.partition("\n")
    if name in (
        "open",
        "goto",
        "scroll_up",
        "scroll_down",
        "create",
        "find_file",
        "search_dir",
        "search_file",
        "submit",
    ):
        return call(name, input=rest)
    if name == "edit":
        return call(name, line=head, replacement_text=body)
    return call("bash", command=line)


def swe_agent(row: Row) -> Iterator[Message]:
    """`history` of a .traj: native calls, or the action in the text."""
    yield from chat(row["history"], sweagent_calls)


def openai_items(row: Row) -> Iterator[Message]:
    """OpenAI Responses items: message, reasoning, function_call, function_call_output."""
    for entry in row["responses_create_params"].get("input") or ():
        if isinstance(entry, dict) and entry.get("role") in ("user", "system", "assistant"):
            text = text_of(entry.get("content"))
            yield assistant(text, -1) if entry["role"] == "assistant" else other(entry["role"], text, -1)
    for index, item in enumerate(row["response"]["output"]):
        kind = item["type"]
        if kind == "message":
            text = text_of(item["content"])
            yield assistant(text, index) if item["role"] == "assistant" else other(item["role"], text, index)
        elif kind == "function_call":
            made = ToolCall(id=item["call_id"], name=item["name"], arguments=item["arguments"])
            yield assistant("", index, (made,))
        elif kind == "function_call_output":
            yield other("tool", text_of(item["output"]), index, (item["call_id"],))
        else:
            yield Message(role="assistant", author="model", reasoning=json.dumps(item), raw_index=index)


def toolbench(row: Row) -> Iterator[Message]:
    """ToolBench: two parallel lists."""
    both = row["conversations"]
    rows = [{"role": r, "content": v} for r, v in zip(both["from"], both["value"], strict=True)]
    yield from chat(rows, react_calls)


def smith(calls_of: Callable[[str], tuple[ToolCall, ...]]) -> Callable[[Row], Iterator[Message]]:
    """SWE-smith: `messages`, perhaps as JSON text."""

    def read(row: Row) -> Iterator[Message]:
        rows = row["messages"]
        yield from chat(json.loads(rows) if isinstance(rows, str) else rows, calls_of)

    return read


def conversations(calls_of: Callable[[str], tuple[ToolCall, ...]]) -> Callable[[Row], Iterator[Message]]:
    """Rows whose turns are in `conversations`."""
    return lambda row: chat(row["conversations"], calls_of)


def nnetnav(row: Row) -> Iterator[Message]:
    """One web step a row, the action in an inline fence."""

    def calls_of(text: str) -> tuple[ToolCall, ...]:
        found = re.search(r"```\s*(\w+)\s*(.*?)```", text, re.S)
        return (call(found.group(1), input=found.group(2)),) if found else ()

    yield from chat(row["messages"], calls_of)


def synatra(row: Row) -> Iterator[Message]:
    """One step: a Python-like call after comments."""
    yield other("user", row["prompt"], -1)
    found = re.search(r"^(\w+)\((.*)\)\s*$", row["response"], re.M)
    yield assistant(row["response"], 0, (call(found.group(1), input=found.group(2)),) if found else ())


def webarena(row: Row) -> Iterator[Message]:
    """States and actions in turn."""
    for index, entry in enumerate(row["trajectory"]):
        if "action" in entry:
            action = entry["action"]
            made = call(action["action_name"], answer=action.get("answer", ""), text=str(action.get("element_id")))
            yield assistant(entry["metadata"]["cot"], index, (made,))
        else:
            yield other("user", entry["axtree"], index)


def tau_text(row: Row) -> Iterator[Message]:
    """One flat string of turns; its calls are lost."""
    pieces = SPLIT_TURNS.split(row["messages_display"])[1:]
    turns = list(zip(pieces[::2], pieces[1::2], strict=True))
    yield from chat([{"role": r, "content": t.strip()} for r, t in turns], lambda text: ())


READERS: dict[str, Callable[[Row], Iterator[Message]]] = {
    "swe_smith_tool": smith(lambda text: ()),
    "swe_smith_xml": smith(xml_calls),
    "swe_smith_ticks": smith(tick_calls),
    "toolbench_v1": toolbench,
    "swe_gym_openhands": smith(lambda text: ()),
    "swe_play": smith(xml_calls),
    "swe_agent_traj": swe_agent,
    "code_feedback": smith(lambda text: ()),
    "codeactinstruct": conversations(code_act_calls),
    "orca_agentinstruct": conversations(lambda text: ()),
    "nnetnav_live": nnetnav,
    "synatra": synatra,
    "webarena_successful": webarena,
    "tau_retail_fewshot_text": tau_text,
    **{f"agenttuning_{name}": conversations(bracket_calls) for name in ("alfworld", "db", "kg", "mind2web", "webshop")},
    "eto": conversations(bracket_calls),
    **{
        f"nemo_{name}": openai_items
        for name in (
            "anyswe_opencode",
            "conversational_tool_use",
            "google_search",
            "indirect_prompt_injection",
            "legal_agent_bench",
            "math_with_code",
            "mini_swe_agent_2",
            "simpleqa",
            "tau2",
            "workplace_assistant",
            "xlam_fc",
            "xstest",
        )
    },
}
"""How each source's rows are read."""
