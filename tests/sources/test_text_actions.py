"""Which encoding a conversation is written in, who answers its calls, and what is not a step of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.actions.label_steps import label_trace
from foretrace.core.trace import Trace
from foretrace.encodings.unread_calls import find_unread_calls
from sources.raw_rows import read_row

READY = "Ok."
LOOK = "On the shelf 1, you see a pan 1."


def chat(*texts: str) -> Trace:
    """User and agent in turn."""
    roles = ("user", "assistant")
    turns = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return read_row({"messages": turns})


def calls(trace: Trace) -> list[tuple[str, dict[str, Any]]]:
    return [(c.name, json.loads(c.arguments)) for m in trace.messages for c in m.tool_calls]


def roles(trace: Trace) -> str:
    return "".join(m.role[0] for m in trace.messages)


def test_alfworld() -> None:
    trace = chat("Rules.", READY, "Task: cool a pan.", "THOUGHT: go\nACTION: go to shelf 1", LOOK, "ACTION: take pan 1")
    assert calls(trace) == [("act", {"input": "go to shelf 1"}), ("act", {"input": "take pan 1"})]
    assert roles(trace) == "uauata" and trace.messages[4].raw_role == "user"
    assert label_trace(trace)[0].rule == "nonstep.acknowledgement"
    other = chat("Rules.", READY, "Task: heat a pan.", "ACTION: go to shelf 1", LOOK, "ACTION: take pan 1")
    assert trace.task.id != other.task.id, "the preamble is not a task"


def test_an_example_that_is_played_through() -> None:
    """AgentInstruct: the same example stands at the beginning of every row."""
    example = ["Rules.", READY, "Question: A?", "Action: get(A)", "Observation: 1", "Final Answer: 1"]
    one = chat(*example, "A new question: B?", "Action: get(B)", "Observation: 2", "Final Answer: 2")
    two = chat(*example, "A new question: C?", "Action: get(C)", "Observation: 3", "Final Answer: 3")
    assert one.task.id != two.task.id
    assert [m.train for m in one.messages if m.role == "assistant"] == [False, False, False, None, None]
    assert [m.extra.get("example", False) for m in one.messages] == [False] + [True] * 5 + [False] * 4


@pytest.mark.parametrize(
    "said",
    [
        "<tool name='grep'>x</tool>",
        'I look.\n{"command": "grep", "of": ["x"]}',
        "Tool call: grep x",
        "<action>open door</action>",
    ],
)
def test_unread_calls(said: str) -> None:
    """Calls in a way that no reader knows."""
    assert find_unread_calls(chat("Go.", said, "a.py", said, "b.py", "Done.")) == [1, 3]


def test_unread_calls_by_what_answers() -> None:
    assert find_unread_calls(chat("Go.", "grep x", "Observation: a.py", "Done.")) == [1]
    assert find_unread_calls(chat("Go.", "grep x", '[{"file": "a.py"}]', "Done.")) == [1]
    tool = {"messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "grep x"}]}
    tool["messages"] += [{"role": "tool", "content": "a.py"}, {"role": "assistant", "content": "Done."}]
    assert find_unread_calls(read_row(tool)) == [1]
    lost = json.loads(json.dumps(tool).replace("grep x", "None"))
    assert find_unread_calls(read_row(lost)) == [], "what is lost cannot be read"


def test_unread_calls_of_bare_blocks_of_code() -> None:
    """Nothing marks their outputs: they are known by all turns together, and a person's word in between ends that."""
    turns = [text for n in range(3) for text in (f"Next.\n```bash\ncat {n}.py\n```", f"x = {n}")]
    assert find_unread_calls(chat("Go.", *turns, "Done.")) == [1, 3, 5]
    assert find_unread_calls(chat("Go.", *turns[:4], "Done.")) == [], "too few to tell"
    ran = [text for n in range(3) for text in (f"I look it up.\n%%RUN lookup {n} --deep %%\nWait.", f"item {n} found")]
    assert find_unread_calls(chat("Go.", *ran, "Done.")) == [1, 3, 5], "in a syntax of its own, on any line"
    assert find_unread_calls(chat("Go.", "%%RUN lookup 1 --deep %%", "id=1 qty=2", "Done.")) == [1], "symbols answer"
    german = [text for n in range(3) for text in (f"**Schritt {n}**: fertig.", "Weiter, danke sehr.")]
    assert find_unread_calls(chat("Los.", *german[:2], "Gut.")) == []
    for said in ("Thanks, and then?", "It prints x = 2 on my machine", "now for zsh"):
        assert find_unread_calls(chat("Go.", *turns[:-1], said, "Done.")) == []


@pytest.mark.parametrize(
    "texts",
    [
        ("Sort it.", "```python\nsorted(x)\n```", "Execution result: \n[1]", "It is sorted."),
        ("Hi", "What is your name?", "Ann", "Hello, Ann."),
        ("Fix it.", "Try:\n```python\nf()\n```", "Traceback (most recent call last):\n...", "Then try `g()`."),
        ("What is HTML?", "It has <b>tags</b>.\nCommands come later.", "And CSS?", "It styles."),
        ("Hi", "Options:\n1. a\n2. b", '"b", please', "Done."),
    ],
)
def test_plain_chats_have_no_unread_calls(texts: tuple[str, ...]) -> None:
    assert find_unread_calls(chat(*texts)) == []
