"""ToolBench rows: growing prefixes of each query's conversation, and retry turns in later branches."""

from __future__ import annotations

import json
from typing import Any

_SYSTEM = """You answer requests with the help of functions. In each step, say in a sentence or two where \
you stand, then call one function, in this layout:
Thought:
Action
Action Input:

The result of the call comes back and the next step begins. Calls cannot be taken back. When you know the \
answer, call Finish with give_answer; the user sees nothing but that answer. When the functions do not get you \
there, call Finish with give_up_and_restart.
You have access of the following tools:
{tools}

Specifically, you have access to the following APIs: {apis}"""
_RETRY = """This is not the first time you try this task. Other attempts came to the present point and \
failed. Below is what they did from here; do something else this time.
{earlier}
Say how the situation looks to you now and choose a call that is none of these."""
_FINISH = {
    "name": "Finish",
    "description": "Ends the attempt, with an answer for the user or by giving up this attempt.",
    "parameters": {
        "type": "object",
        "properties": {
            "return_type": {"type": "string", "enum": ["give_answer", "give_up_and_restart"]},
            "final_answer": {"type": "string", "description": "What the user is told, with give_answer"},
        },
        "required": ["return_type"],
    },
}
Turn = tuple[str, str]


def toolbench_rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows, query by query."""
    return [row for query in data["queries"] for row in _rows(query)]


def _rows(query: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    first: list[Turn] = []
    for branch in query["branches"]:
        shared = branch.get("from", 0)
        opening = [("system", _system(query)), ("user", f"\n{query['query']}\nBegin!\n")]
        turns: list[Turn] = [*opening, *first[: 2 * shared]]
        if shared:
            turns.append(("user", _RETRY.format(earlier=_earlier(query["branches"][0], shared))))
        own = _calls(branch)
        first = first or own
        for role, value in own:
            turns.append((role, value))
            if role == "assistant" and len(turns) // 2 - 1 not in query.get("skip", ()):
                rows.append(_row(query["query"], turns))
    return rows


def _row(query: str, turns: list[Turn]) -> dict[str, Any]:
    conversations = {"from": [role for role, _ in turns], "value": [value for _, value in turns]}
    return {"id": f"Step {len(turns) - 1}: {query}", "conversations": conversations}


def _calls(branch: dict[str, Any]) -> list[Turn]:
    turns: list[Turn] = []
    for thought, api, arguments, *result in branch["turns"]:
        error, response = result if len(result) == 2 else ("", result[0])
        turns.append(("assistant", _action(thought, api, arguments)))
        turns.append(("function", json.dumps({"error": error, "response": response})))
    thought, answer = branch["finish"]
    ending = {"return_type": "give_up_and_restart"}
    if answer:
        ending = {"return_type": "give_answer", "final_answer": answer}
    return [*turns, ("assistant", _action(thought, "Finish", ending))]


def _action(thought: str, name: str, arguments: dict[str, Any]) -> str:
    text = json.dumps(arguments, indent=2, ensure_ascii=False) if arguments else "{}"
    return f"\nThought: {thought}\nAction: {name}\nAction Input: {text}"


def _earlier(branch: dict[str, Any], shared: int) -> str:
    steps = [*branch["turns"], [*branch["finish"][:1], "Finish", {}, ""]]
    _, name, arguments, *result = steps[shared]
    output = json.dumps({"error": result[0] if len(result) == 2 else "", "response": result[-1]})
    step = {"name": name, "arguments": json.dumps(arguments), "function_output": output}
    return json.dumps([step], indent=2)


def _system(query: dict[str, Any]) -> str:
    tools = "\n".join(f"{n}.{name}: {text}" for n, (name, text) in enumerate(query["about"].items(), start=1))
    return _SYSTEM.format(tools=tools, apis=repr([*(_api(api) for api in query["apis"]), _FINISH]))


def _api(api: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: {"type": kind, "description": about, "example_value": example}
        for name, (kind, about, example) in api.get("parameters", {}).items()
    }
    parameters = {"type": "object", "properties": properties, "required": [*properties], "optional": []}
    return {"name": api["name"], "description": api["description"], "parameters": parameters}
