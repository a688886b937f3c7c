"""Rows of made-up attempts, with prompts as `build` writes them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from foretrace.actions.taxonomy import ActionType
from foretrace.core.message_columns import ChatText
from foretrace.core.predictions import PredictedCall
from foretrace.evaluation.dataset_rows import DatasetRow


class Turn(NamedTuple):
    """One step of an attempt."""

    action: ActionType
    tool: str
    arguments: dict[str, Any]
    result: str


def bash(command: str, result: str = "", action: ActionType = ActionType.RETRIEVAL) -> Turn:
    return Turn(action, "bash", {"command": command}, result)


def view(path: str, result: str = "x = 1") -> Turn:
    return Turn(ActionType.FILE_READ, "str_replace_editor", {"command": "view", "path": path}, result)


def create(path: str, text: str) -> Turn:
    return Turn(
        ActionType.FILE_WRITE, "str_replace_editor", {"command": "create", "path": path, "file_text": text}, "created"
    )


def edit(path: str, old: str, new: str) -> Turn:
    arguments = {"command": "str_replace", "path": path, "old_str": old, "new_str": new}
    return Turn(ActionType.FILE_WRITE, "str_replace_editor", arguments, "The file has been edited.")


def write_turn(turn: Turn) -> str:
    call = {"name": turn.tool, "arguments": turn.arguments}
    return f"Next.\n<tool_call>\n{json.dumps(call)}\n</tool_call>"


def make_prompt(task: str, past: Sequence[Turn]) -> tuple[ChatText, ...]:
    messages = [ChatText("system", "You watch an agent."), ChatText("user", task)]
    for turn in past:
        messages += [ChatText("assistant", write_turn(turn)), ChatText("user", turn.result)]
    return tuple(messages)


def make_rows(key: str, task: str, turns: Sequence[Turn], *, group: str = "") -> list[DatasetRow]:
    """A row for each step."""
    return [
        DatasetRow(
            key=key,
            step=2 + 2 * at,
            group=group or key,
            prompt=make_prompt(task, turns[:at]),
            action=str(turn.action),
            calls=(PredictedCall(turn.tool, json.dumps(turn.arguments)),),
        )
        for at, turn in enumerate(turns)
    ]


def make_attempt(number: int) -> list[DatasetRow]:
    """Look, read the file that was found, reproduce, edit, run again what was run, submit; names differ each time."""
    rng = random.Random(number)
    letters = "".join(rng.choice("abcdefghij") for _ in range(6))
    source, script = f"/testbed/src/{letters}.py", f"/testbed/try_{letters}.py"
    fails = f'Traceback (most recent call last):\n  File "{source}", line 3, in <module>\nValueError: bad'
    turns = [
        bash("find /testbed -name '*.py'", f"{source}\n/testbed/setup.py"),
        view(source, "def f(): pass"),
        create(script, f"import {letters}"),
        bash(f"python {script}", fails, ActionType.VERIFIER),
        edit(source, "pass", f"return {number}"),
        bash(f"python {script}", "ok, all passed", ActionType.VERIFIER),
        Turn(ActionType.FINAL_ANSWER, "submit", {}, ""),
    ]
    return make_rows(f"k{number}", f"Fix `{letters}` in\n/testbed\nplease.", turns, group=f"g{number}")


def make_attempts(numbers: Iterable[int]) -> list[DatasetRow]:
    return [row for number in numbers for row in make_attempt(number)]
