"""Rows of demonstrations in a browser or on a phone: a task, what was on the screen, and actions, as turns of an agent.

Read are states of a page and actions in turn (web navigation of the Agent Data Protocol), Mind2Web (a row a task, or a
row a step as in Multimodal-Mind2Web), WebLINX (a row a step) and AndroidControl (a row an episode). What a row tells of
steps behind its own is not shown to the agent.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from foretrace.encodings.python_calls import CALL_LIST
from foretrace.sources.found_turns import FoundTurns, Row, Turns, make_call
from foretrace.sources.json_values import as_count, decode_json, decode_nested, get_text

_ASKED = ("intent", "task", "goal", "objective")
_PAGES = ("raw_html", "cleaned_html", "screenshot", "screenshots", "images", "neg_candidates", "pos_candidates")
"""Columns of pages and pictures: what is shown of them is in the turns, and the rest is too large to be kept beside."""
_VALUES = {"type": "text", "select": "option"}
"""Operation -> the argument that its value is."""


def find_demonstration(row: Row) -> FoundTurns | None:
    """The demonstration in a row; `None` where there is none."""
    finders = (
        _find_web_states,
        _find_episode_of_operations,
        _find_operation,
        _find_navigator_step,
        _find_phone_episode,
    )
    return next((found for find in finders if (found := find(row))), None)


def _find_web_states(row: Row) -> FoundTurns | None:
    """States of a page, and actions in between."""
    for column in ("trajectory", "steps", "actions"):
        items = decode_nested(row.get(column))
        if isinstance(items, list) and items and all(isinstance(item, dict) for item in items):
            turns = list(_read_states(items))
            if any(turn["role"] == "assistant" for _, turn in turns):
                intent = next((row[k] for k in _ASKED if isinstance(row.get(k), str)), None)
                asked: Turns = [(None, {"role": "user", "content": intent})] if intent else []
                return FoundTurns([*asked, *turns], frozenset({column}), f"column {column} holds states and actions")
    return None


def _read_states(items: list[Row]) -> Iterator[tuple[int, Row]]:
    begun = False
    for index, item in enumerate(items):
        action = item.get("action")
        if isinstance(action, dict) and isinstance(action.get("action_name"), str):
            metadata = item.get("metadata")
            thought = metadata.get("cot") if isinstance(metadata, dict) else None
            given = {
                k: v for k, v in action.items() if k not in ("action_name", "action_type") and v not in ("", [], None)
            }
            yield index, _make_step(action["action_name"], given, thought or "")
            begun = True
        elif isinstance(item.get("axtree"), str):
            more = {k: v for k, v in item.items() if k != "axtree"}
            yield index, {**_make_state(item["axtree"], begun), **more}
        else:
            return


def _find_episode_of_operations(row: Row) -> FoundTurns | None:
    """Mind2Web: `actions` with the page before each and its `operation`, told in `action_reprs`."""
    actions, told = decode_nested(row.get("actions")), decode_nested(row.get("action_reprs"))
    task = row.get("confirmed_task")
    if not isinstance(task, str) or not isinstance(actions, list) or not actions:
        return None
    # Of a row that is cut, as recognition sees a long one, the last actions are missing, or what they do.
    told = told[: len(actions)] if isinstance(told, list) and len(told) >= len(actions) else [None] * len(actions)
    turns: Turns = [(None, {"role": "user", "content": task})]
    for index, (action, words) in enumerate(zip(actions, told, strict=True)):
        step = _read_operation(action, words)
        if step is None:
            return None
        if page := get_text(action, "cleaned_html"):
            turns.append((index, _make_state(page, index > 0)))
        turns.append((index, step))
    columns = frozenset({"confirmed_task", "actions", "action_reprs"})
    return FoundTurns(turns, columns, "actions hold operations on pages", get_text(row, "annotation_id") or None)


def _find_operation(row: Row) -> FoundTurns | None:
    """Multimodal-Mind2Web: the `operation` of one step, and in `action_reprs` those of all, of which the earlier ones
    have been made."""
    task, told, index = (
        row.get("confirmed_task"),
        decode_nested(row.get("action_reprs")),
        as_count(row.get("target_action_index")),
    )
    if not isinstance(task, str) or not isinstance(told, list) or index is None or index >= len(told):
        return None
    step = _read_operation(row, told[index])
    if step is None:
        return None
    done = "\n".join(str(each) for each in told[:index])
    shown = "\n\n".join(filter(None, [f"Previous actions:\n{done}" if done else "", get_text(row, "cleaned_html")]))
    turns: Turns = [(None, {"role": "user", "content": task})]
    if (picture := _read_picture(row.get("screenshot"))) or shown:
        content = [{"type": "text", "text": shown}, *([picture] if picture else [])] if picture else shown
        turns.append((None, {**_make_state("", False), "content": content}))
    told_too = {"confirmed_task", "operation", "action_reprs", "target_action_index", "target_action_reprs"}
    columns = frozenset({*told_too, *_PAGES})
    return FoundTurns([*turns, (0, step)], columns, "operation on a page", get_text(row, "annotation_id") or None)


def _read_operation(action: Any, told: Any) -> Row | None:
    """The step of an operation; the element is called as it is told: `[button] Search -> CLICK`."""
    if not isinstance(action, dict):
        return None
    operation = decode_nested(action.get("operation"))
    if operation is None and isinstance(told, str) and " -> " in told:
        name, _, value = told.rpartition(" -> ")[2].partition(": ")
        operation = {"op": name, "value": value}
    name = get_text(operation, "op").lower()
    if not name:
        return None
    given: Row = {}
    if isinstance(told, str) and " -> " in told:
        given["element"] = told.rpartition(" -> ")[0].strip()
    targets = action.get("pos_candidates")
    target = decode_nested(targets[0]) if isinstance(targets, list) and targets else None
    if node := get_text(target, "backend_node_id"):
        given["node"] = node
    if value := get_text(operation, "value"):
        given[_VALUES.get(name, "value")] = value
    return _make_step(name, given)


def _find_navigator_step(row: Row) -> FoundTurns | None:
    """WebLINX: the `action` of one turn as a call, after what was said and done before."""
    demo, action = row.get("demo"), row.get("action")
    if not isinstance(demo, str) or not isinstance(action, str) or "turn" not in row or "action_history" not in row:
        return None
    calls = CALL_LIST.parse(f"[{action.strip()}]")
    if len(calls) != 1:
        return None
    name, given = calls[0].name, decode_json(calls[0].arguments)
    if name == "say" and given.get("speaker") not in (None, "navigator"):
        return None
    named = {"Viewport": "viewport", "Actions so far": "action_history", "Candidates": "candidates"}
    texts = [f"{title}: {text}" for title, column in named.items() if (text := get_text(row, column))]
    shown = "\n\n".join([*texts, *filter(None, [get_text(row, "clean_html")])])
    turns: Turns = []
    if said := get_text(row, "utterances"):
        turns.append((None, {"role": "user", "content": said}))
    if shown:
        turns.append((None, _make_state(shown, False)))
    if name == "say" and isinstance(given.get("utterance"), str):
        turns.append((0, {"role": "assistant", "content": given["utterance"]}))
    else:
        turns.append((0, _make_step(name, given)))
    taken = frozenset({"action", "utterances", "clean_html", *named.values()})
    return FoundTurns(turns, taken, "action of a turn of a demonstration", demo)


def _find_phone_episode(row: Row) -> FoundTurns | None:
    """AndroidControl: the `actions` of an episode, with an instruction and a screen for each."""
    goal, actions = row.get("goal"), decode_nested(row.get("actions"))
    if not isinstance(goal, str) or not isinstance(actions, list) or not actions:
        return None
    words_of_steps = decode_nested(row.get("step_instructions"))
    is_told = isinstance(words_of_steps, list) and len(words_of_steps) == len(actions)
    told: list[Any] = words_of_steps if is_told else [""] * len(actions)
    screens = decode_nested(row.get("accessibility_trees"))
    turns: Turns = [(None, {"role": "user", "content": goal})]
    for index, (action, words) in enumerate(zip(map(decode_nested, actions), told, strict=True)):
        name = get_text(action, "action_type")
        if not name:
            return None
        if isinstance(screens, list) and index < len(screens) and isinstance(screens[index], str):
            turns.append((index, _make_state(screens[index], index > 0)))
        given = {key: value for key, value in action.items() if key != "action_type" and value is not None}
        turns.append((index, _make_step(name, given, words if isinstance(words, str) else "")))
    if isinstance(screens, list) and len(screens) == len(actions) + 1 and isinstance(screens[-1], str):
        turns.append((len(actions) - 1, _make_state(screens[-1], begun=True)))
    episode = row.get("episode_id")
    columns = frozenset({"goal", "actions", "step_instructions", "accessibility_trees", *_PAGES})
    own = str(episode) if isinstance(episode, (str, int)) and not isinstance(episode, bool) else None
    return FoundTurns(turns, columns, "actions of an episode on a phone", own)


def _make_state(text: str, begun: bool) -> Row:
    """What is on the screen: before the first step it belongs to the task, later it is what a step gave."""
    return {"role": "tool" if begun else "environment_state", "content": text}


def _make_step(name: str, arguments: Row, text: str = "") -> Row:
    return {"role": "assistant", "content": text, "tool_calls": [make_call(name, arguments)]}


def _read_picture(value: Any) -> Row | None:
    """A picture as a part of a message: its place, or a digest of its bytes."""
    value = value if isinstance(value, dict) else {"path": value} if isinstance(value, str) else {}
    data, path = value.get("bytes"), value.get("path")
    if isinstance(data, bytes):
        return {"type": "image", "image": {"data": base64.b64encode(data).decode()}}
    return {"type": "image", "image": {"url": path}} if isinstance(path, str) and path else None
