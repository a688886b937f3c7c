"""Rows of all forms, as `chat` reads them: by structure, whatever the columns are called. Messages, steps of home-made
loops, and texts with the tokens of a chat template."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from foretrace.core.trace import Message, Trace
from foretrace.sources.base import RowError
from foretrace.sources.row_turns import find_turns, split_template
from sources.raw_rows import native_call, read_row

ASK = {"role": "user", "content": "Find it."}


def sketch(trace: Trace) -> list[tuple[str, str, list[str]]]:
    return [(m.role, m.content, [c.name for c in m.tool_calls]) for m in trace.messages]


def agent(trace: Trace) -> list[Message]:
    return [m for m in trace.messages if m.role == "assistant"]


@pytest.mark.parametrize("completion", ["Here.", {"role": "assistant", "content": "Here."}, None])
def test_halves(completion: Any) -> None:
    said = completion or [{"role": "assistant", "content": "Here."}]
    for row in ({"messages": [ASK], "completion": said}, {"prompt": [ASK], "completion": said}):
        assert sketch(read_row(row)) == [("user", "Find it.", []), ("assistant", "Here.", [])]
    assert sketch(read_row({"prompt": "Find it.", "response": "Here."}))[0] == ("user", "Find it.", [])
    assert agent(read_row({"prompt": "Find it.", "completion": said}))[0].raw_index == 0


def test_a_conversation_in_input() -> None:
    """Whole, or with its last reply as a text in `output`."""
    said = {"role": "assistant", "content": "Here."}
    expected = [("user", "Find it.", []), ("assistant", "Here.", [])]
    assert sketch(read_row({"input": [ASK, said]})) == sketch(read_row({"input": [ASK], "output": "Here."})) == expected
    with pytest.raises(RowError, match="no column messages"):
        read_row({"input": "Find it.", "output": "Here."})
    with pytest.raises(RowError, match="no column messages"):
        read_row({"input": [ASK, said, ASK], "ideal": "There."})  # the reply is an example in a prompt


def test_attachments_are_part_of_the_text() -> None:
    """Claude's exported chats."""
    files = [{"file_name": "a.txt", "extracted_content": "The text of the file."}, {"file_name": "b.png"}]
    turns = [{"sender": "human", "text": "Look.", "attachments": files}, {"sender": "assistant", "text": "Nice."}]
    asked = read_row({"chat_messages": turns}).messages[0]
    assert asked.content == "Look.\n\na.txt\nThe text of the file."
    assert asked.extra["attachments"] == [{"file_name": "a.txt"}, {"file_name": "b.png"}]


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def test_responses_items() -> None:
    """Calls are batched, one has no output, and reasoning comes after the call that it explains."""
    output = [
        item("function_call", call_id="c1", name="f", arguments='{"a": 1}'),
        item("reasoning", summary=[{"type": "summary_text", "text": "because"}]),
        item("function_call", call_id="c2", name="g", arguments=""),
        item("function_call_output", call_id="c2", output="two"),
        item("function_call_output", call_id="c1", output="one"),
        item("reasoning", summary=[{"type": "summary_text", "text": "so"}]),
        item("message", role="assistant", content=[{"type": "output_text", "text": "done"}]),
        item("function_call", call_id="c3", name="h", arguments="{}"),
        item("reasoning", summary=[]),
    ]
    asked = [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "hi"}]
    row = {
        "id": "r1",
        "responses_create_params": {"instructions": "Be kind.", "input": asked, "tools": [{"name": "f"}]},
        "response": {"model": "m", "output": output},
        "reward": 1.0,
    }
    trace = read_row(row)
    assert [m.raw_index for m in trace.messages] == [None, None, None, 0, 2, 3, 4, 6, 7]
    assert [m.reasoning for m in agent(trace)] == [None, "because", None, "so", None]
    assert [m.train for m in agent(trace)] == [False, None, None, None, None]
    assert trace.provenance.model == "m" and trace.outcome.reward == 1.0 and [t.name for t in trace.tools] == ["f"]
    first = next(s for s in trace.steps() if s.calls and s.calls[0].name == "f")
    assert [m.content for m in first.observations] == ["one"]
    mapped = read_row({"log": {"steps": output}}, columns={"messages": "log.steps"})
    assert len(agent(mapped)) == 4


def test_turns_whose_text_is_elsewhere() -> None:
    """nebius: the system text is in `system_prompt`."""
    turns = [
        {"role": "system", "text": None, "system_prompt": "SETTING"}, {"role": "user", "text": "Issue"},
        {"role": "ai", "text": "Look.\n```\nls\n```"}, {"role": "user", "text": "a.py\nbash-$"},
    ]  # fmt: skip
    found = sketch(read_row({"trajectory": turns}))
    assert [(role, calls) for role, _, calls in found] == [
        ("system", []), ("user", []), ("assistant", ["bash"]), ("tool", []),
    ]  # fmt: skip
    assert found[0][1] == "SETTING" and found[3][1] == turns[3]["text"]


def test_wanted_calls() -> None:
    """xLAM: a question, and the calls that answer it."""
    answers = [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]
    trace = read_row({"query": "How?", "answers": json.dumps(answers), "tools": json.dumps([{"name": "f"}])})
    assert sketch(trace) == [("user", "How?", []), ("assistant", "", ["f", "g"])] and len(trace.tools) == 1


def test_parallel_lists_and_a_system_column() -> None:
    row = {"system": "S", "conversations": {"from": ["human", "gpt"], "value": ["hi", "ho"]}}
    assert sketch(read_row(row)) == [("system", "S", []), ("user", "hi", []), ("assistant", "ho", [])]


@pytest.mark.parametrize("role", ["system", "System", "developer"])
def test_a_system_prompt_in_a_column_and_as_a_turn_is_kept_once(role: str) -> None:
    turns = [{"role": role, "content": "S"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    trace = read_row({"system": "S", "messages": turns})
    assert [m.content for m in trace.messages] == ["S", "hi", "ho"] and not trace.extra


def test_a_transcript_as_one_text() -> None:
    text = "user: hi\nthere\nassistant: None\ntool: {}\nassistant: Your balance is 3.\nuser: bye"
    trace = read_row({"messages_display": text})
    assert [(m.role, m.content, m.raw_index) for m in trace.messages] == [
        ("user", "hi\nthere", 0),
        ("assistant", "None", 1),
        ("tool", "{}", 2),
        ("assistant", "Your balance is 3.", 3),
        ("user", "bye", 4),
    ]


def test_map_names_role_and_content() -> None:
    row = {"dialog": [{"who": "user", "said": "hi"}, {"who": "assistant", "said": "ho"}]}
    trace = read_row(row, columns={"messages": "dialog", "role": "who", "content": "said"})
    assert sketch(trace) == [("user", "hi", []), ("assistant", "ho", [])]
    with pytest.raises(RowError, match="message 0 has no role; it has said, who"):
        read_row(row, columns={"messages": "dialog", "role": "absent"})
    with pytest.raises(RowError, match="message 0 has the role 'guide'; known are system, developer, user"):
        read_row({"messages": [{"role": "guide", "content": "hi"}]})


def test_arguments_get_the_type_of_the_schema() -> None:
    properties = {"view_range": {"type": "array"}, "line": {"type": "integer"}, "path": {"type": "string"}}
    tool = {"type": "function", "function": {"name": "view", "parameters": {"properties": properties}}}
    text = "<function=view>\n<parameter=path>7</parameter>\n<parameter=view_range>[1, 5]</parameter>\n</function>"
    native = native_call(1, "view", line="12", view_range="all", path="7")
    row = {"tools": [tool], "messages": [ASK, {"role": "assistant", "content": text}, {"role": "tool", "content": "x"}]}
    (call,) = agent(read_row(row))[0].tool_calls
    assert json.loads(call.arguments) == {"path": "7", "view_range": [1, 5]} and call.repairs == ("typed",)
    row["messages"][1] = {"role": "assistant", "content": "", "tool_calls": [native]}
    (call,) = agent(read_row(row))[0].tool_calls
    assert json.loads(call.arguments) == {"line": 12, "view_range": "all", "path": "7"}


def outline(trace: Trace) -> list[tuple[str, str]]:
    return [(m.role, m.content or ", ".join(f"{c.name} {c.arguments}" for c in m.tool_calls)) for m in trace.messages]


def calls(trace: Trace) -> list[tuple[str, dict[str, Any]]]:
    return [(c.name, json.loads(c.arguments)) for m in trace.messages for c in m.tool_calls]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"task": "T", "trajectory": [{"thought": "t", "action": "search[x]", "observation": "o"}]},
         [("search", {"input": "x"})]),
        ({"question": "Q", "steps": json.dumps([{"tool": "look", "tool_input": {"q": 1}, "observation": None},
                                                {"tool": "look", "tool_input": "", "observation": "o"}])},
         [("look", {"q": 1}), ("look", {})]),
        ({"goal": "G", "actions": [{"action": "go", "args": {"url": "u"}, "result": "ok"}]}, [("go", {"url": "u"})]),
        ({"task": "T", "history": [{"thought": "t", "command": "ls", "output": "a"}]}, [("bash", {"command": "ls"})]),
        ({"task": "T", "steps": [{"thought": "t", "action": "go north", "observation": "o"}]},
         [("act", {"input": "go north"})]),
        ({"task": "T", "steps": [{"action": {"name": "f", "arguments": '{"n": 1}'}, "observation": "o"}]},
         [("f", {"n": 1})]),
        ({"task": "T", "steps": [{"thought": "t", "observation": "o", "tool_calls": [
            {"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]}]}, [("f", {}), ("g", {})]),
    ],
)  # fmt: skip
def test_steps(row: dict[str, Any], found: list[tuple[str, dict[str, Any]]]) -> None:
    trace = read_row(row)
    assert calls(trace) == found
    assert any(m.role == "tool" for m in trace.messages)


@pytest.mark.parametrize(
    "row",
    [
        {"steps": [{"action": "mix(it)", "result": "dough"}]}, {"steps": [{"tool": "saw"}]},
        {"actions": [{"action": "open", "args": {}}]}, {"steps": [1, {"action": "f[x]"}]},
        {"history": [["Hi", "Hello"]]}, {"trajectory": [[1, 2]]},
        {"goal": "Test", "steps": [{"action": "Click", "input": "button", "result": "ok"}]},
        {"task": "build", "steps": [{"command": "make", "output": "ok"}, {"command": "make test", "output": "ok"}]},
    ],
)  # fmt: skip
def test_words_about_actions_are_no_steps(row: dict[str, Any]) -> None:
    with pytest.raises(RowError):
        read_row(row)


def test_calls_beside_a_response() -> None:
    row = {"prompt": "Go.", "response": "I go.", "tool_calls": [{"name": "f", "arguments": {"n": 1}}]}
    assert calls(read_row(row)) == [("f", {"n": 1})]


def test_a_speaker_who_calls() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    said = {"sender": "assistant", "content": "", "tool_calls": [call]}
    assert calls(read_row({"messages": [{"sender": "user", "content": "Go."}, said]})) == [("f", {})]


def test_a_column_of_calls_that_holds_none() -> None:
    """Such a row was read before the column was."""
    for value in ([{"id": 1}], ["x"], [3], 2):
        trace = read_row({"prompt": "Go.", "completion": "I go.", "tool_calls": value})
        assert outline(trace) == [("user", "Go."), ("assistant", "I go.")]


def test_a_last_thought_and_an_answer() -> None:
    step = {"thought": "a", "action": "f", "args": {"x": 1}, "observation": {"a": 1}}
    trace = read_row({"task": "T", "steps": [step, {"thought": "So it is 4.", "action": None}], "answer": "4"})
    assert outline(trace) == [
        ("user", "T"), ("assistant", "a"), ("tool", '{"a": 1}'), ("assistant", "So it is 4."), ("assistant", "4"),
    ]  # fmt: skip
    with pytest.raises(RowError):
        read_row({"task": "T", "steps": [{"thought": "a", "result": "b"}]})


CALL = '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>'
CHAT_ML = (
    f"<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<think>\nHm.\n</think>\n\n{CALL}<|im_end|>\n"
    "<|im_start|>user\n<tool_response>\n3 C\n</tool_response><|im_end|>\n<|im_start|>assistant\nIt is 3 C.<|im_end|>\n"
)
LLAMA = (
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n<|python_tag|>"
    '{"name": "look", "parameters": {"city": "Oslo"}}<|eom_id|>'
    "<|start_header_id|>ipython<|end_header_id|>\n\n3 C<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nIt is 3 C.<|eot_id|>"
)


@pytest.mark.parametrize(
    "row",
    [
        {"text": CHAT_ML},
        {"prompt": CHAT_ML.partition("<think>")[0], "completion": "<think>" + CHAT_ML.partition("<think>")[2]},
        {"prompt_and_reply": LLAMA},
    ],
    ids=["ChatML", "halves", "Llama"],
)
def test_a_call_its_result_and_an_answer(row: dict[str, Any]) -> None:
    trace = read_row(row)
    assert [m.role for m in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert "Weather?" in trace.messages[0].content and "3 C" in trace.messages[2].content
    (call,) = trace.messages[1].tool_calls
    assert call.name == "look" and json.loads(call.arguments) == {"city": "Oslo"}
    assert "It is 3 C." in trace.messages[3].content
    assert trace.messages[1].reasoning == (None if "prompt_and_reply" in row else "Hm.")


def write_chat_ml(*turns: tuple[str, str]) -> str:
    return "".join(f"<|im_start|>{role}\n{said}<|im_end|>\n" for role, said in turns)


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user\nHello<|im_end|> STRAY <|im_start|>assistant\nHi.<|im_end|>",
        write_chat_ml(("user", "What does <|im_end|> do?"), ("assistant", "It ends.")),
        write_chat_ml(("user", "Hello"), ("assistant", "Hi.")) + "STRAY",
        "<|im_start|>user STRAY\nHello<|im_end|><|im_start|>assistant\nHi.<|im_end|>",
        "<|im_start|>user\nHello\n<|im_start|>assistant\nHi.<|im_end|>",
        LLAMA.replace("<|eot_id|>", "<|eot_id|>STRAY", 1),
    ],
    ids=["between", "quoted", "behind", "in a header", "no end", "Llama"],
)
def test_text_that_is_in_no_turn_refuses_the_row(text: str) -> None:
    with pytest.raises(RowError) as caught:
        read_row({"text": text})
    assert caught.value.drop.reason == "stray_text"


def test_of_two_conversations_none_is_taken() -> None:
    bad, good = (write_chat_ml(("user", "q"), ("assistant", said)) for said in ("BAD", "GOOD"))
    assert find_turns({"rejected": bad, "chosen": good}) is None
    spoken = "Human: q\nAssistant: "
    assert find_turns({"rejected": f"{spoken}BAD", "chosen": f"{spoken}GOOD"}) is None
    trace = read_row({"rejected": bad, "chosen": good}, columns={"messages": "chosen"})
    assert [m.content for m in trace.messages] == ["q", "GOOD"]


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user " * 60_000,
        "<|im_start|>" + "a" * 1_000_000,
        "<|im_start|>a" + " " * 1_000_000,
        "<|start_header_id|>a" * 50_000,
    ],
)
def test_headers_without_an_end_take_no_time(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(RowError):
        split_template(text)
    assert time.process_time() - begun < 2
