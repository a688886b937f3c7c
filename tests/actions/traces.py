"""Build small traces for the tests of labels."""

from __future__ import annotations

import json
from typing import Any

from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.trace import Message, Provenance, Task, ToolCall, Trace


def trace(*messages: Message) -> Trace:
    """A trace of these messages."""
    return Trace(
        key="t",
        task=Task(id="t", group="t"),
        messages=messages,
        provenance=Provenance(origin="imported", source="test"),
    )


def say(text: str, **fields: Any) -> Message:
    """A message of the agent without a call."""
    return Message(role="assistant", author=fields.pop("author", "model"), content=text, **fields)


def user(text: str) -> Message:
    """A message of the user."""
    return Message(role="user", author="user", content=text)


def notice(text: str) -> Message:
    """What the agent's program says in the user's role."""
    return Message(role="user", author="environment", content=text)


def seen(text: str, **fields: Any) -> Message:
    """An observation."""
    return Message(role="tool", author="environment", content=text, **fields)


def do(name: str, text: str = "", call_id: str = "", **arguments: Any) -> Message:
    """A message of the agent with one call."""
    made = ToolCall(id=call_id, name=name, arguments=json.dumps(arguments))
    return Message(role="assistant", author="model", content=text, tool_calls=(made,))


def sh(command: str, text: str = "") -> Message:
    """A shell command."""
    return do("bash", text, command=command)


def make(path: str, body: str = "x = 1\n") -> Message:
    """Create a file with the editor."""
    return do("str_replace_editor", command="create", path=path, file_text=body)


def change(path: str, old: str = "a", new: str = "b") -> Message:
    """Change a file with the editor."""
    return do("str_replace_editor", command="str_replace", path=path, old_str=old, new_str=new)


OK = seen("The file has been edited. Here's a snippet:\n     1\traise Error")
DONE = seen("Your command ran successfully and did not produce any output.")
BOOM = seen('Traceback (most recent call last):\n  File "p.py", line 1, in <module>\nKeyError: 3')
PASSED = seen("===== 3 passed in 0.1s =====")
REFUSED = seen("No replacement was performed, old_str `a` did not appear verbatim in /r/a.py.")


def labels(*messages: Message) -> list[StepLabel]:
    """The labels of a trace of these messages."""
    return label_trace(trace(*messages))


def actions(*messages: Message) -> list[str]:
    """Their actions; a message that is not a step gives its rule."""
    return [label.action.value if label.action else label.rule for label in labels(*messages)]
