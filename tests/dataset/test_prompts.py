"""Prompts: a function of what came before, within the limit, with the system text, the task and the latest turn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset.little import calls, runs, says, seen, system, trace, user
from foretrace.api.datasets import build
from foretrace.core.errors import UsageError
from foretrace.core.store import write_traces
from foretrace.core.trace import Message, ToolSpec, Trace
from foretrace.dataset.prompts import (
    OWN_HEADING,
    TOOLS_HEADING,
    ByteCounter,
    ChatText,
    Prompts,
    TokenizerCounter,
    make_instruction,
    make_token_counter,
)
from foretrace.dataset.target_text import has_target, make_message_text, make_target_text

MOST = 1024
"""The smallest limit that a build takes."""
LEFT_OUT = re.compile(r"\[(\d+) earlier messages? left out\]")
CLIPPED = re.compile(r"\n\[(\d+) characters left out\](?=\n)")


def texts(longest: int = 6000) -> st.SearchStrategy[str]:
    """Short texts, and long ones that must be clipped, of one to four bytes a character."""
    return st.one_of(
        st.text(max_size=20),
        st.builds(
            lambda piece, times: (piece * times)[:longest],
            st.sampled_from(["word ", "é\n", "\n[INFO] ", "\U0001f600", "x", "\n[7 characters left out]\n", "{}"]),
            st.integers(1, longest),
        ),
    )


turns = st.one_of(
    st.builds(says, texts()),
    st.builds(lambda t: runs(t), texts(600)),
    st.builds(seen, texts()),
    st.builds(user, texts()),
)


@st.composite
def any_traces(draw: st.DrawFn) -> Trace:
    """System texts, task, then turns in any order; the last message is the agent's."""
    messages = [
        *map(system, draw(st.lists(texts(), max_size=2))),
        *map(user, draw(st.lists(texts(), max_size=3))),
        *draw(st.lists(turns, max_size=12)),
        says("the end"),
    ]
    tools = tuple(ToolSpec(name=n, description=n * 40) for n in draw(st.lists(st.sampled_from("abc"), max_size=2)))
    return trace("k", *messages, tools=tools)


def prompts(one: Trace, counter: Any = None, most: int = MOST) -> Prompts:
    return Prompts(one, "call", most, counter or ByteCounter())


def steps(one: Trace) -> list[int]:
    return [i for i, m in enumerate(one.messages) if m.role == "assistant"]


def beginning(one: Trace) -> tuple[int, int]:
    """Indexes of the first message that is no system text, and of the first turn after the task."""
    start = next(i for i, m in enumerate(one.messages) if m.role != "system")
    return start, next(i for i, m in enumerate(one.messages) if i >= start and m.role in ("assistant", "tool"))


def tokenizer_file(folder: Path) -> Path:
    """A real tokenizer, made on the spot: words and punctuation, unknown ones as one token."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE(unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["?"], initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(
        [make_instruction("call")] * 4 + ["word word INFO earlier messages characters left out"] * 9, trainer
    )
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_file(tmp_path_factory.mktemp("tokenizer"))


@given(any_traces(), any_traces())
def test_a_prompt_reads_nothing_from_its_step_on(one: Trace, other: Trace) -> None:
    """Any other ending and outcome, with the same messages before the step, gives the same prompt."""
    for step in steps(one):
        changed = trace("k", *one.messages[:step], says("?"), *other.messages, tools=one.tools, success=None)
        assert prompts(one).render(step) == prompts(changed).render(step)


@given(any_traces())
def test_prompts_are_the_same_in_whatever_order_they_are_asked_for(one: Trace) -> None:
    forth, back = prompts(one), prompts(one)
    assert [forth.render(i) for i in steps(one)] == [back.render(i) for i in reversed(steps(one))][::-1]


@given(any_traces())
def test_prompts_fit_and_keep_system_task_and_latest_turn(one: Trace) -> None:
    check_prompts(one, ByteCounter(), MOST)


@settings(max_examples=25)
@given(any_traces())
def test_prompts_fit_by_a_real_tokenizer(tokenizer: Path, one: Trace) -> None:
    check_prompts(one, make_token_counter(str(tokenizer)), 2048)


def check_prompts(one: Trace, counter: Any, most: int) -> None:
    """Within the limit, one system message, and all of the history but a marked stretch behind the task."""
    made = prompts(one, counter, most)
    start, first = beginning(one)
    for step in steps(one):
        prompt = made.render(step)
        assert made.has_room(step)
        assert made.count_tokens(prompt) == sum(counter.count(m.content) + 4 for m in prompt) <= most
        assert [m.role for m in prompt].count("system") == 1 and prompt[0].role == "system"
        assert prompt[0].content.startswith(make_instruction("call"))
        shown, history = prompt[1:], one.messages[start:step]
        if len(shown) != len(history) or any(not is_shown(s, m) for s, m in zip(shown, history, strict=True)):
            mark = LEFT_OUT.fullmatch(shown[first - start].content)
            assert mark and shown[first - start].role == "user"
            history = (*one.messages[start:first], *one.messages[first + int(mark[1]) : step])
            del shown[first - start]
        assert len(shown) == len(history)
        assert all(is_shown(s, m) for s, m in zip(shown, history, strict=True))
        if step > first:
            assert history[-1] is one.messages[step - 1]


def is_shown(text: ChatText, message: Message) -> bool:
    """Whether the text is the message, or its two ends with what is missing between them counted right."""
    whole = make_message_text(message)
    role = "assistant" if message.role == "assistant" else "user"
    ends = [(text.content[: m.start()], int(m[1]), text.content[m.end() + 1 :]) for m in CLIPPED.finditer(text.content)]
    return text.role == role and (
        text.content == whole
        or any(whole.startswith(a) and whole.endswith(b) and len(a) + n + len(b) == len(whole) for a, n, b in ends)
    )


@given(any_traces())
def test_a_message_looks_the_same_in_every_prompt(one: Trace) -> None:
    """Clipping does not depend on the step: what is shared between prompts is stored once."""
    made = prompts(one)
    known: dict[int, ChatText] = {}
    start, first = beginning(one)
    for step in steps(one):
        prompt = made.render(step)
        assert known.setdefault(-1, prompt[0]) == prompt[0]
        for back, text in enumerate(reversed(prompt[1 + first - start :]), 1):
            if LEFT_OUT.fullmatch(text.content):
                break
            assert known.setdefault(step - back, text) is text


def test_a_long_run_shows_its_end_and_counts_what_is_missing() -> None:
    messages = [
        system("Be good."),
        user("Do it."),
        *(m for n in range(40) for m in (runs(f"cat {n}"), seen("x" * 200))),
    ]
    one = trace("k", *messages, says("done"))
    step = len(messages)
    prompt = prompts(one).render(step)
    mark = LEFT_OUT.fullmatch(prompt[2].content)
    assert mark and int(mark[1]) == len(messages) - 2 - (len(prompt) - 3)
    assert "Be good." in prompt[0].content and prompt[1] == ("user", "Do it.")
    assert prompt[-1] == ("user", "x" * 200) and '"cat 39"' in prompt[-2].content
    assert len(prompt) > 10


def test_own_system_text_and_tools_stand_under_headings() -> None:
    """Several system messages become one; tools are listed unless the system text names them already."""
    tools = (ToolSpec(name="grab", description="Grabs.", parameters='{"type":"object"}'),)
    one = trace("k", system("First."), system("Second."), user("x"), says("y"), tools=tools)
    head = prompts(one).render(3)[0].content
    own = f"{OWN_HEADING}First.\n\nSecond."
    assert head == f'{make_instruction("call")}{own}{TOOLS_HEADING}- grab: Grabs.\n  {{"type":"object"}}'
    named = trace("k", system("Use grab."), user("x"), says("y"), tools=tools)
    assert prompts(named).render(2)[0].content == f"{make_instruction('call')}{OWN_HEADING}Use grab."
    assert prompts(trace("k", user("x"), says("y"))).render(1)[0].content == make_instruction("call")


def test_a_later_system_message_is_history() -> None:
    one = trace("k", user("x"), says("a"), system("Hurry."), says("b"))
    assert [m.role for m in prompts(one).render(3)] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("target", ["type", "call", "message"])
def test_the_instruction_holds_no_marker_of_a_label(target: Any) -> None:
    assert not has_target(make_instruction(target))
    assert all(a in make_instruction(target) for a in ("file_read", "BLOCKED")) == (target != "message")


def test_marker_in_the_history_leaks_from_there_on() -> None:
    one = trace("k", user("x"), says("a"), seen('{"action":"repair"}'), says("b"), user("y"), says("c"))
    assert [prompts(one).has_target_before(i) for i in steps(one)] == [False, True, True]


def test_too_many_messages_before_the_first_turn_do_not_fit() -> None:
    one = trace("k", *[user("word " * 20)] * 300, says("a"))
    assert not prompts(one).has_room(300)
    assert prompts(one, most=16384).has_room(300)


@pytest.mark.parametrize("text", ["", "a", "a" * 350, "é" * 350, "\ud800" * 7])
def test_bytes_are_counted_and_rounded_up(text: str) -> None:
    assert ByteCounter().count(text) == -(-len(text.encode("utf-8", "surrogatepass")) * 2 // 7)


def test_a_tokenizer_may_be_a_file_or_its_folder(tokenizer: Path) -> None:
    one, other = TokenizerCounter(str(tokenizer)), TokenizerCounter(str(tokenizer.parent))
    assert one.method == other.method and re.fullmatch(r"tokenizer [0-9a-f]{16}", one.method)
    assert one.count("word word") < len("word word") == ByteCounter().count("w" * 31)


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(UsageError, match=r"is no tokenizer\.json"):
            TokenizerCounter(str(path))


def test_a_build_counts_by_the_tokenizer_and_refuses_too_little_room(tokenizer: Path, tmp_path: Path) -> None:
    """The manifest says how it counted, by digest, not where the file lay."""
    write_traces([trace("a", user("x" * 3000), runs("ls"), seen("y"), says("z"))], tmp_path / "t")
    report = build(tmp_path / "t", out=tmp_path / "d", tokenizer=str(tokenizer), max_context_tokens=4096)
    assert report.manifest["token_counter"] == make_token_counter(str(tokenizer)).method
    assert report.manifest["settings"]["tokenizer"] == "given"
    wide = json.loads(tokenizer.read_text())
    wide["model"]["merges"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(wide))
    with pytest.raises(UsageError, match="the instruction alone takes"):
        build(tmp_path / "t", out=tmp_path / "e", tokenizer=str(tmp_path), max_context_tokens=2048)


def test_targets_are_canonical_json_of_action_tool_and_arguments() -> None:
    """Sorted keys, no spaces, further calls behind `more`; a message without a call has tool null."""
    from foretrace.actions.taxonomy import ActionType

    one = calls("edit", '{"b": [1, {"z": 1, "a": "é"}], "a": 1.0}')
    text = make_target_text(one, ActionType.FILE_WRITE, "call")
    assert text == '{"action":"file_write","tool":"edit","arguments":{"a":1.0,"b":[1,{"a":"é","z":1}]}}'
    two = Message(role="assistant", author="model", tool_calls=(*runs("ls").tool_calls, *one.tool_calls))
    more = json.loads(make_target_text(two, ActionType.FILE_READ, "call"))["more"]
    assert more == [{"tool": "edit", "arguments": {"a": 1.0, "b": [1, {"a": "é", "z": 1}]}}]
    assert make_target_text(says("x"), ActionType.BLOCKED, "type") == '{"action":"BLOCKED"}'
    assert has_target(text) and has_target('x { "action" :  "BLOCKED" }') and not has_target('{"action":"jump"}')
