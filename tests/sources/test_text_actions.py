"""Which encoding a conversation is written in, who answers its calls, and what is not a step of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.actions.label_steps import label_trace
from foretrace.core.trace import Trace
from foretrace.encodings.unread_calls import find_unread_calls
from foretrace.rows.base import RowRef
from foretrace.sources.chat import Chat

READY = "Ok."
LOOK = "On the shelf 1, you see a pan 1."


def chat(*texts: str, system: str = "", **settings: Any) -> Trace:
    """User and agent in turn."""
    roles = ("user", "assistant")
    turns = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    trace = Chat(**settings).to_trace({"messages": turns, **({"system": system} if system else {})}, RowRef(0))
    assert isinstance(trace, Trace)
    return trace


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


def test_react_and_its_end() -> None:
    first = 'Thought: x\nAction: find\nAction Input: {"q": "a"}'
    trace = chat("Who?", first, "Observation: nobody", "Final Answer: nobody")
    assert calls(trace) == [("find", {"q": "a"})]
    assert (trace.messages[2].prefix, trace.messages[2].content) == ("Observation: ", "nobody")


def test_code_act() -> None:
    trace = chat(
        "Sum?", "I add.\n<execute>\n1 + 1\n</execute>", "Observation:\n2", "The answer is <solution> 2 </solution>."
    )
    assert calls(trace) == [("execute", {"code": "1 + 1"}), ("solution", {"answer": " 2 "})]


def test_fences_count_only_where_the_environment_answers() -> None:
    def turn(n: int) -> str:
        return f"I look.\n```bash\nls {n}\n```"

    agent = chat(
        "Go.", turn(1), "<returncode>0</returncode>\n<output>a</output>", turn(2), "<returncode>0</returncode>"
    )
    assert calls(agent) == [("bash", {"command": "ls 1"}), ("bash", {"command": "ls 2"})]
    person = chat("How?", turn(1), "Thanks, and then?", turn(2))
    assert calls(person) == [] and find_unread_calls(person) == []


@pytest.mark.parametrize(
    "named",
    ['<tool_call>{"name": "bash", "arguments": {"command": "rm -r a"}}</tool_call>', "<function=rm></function>"],
)
def test_the_encoding_of_the_conversation_goes_before_tags_in_prose(named: str) -> None:
    def turn(n: int, text: str = "I look.") -> str:
        return f"{text}\n```bash\nls {n}\n```"

    answer = "<returncode>0</returncode>\n<output>a</output>"
    told = turn(2, f"The log says {named} was made.")
    trace = chat("Go.", turn(1), answer, told, answer, turn(3), answer)
    assert calls(trace) == [("bash", {"command": f"ls {n}"}) for n in (1, 2, 3)]
    alone = chat("Go.", turn(1), answer, named, answer, turn(3), answer)
    assert len(calls(alone)) == 3, "a turn that has no call but that one"
    inner = "<function=write><parameter=text>\n```bash\nls 2\n```\n</parameter></function>"
    around = chat("Go.", turn(1), answer, inner, answer, turn(3), answer)
    assert [name for name, _ in calls(around)] == ["bash", "write", "bash"]


def test_prose_that_names_a_tag_does_not_hide_the_encoding() -> None:
    answer = "<returncode>0</returncode>\n<output>a</output>"
    named = "I do not write <tool_call> here.\n```bash\nls\n```"
    trace = chat("Go.", named, answer, "As said, no <tool_call>.\n```bash\npwd\n```", answer)
    assert calls(trace) == [("bash", {"command": "ls"}), ("bash", {"command": "pwd"})]


def test_code_agents() -> None:
    """smolagents ends a cell with a mark, OpenHands closes its tags within the line."""
    first, last = (
        "Thought: x\nCode:\n```py\nsearch('x')\n```<end_code>",
        "Code:\n```py\nfinal_answer('foo')\n```<end_code>",
    )
    assert calls(chat("Go.", first, "Observation:\nfoo", last)) == [
        ("python", {"code": "search('x')"}),
        ("python", {"code": "final_answer('foo')"}),
    ]
    assert [label.action for label in label_trace(chat("Go.", first, "Observation:\nfoo", last))][-1] == "final_answer"
    trace = chat("Go.", "I list. <execute_bash> ls </execute_bash>", "OBSERVATION:\na.py", "Done.")
    assert calls(trace) == [("execute_bash", {"command": " ls "})]


def test_numbered_thoughts() -> None:
    trace = chat("Who?", "Thought 1: x\nAction 1: Search[a]", "Observation 1: b", "Thought 2: y\nAction 2: Finish[b]")
    assert calls(trace) == [("Search", {"input": "a"}), ("Finish", {"input": "b"})]
    assert trace.messages[2].prefix == "Observation 1: "


def test_a_person_after_a_text_answer_stays_a_person() -> None:
    trace = chat(
        "Q1", "Action: search[x]", "Observation: y", "Action: finish[y]", "Thanks. And Q2?", "Action: search[z]"
    )
    assert roles(trace) == "uataua"


def test_an_example_that_is_played_through() -> None:
    """AgentInstruct: the same example stands at the beginning of every row."""
    example = ["Rules.", READY, "Question: A?", "Action: get(A)", "Observation: 1", "Final Answer: 1"]
    one = chat(*example, "A new question: B?", "Action: get(B)", "Observation: 2", "Final Answer: 2")
    two = chat(*example, "A new question: C?", "Action: get(C)", "Observation: 3", "Final Answer: 3")
    assert one.task.id != two.task.id
    assert [m.train for m in one.messages if m.role == "assistant"] == [False, False, False, None, None]
    assert [m.extra.get("example", False) for m in one.messages] == [False] + [True] * 5 + [False] * 4


def test_notices_are_the_environments() -> None:
    trace = chat("Go.", "Done.", "<system-reminder>Be brief.</system-reminder>", "Really done.")
    assert trace.messages[2].author == "environment"
    assert label_trace(trace)[0].rule == "nonstep.prompted"


def test_a_pattern_of_the_user() -> None:
    trace = chat("Go.", "RUN grep x", "a.py", "RUN cat a.py", call_pattern=r"^RUN (?P<tool>\w+) (?P<input>.*?)$")
    assert calls(trace) == [("grep", {"input": "x"}), ("cat", {"input": "a.py"})] and roles(trace) == "uata"


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
    trace = Chat().to_trace(tool, RowRef(0))
    assert isinstance(trace, Trace) and find_unread_calls(trace) == [1]
    lost = json.loads(json.dumps(tool).replace("grep x", "None"))
    trace = Chat().to_trace(lost, RowRef(0))
    assert isinstance(trace, Trace) and find_unread_calls(trace) == [], "what is lost cannot be read"


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
