"""`foretrace export`: what the forms chat and inline make of generated traces, and what inline refuses."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.conftest import Run
from episodes.test_labels import STORIES, VERIFY, call, code
from foretrace.actions.label_steps import label_trace
from foretrace.api.generation import generate
from foretrace.core.completion import Completion, Request
from foretrace.core.store import read_traces, write_traces
from foretrace.core.trace import Message, Outcome, Part, Provenance, Sampled, Task, ToolCall, Trace, add_trace_id
from foretrace.exports.chat import make_chat_row
from foretrace.exports.inline import make_inline_row
from foretrace.models.base import Server
from foretrace.models.servers.scripted import Scripted
from foretrace.protocols.inline import Inline
from foretrace.protocols.tools import Tools
from foretrace.rows.base import Drop, RowRef
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox
from foretrace.sources.chat import Chat
from protocols.play import RIGHT, WRONG, Stage

TWO_CALLS = f"<think>{call('print(1)')} and then {call('print(2)')}"
REFUSED = '<tool_call>{"name": "nobody", "arguments": {"code": "1"}}</tool_call>'
FINAL = f"</think>\n```python\n{RIGHT}```"
PLAYS = STORIES | {
    "inline, two calls at once": (Inline(), [TWO_CALLS, FINAL], ""),
    "inline, a refused call": (Inline(), [f"<think>Let me see now.{REFUSED}", FINAL], ""),
    "inline, reminded": (Inline(), ["<think>Let me see now.", "I know it.</think>", FINAL], ""),
    "tools, an empty block": (Tools(), [code(""), code(RIGHT), VERIFY], ""),
    "tools, an empty block among others": (Tools(), [f"{code(WRONG)}{code('')}{code(RIGHT)}", VERIFY], ""),
}


def weak() -> LocalSandbox:
    """Whatever this machine offers."""
    return LocalSandbox(SandboxSettings(workers=1, min_level=0, allow_weak_isolation=True))


@pytest.fixture(scope="module")
def plays() -> Iterator[dict[str, Trace]]:
    """A real episode of each story: all five protocols."""
    with asyncio.Runner() as runner:
        sandbox = weak()
        stage = Stage(runner, sandbox)
        yield {
            name: stage.play(protocol, *replies, max_turns=len(replies)).trace
            for name, (protocol, replies, _) in PLAYS.items()
        }
        runner.run(sandbox.close())


def made(*messages: Message, **more: Any) -> Trace:
    """A trace of these messages."""
    origin = Provenance(origin="generated", source="made", protocol="inline")
    return add_trace_id(Trace(key="made/1", task=Task(id="t", group="g"), messages=messages, provenance=origin, **more))


ANSWER = "</think>\n```python\ndef two_sum(numbers, target):\n    return None\n```"
SYSTEM = Message(role="system", author="user", content="Rules.")
USER = Message(role="user", author="user", content="Task.", turn=1)
WORDS = st.text(alphabet="ab <>/\n\u00e9\U0001f600", max_size=6) | st.sampled_from(
    ["<tool_response>", "</tool_response>\n", "\n<tool_response>\n"]
)


def exactly(text: str, *, known: bool = True) -> Sampled:
    """Bytes are the tokens."""
    ids = tuple(text.encode())
    return Sampled(token_ids=ids, logprobs=(-0.5,) * len(ids), exact="token" if known else "text")


@st.composite
def turns(draw: st.DrawFn) -> Trace:
    """Traces of one turn with injected answers, or of several turns, with and without tokens."""
    one_turn, with_tokens = draw(st.booleans()), draw(st.booleans())
    messages = [SYSTEM, USER] if draw(st.booleans()) else [USER]
    turn = 2
    for number in range(draw(st.integers(1, 6))):
        mine, text = number == 0 or draw(st.booleans()), draw(WORDS)
        known = with_tokens and draw(st.integers(0, 9)) > 0
        sampled = exactly(text, known=known) if with_tokens or draw(st.booleans()) else None
        turn += not one_turn
        if mine:
            train, continues = draw(st.sampled_from([None, True, False])), number > 0 and one_turn
            said = Message(role="assistant", author="model", train=train, continues=continues)
        else:
            sampled = sampled and msgspec.structs.replace(sampled, logprobs=())
            prefix = "" if one_turn else draw(WORDS)
            said = Message(role="tool", author="environment", train=False, prefix=prefix, injected=one_turn)
        messages.append(msgspec.structs.replace(said, content=text, turn=turn, sampled=sampled))
    outcome = Outcome(success=draw(st.none() | st.booleans()), reward=draw(st.none() | st.just(0.5)))
    return made(*messages, outcome=outcome)


def outside(content: str, spans: list[tuple[int, int]]) -> list[str]:
    """What lies before, between and behind the spans."""
    starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(content)]
    return [content[start:end] for start, end in zip(starts, ends, strict=True)]


def held(trace: Trace, row: dict[str, Any]) -> None:
    """All that is true of every inline row."""
    rest = [m for m in trace.messages if m.role in ("assistant", "tool")]
    *prompt, answer = row["messages"]
    content, spans = answer["content"], row["spans"]
    assert answer["role"] == "assistant"
    assert [(m["role"], m["content"]) for m in prompt] == [(m.role, m.content) for m in trace.messages[: len(prompt)]]
    assert len(prompt) + len(rest) == len(trace.messages)
    assert all(0 <= a < b <= c for (a, b), (c, _) in itertools.pairwise([*spans, (len(content), 0)]))
    # Offsets slice out exactly the texts of the model that are to be learned, and all else is what was answered.
    learned: list[str] = []
    others: list[str] = []
    pieces: list[str] = []
    for message in rest:
        text = message.prefix + message.content
        if message.role == "tool" and not message.injected:
            text = f"\n<tool_response>\n{text}\n</tool_response>\n"
        pieces.append(text)
        (learned if message.role == "assistant" and message.train is not False else others).append(text)
    assert content == "".join(pieces)
    assert [content[a:b] for a, b in spans] == [text for text in learned if text]
    assert "".join(outside(content, spans)) == "".join(others)
    if row["token_ids"] is None:
        assert row["mask"] is None and row["logprobs"] is None and row["prompt_token_ids"] is None
    else:
        assert len(row["mask"]) == len(row["token_ids"])
        assert row["logprobs"] is None or len(row["logprobs"]) == len(row["token_ids"])
    assert (row["success"], row["reward"]) == (trace.outcome.success, trace.outcome.reward)
    assert (row["key"], row["task"], row["group"]) == (trace.key, trace.task.id, trace.task.group)


@given(turns())
def test_spans_hold_what_the_model_wrote_and_ids_are_those_of_the_content(trace: Trace) -> None:
    row = make_inline_row(trace)
    assert isinstance(row, dict)
    held(trace, row)
    rest = [m for m in trace.messages if m.role in ("assistant", "tool")]
    whole = all(m.injected or m.role == "assistant" for m in rest) and len({m.turn for m in rest}) == 1
    known = all(m.sampled.exact == "token" if m.sampled else not m.content for m in rest)
    assert (row["token_ids"] is not None) == (whole and known and row["messages"][-1]["content"] != "")
    if row["token_ids"] is not None:
        check_ids(row)


def check_ids(row: dict[str, Any]) -> None:
    """Where bytes are the tokens: the ids are those of the content, and the mask is that of the spans."""
    content: str = row["messages"][-1]["content"]
    assert bytes(row["token_ids"]) == content.encode()
    mine = bytes(i for i, own in zip(row["token_ids"], row["mask"], strict=True) if own)
    assert mine == "".join(content[a:b] for a, b in row["spans"]).encode()
    assert row["logprobs"] == [-0.5 if own else 0.0 for own in row["mask"]]


def test_a_row_with_results_in_the_message_is_not_taken_for_one_step(plays: dict[str, Trace]) -> None:
    said = made(USER, Message(role="assistant", author="model", content="Done."))
    rows = [json.loads(json.dumps(make_inline_row(t))) for t in (plays["inline, two calls at once"], said)]
    refused, read = (Chat().to_trace(row, RowRef(row=0)) for row in rows)
    assert isinstance(refused, Drop) and refused.reason == "results_within_a_turn"
    assert isinstance(read, Trace) and read.messages[-1].content == "Done."


SAID = Message(role="assistant", author="model", content="a", turn=2)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([SYSTEM, USER], "empty_trace"),
        ([SAID], "other_opening"),
        ([USER, USER, SAID], "other_opening"),
        ([USER, SAID, Message(role="user", author="environment", content="Go on.", turn=3), SAID], "prompted"),
        ([USER, SAID, Message(role="user", author="user", content="And now?", turn=3), SAID], "other_turns"),
        ([USER, Message(role="assistant", author="model", parts=(Part(type="image"),))], "parts"),
        ([USER, Message(role="assistant", author="model", content="a", reasoning="hm")], "thinking_apart"),
        ([USER, Message(role="assistant", author="model", tool_calls=(ToolCall(name="f"),))], "calls_not_in_text"),
    ],
)
def test_what_is_no_single_message_is_refused(messages: list[Message], reason: str) -> None:
    assert make_inline_row(made(*messages)) == Drop(reason)


def runs(trace: Trace) -> list[list[int]]:
    """Indexes of the assistant messages, those together that stand next to each other in one turn."""
    found: list[list[int]] = []
    for index, message in enumerate(trace.messages):
        if message.role != "assistant":
            continue
        if found and message.continues and found[-1][-1] == index - 1:
            found[-1].append(index)
        else:
            found.append([index])
    return found


@pytest.mark.parametrize("name", PLAYS)
def test_real_episodes(plays: dict[str, Trace], name: str) -> None:
    """As one message; as chat, whose answers name calls before them; and labeled as before when read back."""
    trace = plays[name]
    inline = make_inline_row(trace)
    assert isinstance(inline, Drop) == any(m.role == "user" and m.author == "environment" for m in trace.messages)
    if isinstance(inline, dict):
        held(trace, inline)
        assert all(reply.strip() in inline["messages"][-1]["content"] for reply in PLAYS[name][1])
    row: dict[str, Any] = json.loads(msgspec.json.encode(make_chat_row(trace)))
    assert (row["success"], row["reward"]) == (trace.outcome.success, trace.outcome.reward)
    roles = [m["role"] for m in row["messages"]]
    assert roles.count("assistant") == len(runs(trace)) and ("assistant", "assistant") not in itertools.pairwise(roles)
    back = Chat().to_trace(row, RowRef(row=0))
    assert isinstance(back, Trace)
    calls: set[str] = set()
    for message, read in zip(row["messages"], back.messages, strict=True):
        calls |= {c.id for c in read.tool_calls}
        assert message.get("tool_call_id") is None or message["tool_call_id"] in calls
    before = {x.index: x for x in label_trace(trace)}
    for spans, label in zip(runs(trace), label_trace(back), strict=True):
        answer = trace.messages[spans[-1] + 1 : spans[-1] + 2]
        if not any(m.author == "environment" and not m.tool_call_ids for m in answer):  # a reminder
            assert label.action in {before[index].action for index in spans}, (spans, label)
            assert len(spans) > 1 or label.failed == before[spans[0]].failed


def test_spans_of_a_turn_that_are_adjacent_are_one_message(plays: dict[str, Trace]) -> None:
    messages = make_chat_row(plays["inline, two calls at once"])["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [c["id"] for c in messages[2]["tool_calls"]] == ["call_0", "call_1"]
    assert [m["tool_call_id"] for m in messages[3:5]] == ["call_0", "call_1"]
    assert messages[2]["content"] == "<think>Let me try.\n and then Let me try."


def test_an_unread_call_stays_in_the_text_and_the_others_are_kept(plays: dict[str, Trace]) -> None:
    first = make_chat_row(plays["tools, an empty block among others"])["messages"][2]
    codes = [json.loads(c["function"]["arguments"]) for c in first["tool_calls"]]
    assert codes == [{"code": WRONG}, {}, {"code": RIGHT}]
    assert "<code>\n\n</code>" in first["content"] and "def add" not in first["content"]
    refused = make_chat_row(plays["inline, a refused call"])["messages"][2]
    assert REFUSED in refused["content"]
    assert [c["function"] for c in refused["tool_calls"]] == [{"name": "nobody", "arguments": '{"code": "1"}'}]
    nameless = ToolCall(span=(0, 1), error="unreadable")
    (said,) = make_chat_row(made(USER, msgspec.structs.replace(SAID, tool_calls=(nameless,))))["messages"][1:]
    assert said == {"role": "assistant", "content": "a"}


@pytest.mark.parametrize("changes", [{"continues": False}, {"turn": 3}, {"train": False}])
def test_messages_that_are_no_spans_of_one_turn_stay_apart(changes: dict[str, Any]) -> None:
    other = msgspec.structs.replace(SAID, content="b", continues=True)
    assert [m["content"] for m in make_chat_row(made(USER, SAID, other))["messages"][1:]] == ["ab"]
    apart = msgspec.structs.replace(other, **changes)
    assert [m["content"] for m in make_chat_row(made(USER, SAID, apart))["messages"][1:]] == ["a", "b"]


def test_images_of_merged_spans_keep_their_place() -> None:
    image = Part(type="image_url", ref="http://x/i.png", at=1)
    one = msgspec.structs.replace(SAID, content="ab", parts=(image,))
    other = msgspec.structs.replace(one, content="cd", continues=True, reasoning="hm")
    (said,) = make_chat_row(made(USER, one, other))["messages"][1:]
    assert [item.get("text") for item in said["content"]] == ["a", None, "bc", None, "d"]
    assert said["reasoning_content"] == "hm"


@pytest.fixture
def folder(plays: dict[str, Trace]) -> Path:
    """All plays in a traces folder."""
    # Stories of one protocol are attempts with one key.
    named = (msgspec.structs.replace(trace, key=f"{trace.key}/{name}") for name, trace in plays.items())
    assert write_traces(map(add_trace_id, named), "t")["new"] == len(plays)
    return Path("t")


@pytest.mark.usefixtures("folder")
def test_the_summary_counts_what_was_written_and_what_not(run: Run, plays: dict[str, Trace]) -> None:
    prompted = sum(isinstance(make_inline_row(t), Drop) for t in plays.values())
    done = run("export t --format inline --out i.jsonl --json").json
    assert done["dropped"] == {"prompted": prompted} and prompted > 1
    assert done["written"] + prompted == done["traces"] == len(plays)
    assert done["written"] == len(Path("i.jsonl").read_text().splitlines())
    text = run("export t --format inline --out i.jsonl").out
    assert [" ".join(line.split()) for line in text.splitlines()][:4] == [
        f"traces {len(plays)}",
        f"written {done['written']}",
        "with tokens 0",
        f"dropped, prompted {prompted}",
    ]
    for name in ("chat", "jsonl"):
        whole = run(f"export t --format {name} --out c.jsonl --json").json
        assert (whole["written"], whole["dropped"]) == (len(plays), {})
    native = run("export t --format openai --calls native --out o.jsonl --json").json
    assert native["written"] and '"tool_calls"' in Path("o.jsonl").read_text()


@pytest.mark.parametrize("format", ["chat", "openai", "sharegpt", "verifiers_sft"])
def test_generated_text_is_exported_character_for_character(run: Run, folder: Path, format: str) -> None:
    """All five protocols, odd replies among them; the answers are the user's, as the model saw them."""
    done = run(f"export t --format {format} --out o.jsonl --json").json
    assert done["written"] == done["traces"]
    rows = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    turns = [row["conversations"] if "conversations" in row else row["messages"] for row in rows]
    said = [[turn.get("content", turn.get("value")) for turn in each if is_agent(turn)] for each in turns]
    sampled = [[m.content for m in trace.messages if m.role == "assistant"] for trace in read_traces(folder)]
    assert ["".join(texts) for texts in said] == ["".join(texts) for texts in sampled]
    assert not any(turn.get("tool_calls") or turn.get("role") == "tool" for each in turns for turn in each)


def is_agent(turn: dict[str, Any]) -> bool:
    return turn.get("role", turn.get("from")) in ("assistant", "gpt")


def test_the_ids_of_a_real_inline_episode_spell_the_message(run: Run) -> None:
    replies = [f"<think>\n{call('print(1)')}", f"\nAgain.\n{call('print(2)')}", f"\nIt is so.\n{ANSWER}"]

    def say(request: Request) -> Completion:
        before = bytes(request.prompt_ids or ()).decode()
        full = replies[sum(reply in before for reply in replies)]
        stop = next((s for s in request.stop if full.endswith(s)), None)
        ids: dict[str, Any] = {"token_ids": tuple(full.encode()), "logprobs": (-0.5,) * len(full), "exact": "token"}
        return Completion(
            text=full.removesuffix(stop or ""),
            finish="stop" if stop is None else "stop_sequence",
            stop=stop,
            pieces=tuple(full),
            prompt_token_ids=request.prompt_ids,
            **ids,
        )

    model = Scripted("bytes", Server(options={"tokens": "bytes"}), scripts=say)
    generate("builtin", model=model, protocol="inline", limit=1, out="t", sandbox=weak())
    done = run("export t --format inline --out i.jsonl --json").json
    assert (done["written"], done["with_tokens"]) == (1, 1)
    row: dict[str, Any] = json.loads(Path("i.jsonl").read_text())
    (trace,) = read_traces("t")
    held(trace, row)
    check_ids(row)
    content: str = row["messages"][-1]["content"]
    assert [content[a:b] for a, b in row["spans"]] == replies and content.count("<tool_response>") == 2
    assert "def two_sum" in bytes(row["prompt_token_ids"]).decode()


def test_traces_of_the_demo_model_are_named_as_such(run: Run) -> None:
    generate("builtin", model="demo", protocol="tools", limit=1, out="t", sandbox=weak())
    assert "1 of the traces are the demo model's" in run("export t --format inline --out i.jsonl").err
