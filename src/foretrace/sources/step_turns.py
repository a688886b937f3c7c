"""Rows with a column of an agent's steps, each with its thought, its action and the result, as turns.

Home-made loops, LangChain (`intermediate_steps`), DSPy, and browser-use (`model_output` and `result`) write these. A
list of actions in words only (a recipe, a test plan) is not a conversation: an action has arguments, a thought, or the
form of a call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from foretrace.encodings.action_lines import ACTION_LINE
from foretrace.sources.found_turns import FoundTurns, Row, Turns, make_call
from foretrace.sources.json_values import (
    as_dict,
    as_dicts,
    as_list,
    as_text,
    decode_json,
    get_dict,
    get_text,
    write_text,
)

_COLUMNS = ("trajectory", "steps", "history", "actions", "intermediate_steps", "intermediateSteps")
_ACTIONS = ("tool", "tool_name", "action", "function", "tool_call", "tool_calls", "command")
_ARGUMENTS = (
    *("tool_input", "tool_args", "action_input", "toolInput", "arguments", "args", "parameters", "params", "input"),
    *("kwargs", "action_args", "info"),
)
_RESULTS = ("observation", "observations", "obs", "tool_output", "tool_result", "result", "output", "response")
_THOUGHTS = ("thought", "thoughts", "reasoning", "rationale", "thinking")
_ASKED = ("question", "task", "query", "goal", "instruction", "intent", "input", "prompt", "objective")
_GOALS = frozenset({"question", "goal", "instruction", "intent", "objective"})
"""Columns that only describe an agent's task; a program may have a `task`, too."""
_OBSERVED = frozenset({"observation", "observations", "obs"})
_SAID = ("final_answer", "answer", "output", "final_output")
_MODELS = ("model", "model_name", "llm")
"""Columns that say that a model took the steps."""


class _Step(NamedTuple):
    thought: str
    calls: list[tuple[str, Any]]
    result: Any
    is_sure: bool
    """Whether an action has the form of a call, so that it is more than words about one."""
    is_error: bool = False


def find_steps(row: Row) -> FoundTurns | None:
    """The steps of a row; `None` if it has none."""
    for column in _COLUMNS:
        items = _list_items(decode_json(row.get(column)))
        steps = [step for item in items if (step := _read_step(item)) is not None]
        has_calls = any(step.calls for step in steps)
        if not has_calls or len(steps) != len(items) or all(step.result is None for step in steps):
            continue
        # Without a thought or a model's output, the task must show that there is an agent.
        asked = _find_asked(row)
        is_asked = asked is not None and (asked in _GOALS or not _may_be_a_programs(items))
        thinks = any(step.thought for step in steps) or any("model_output" in item for item in as_dicts(items))
        thinks = thinks or any(isinstance(row.get(key), str) and row[key] for key in _MODELS)
        if thinks or (is_asked and any(step.is_sure for step in steps)):
            return _make_turns(row, column, steps)
    return None


def _list_items(value: Any) -> list[Any]:
    """The steps in a column; DSPy numbers their fields: `thought_0`, `tool_name_0`, and so on."""
    if not isinstance(value, dict) or "tool_name_0" not in value:
        return as_list(value)
    steps: dict[str, Row] = {}
    for name, field in value.items():
        key, _, number = name.rpartition("_")
        steps.setdefault(number, {})[key] = field
    return [*steps.values()]


def _may_be_a_programs(items: list[Any]) -> bool:
    """Whether the steps may be those of a build or a test: named actions with results, and no observations."""
    return all(
        isinstance(item, dict) and isinstance(item.get("action"), str) and not item.keys() & _OBSERVED for item in items
    )


def _find_asked(told: Row) -> str | None:
    return next((key for key in _ASKED if isinstance(told.get(key), str) and told[key]), None)


def _make_turns(row: Row, column: str, steps: list[_Step]) -> FoundTurns:
    asked = _find_asked(row)
    turns: Turns = []
    if asked is not None:
        turns.append((None, {"role": "user", "content": row[asked]}))
    for index, step in enumerate(steps):
        ids = [f"step_{index}.{n}" for n in range(len(step.calls))]
        calls = [make_call(name, given, own) for own, (name, given) in zip(ids, step.calls, strict=True)]
        if calls or step.thought:
            turns.append((index, {"role": "assistant", "content": step.thought, "tool_calls": calls}))
        if step.result is not None and not ids:  # not the result of a call
            turns.append((index, {"role": "environment_state", "content": write_text(step.result)}))
        elif step.result is not None:
            result: Row = {"role": "tool", "content": write_text(step.result), "tool_call_ids": ids}
            turns.append((index, {**result, "is_error": True} if step.is_error else result))
    used = {column, *([asked] if asked else [])}
    said = next((key for key in _SAID if isinstance(row.get(key), str) and row[key].strip()), None)
    if said is not None:
        turns.append((None, {"role": "assistant", "content": row[said], "train": None}))
        used.add(said)
    return FoundTurns(turns, frozenset(used), f"column {column} holds steps with actions")


def _read_step(item: Any) -> _Step | None:
    if isinstance(item, list) and len(item) == 2:
        return _read_pair(item[0], item[1])
    if not isinstance(item, dict) or "role" in item:
        return None
    if isinstance(item.get("model_output", 0), dict | None) and "result" in item:
        return _read_browser_step(item)
    thought = next((text for name in _THOUGHTS if (text := as_text(item.get(name)))), "")
    result = next((item[name] for name in _RESULTS if item.get(name) is not None), None)
    key = next((key for key in _ACTIONS if item.get(key) not in (None, "", [], {})), None)
    if key is None:  # a final thought, or a final state
        return _Step(thought, [], result, False) if thought or any(key in item for key in _ACTIONS) else None
    if isinstance(item[key], list):
        read = [_read_action(key, each, None) for each in item[key] if isinstance(each, dict)]
    else:
        read = [_read_action(key, item[key], next((item[name] for name in _ARGUMENTS if name in item), None))]
    calls = [call for call, _ in read if call is not None]
    is_whole = len(calls) == (len(item[key]) if isinstance(item[key], list) else 1)
    return _Step(thought, calls, result, any(is_sure for _, is_sure in read)) if is_whole else None


def _read_pair(action: Any, result: Any) -> _Step | None:
    """LangChain's action and its result: an object, or a list of the tool, its input and the log."""
    if isinstance(action, list) and len(action) in (2, 3) and isinstance(action[0], str):
        action = {"tool": action[0], "tool_input": action[1], "log": action[2] if len(action) > 2 else ""}
    if not isinstance(action, dict) or not isinstance(action.get("tool"), str):
        return None
    call, is_sure = _read_action("tool", action["tool"], action.get("tool_input"))
    return None if call is None else _Step(get_text(action, "log"), [call], result, is_sure)


def _read_browser_step(item: Row) -> _Step | None:
    """browser-use: a state of mind, actions by name, and a result for each."""
    output = get_dict(item, "model_output")  # missing if the model's output could not be read
    mind = get_dict(output, "current_state") or output
    thought = "\n".join(text for key in ("thinking", "memory", "next_goal") if (text := get_text(mind, key)))
    calls: list[tuple[str, Any]] = []
    for action in as_dicts(output.get("action")):
        name = next((name for name, given in action.items() if given is not None), None)
        if name is not None:
            calls.append((name, as_dict(action[name])))
    results = as_dicts(item["result"])
    texts = [text for each in results if (text := get_text(each, "error", "extracted_content"))]
    is_error = any(get_text(each, "error") for each in results)
    return _Step(thought, calls, "\n".join(texts) if calls or texts else None, bool(calls), is_error)


def _read_action(key: str, action: Any, given: Any) -> tuple[tuple[str, Any] | None, bool]:
    """A call, and whether it has the form of a call."""
    action = decode_json(action) if isinstance(action, str) and action.startswith("{") else action
    if isinstance(action, dict):
        inner = get_dict(action, "function") or action
        name = get_text(inner, "name", "tool", "tool_name", "type", "action_type", "action", "function")
        rest = {k: v for k, v in inner.items() if v != name and k not in ("id", "type") and v is not None}
        arguments = next((inner[k] for k in _ARGUMENTS if k in inner), rest)
        return ((name, _as_arguments(arguments)) if name else None), True
    if not isinstance(action, str):
        return None, False
    if given is not None and "\n" not in action and len(action) <= 100:
        return (action, _as_arguments(given)), key != "action" or not isinstance(given, str)
    if key == "command":  # a build or a person runs commands, too
        return ("bash", {"command": action}), False
    read = ACTION_LINE.parse(f"Action: {action}")
    is_call = len(read) == 1 and read[0].name not in ("act", "answer") and action.rstrip().endswith((")", "]"))
    if is_call:
        return (read[0].name, msgspec.json.decode(read[0].arguments)), True
    return ("act", {"input": action}), False


def _as_arguments(value: Any) -> Row:
    decoded = decode_json(value) if isinstance(value, str) and value.startswith("{") else value
    return decoded if isinstance(decoded, dict) else {} if decoded in (None, "", []) else {"input": decoded}
