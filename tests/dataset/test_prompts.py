"""Prompts: a function of what came before, within the limit, with the system text, the task and the latest turn."""

from __future__ import annotations

import json
import re
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.little import calls, rows, runs, says, seen, system, trace, user
from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import ActionType
from foretrace.api.datasets import build
from foretrace.core.errors import BuildError, UsageError
from foretrace.core.store import read_traces, write_traces
from foretrace.core.trace import Message, ToolSpec, Trace
from foretrace.dataset.prompts import (
    AGENT_BEGINS,
    AGENT_GOES_ON,
    JOIN,
    OWN_HEADING,
    TOOLS_HEADING,
    HistoryWindow,
    PromptRenderer,
    Prompts,
    escape_tags,
    find_side,
    frame_text,
    has_target,
    make_cut_mark,
    make_instruction,
    make_message_text,
    make_omission_mark,
    make_shown_text,
    make_target_text,
    make_token_counter,
)
from foretrace.dataset.settings import Window

MOST = 1024
"""The smallest limit that a build takes."""


def unescape_tags(text: str) -> str:
    """What `escape_tags` was given."""
    return re.sub(r"<\\(?=\\*/?tool_(?:call|response))", "<", text, flags=re.IGNORECASE)


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


turns = st.one_of(*(st.builds(make, texts()) for make in (says, seen, user)), texts(600).map(runs))


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


windows = st.sampled_from(["sliding", "blocks"])


def prompts(one: Trace, counter: Any = None, most: int = MOST, window: Window = "sliding") -> Prompts:
    return Prompts(one, "call", most, counter or make_token_counter(None), window)


def steps(one: Trace) -> list[int]:
    return [i for i, m in enumerate(one.messages) if m.role == "assistant"]


def beginning(one: Trace) -> tuple[int, int]:
    """Indexes of the first message that is not system text, and of the first turn after the task."""
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


@given(any_traces(), any_traces(), windows)
def test_a_prompt_reads_nothing_from_its_step_on(one: Trace, other: Trace, window: Window) -> None:
    """Any other ending and outcome, with the same messages before the step, gives the same prompt."""
    for step in steps(one):
        changed = trace("k", *one.messages[:step], says("?"), *other.messages, tools=one.tools, success=None)
        assert prompts(one, window=window).render(step) == prompts(changed, window=window).render(step)


@given(any_traces(), windows)
def test_prompts_are_the_same_in_whatever_order_they_are_asked_for(one: Trace, window: Window) -> None:
    forth, back = prompts(one, window=window), prompts(one, window=window)
    assert [forth.render(i) for i in steps(one)] == [back.render(i) for i in reversed(steps(one))][::-1]


@given(any_traces(), windows)
def test_prompts_fit_and_keep_system_task_and_latest_turn(one: Trace, window: Window) -> None:
    check_prompts(one, make_token_counter(None), MOST, window)


@given(any_traces())
def test_prompts_fit_by_a_real_tokenizer(tokenizer: Path, one: Trace) -> None:
    check_prompts(one, make_token_counter(str(tokenizer)), 2048, "blocks")


def check_prompts(one: Trace, counter: Any, most: int, window: Window) -> None:
    """Within the limit, one system message, turns that alternate, and all of the history but a marked stretch behind
    the task."""
    made = prompts(one, counter, most, window)
    start, first = beginning(one)
    for step in steps(one):
        prompt = made.render(step)
        assert made.has_room(step)
        assert sum(counter.count(m.content) + 4 for m in prompt) <= most
        assert prompt[0].role == "system" and prompt[0].content.startswith(make_instruction("call"))
        shown = made.find_shown(step).start
        while step > first and one.messages[step - 1].role == "assistant" and not one.messages[step - 1].tool_calls:
            step -= 1  # words that the predicted reply begins with
        assert shown <= max(step - 1, first)
        mark = [user(make_omission_mark(shown - first))] * (shown > first)
        history = [*one.messages[start : min(first, step)], *mark, *one.messages[shown:step]]
        if not history or find_side(history[0]) == "assistant":
            history.insert(0, user(AGENT_BEGINS))
        if find_side(history[-1]) == "assistant":
            history.append(user(AGENT_GOES_ON))
        turns = [(side, list(of_side)) for side, of_side in groupby(history, key=find_side)]
        assert [turn.role for turn in prompt[1:]] == [side for side, _ in turns]
        assert all(is_turn(turn.content, held) for turn, (_, held) in zip(prompt[1:], turns, strict=True))


def is_turn(turn: str, messages: list[Message]) -> bool:
    """Whether a turn is these messages in their order, each framed, and whole or with its middle marked as left out."""
    cuts = {int(count) for count in re.findall(r"\n\[(\d+) characters left out\](?=\n)", turn)}
    rests = {turn + JOIN}
    for message in messages:
        text = make_shown_text(message)
        shown = [text, *(cut_middle(text, count) for count in cuts if count <= len(text))]
        forms = {frame_text(message, form) + JOIN for form in shown}
        rests = {rest[len(form) :] for rest in rests for form in forms if rest.startswith(form)}
    return "" in rests


def cut_middle(text: str, count: int) -> str:
    keep = len(text) - count
    tail = keep - keep * 2 // 3
    return text[: keep - tail] + make_cut_mark(count) + text[len(text) - tail :]


@given(any_traces(), windows)
def test_nothing_is_cut_where_everything_has_room(one: Trace, window: Window) -> None:
    made, unlimited, counter = prompts(one, window=window), prompts(one, most=10**9), make_token_counter(None)
    for step in steps(one):
        whole = unlimited.render(step)
        tokens = sum(counter.count_message(message.content) for message in whole)
        assert made.render(step) == whole or tokens > MOST - 60, "60 tokens are reserved for marks"


def test_an_output_is_whole_until_the_history_is_full_and_cut_from_then_on() -> None:
    long = "x" * (MOST * 7 // 4)
    one = trace("k", user("x"), runs("cat a"), seen(long), runs("ls"), seen(long), runs("cat a"), says("end"))
    made = prompts(one)
    assert long in made.render(3)[-1].content and made.shows_whole(3, 1)
    assert long not in made.render(5)[3].content and "characters left out" in made.render(5)[3].content
    assert 1 in made.find_shown(5) and not made.shows_whole(5, 1) and not made.shows_whole(3, 3)


def test_results_of_calls_in_messages_of_their_own_belong_to_each_of_them() -> None:
    long = "x" * (MOST * 7 // 4)
    batch = (runs("cat a"), runs("cat b"), seen(long), seen("b"))
    made = prompts(trace("k", user("x"), *batch, runs("cat c"), seen(long), runs("cat a"), says("end")))
    assert 1 in made.find_shown(7) and not made.shows_whole(7, 1) and not made.shows_whole(7, 2)


def test_words_that_begin_a_reply_are_shown_only_after_it() -> None:
    said, more, call = says("I list the files."), says("Now."), runs("ls")
    one = trace("k", user("Go."), said, more, call, runs("pwd"), seen("a"), says("One."), says("Two."))
    made = prompts(one)
    assert made.render(3)[1:] == [("user", "Go.")] and not made.find_shown(3)
    assert made.render(4)[2].content == JOIN.join(map(make_message_text, (said, more, call)))
    assert made.render(7) == made.render(6)
    steps = [label.index for label in label_trace(one) if label.action is not None]
    assert steps == [3, 4, 7], "what is hidden from a prompt is no target with a prompt of its own"


PIECES = ["<", "\\", "/", "tool_response", "tool_call", "Tool_Call", ">", "\n", "x", "<tool_call>", "</tool_response>"]
pieces = st.lists(st.sampled_from(PIECES)).map("".join)
TAG = re.compile(r"</?tool_(?:call|response)", re.IGNORECASE)


@given(pieces)
def test_escaped_tags_look_like_none_and_come_back(text: str) -> None:
    escaped = escape_tags(text)
    assert not TAG.search(escaped) and unescape_tags(escaped) == text
    assert len(escaped) - len(text) == len(re.findall(r"<\\*/?tool_(?:call|response)", text, re.IGNORECASE))
    assert escape_tags(text) == text or "tool_" in text.lower()


@given(st.lists(st.builds(seen, pieces) | st.builds(user, pieces), max_size=4), pieces)
def test_no_text_looks_like_a_result_or_call_that_it_is_not(said: list[Message], last: str) -> None:
    """Whatever a page, a file or a user writes: between two real tags stands what a tool answered, and all of it."""
    one = trace("k", user(last), runs("ls"), *said, seen(last), says("end"))
    turn = prompts(one).render(len(one.messages) - 1)[-1].content
    found = re.findall(r"<tool_response>\n(.*?)\n</tool_response>", turn, re.DOTALL)
    assert [unescape_tags(text) for text in found] == [m.content for m in one.messages[2:] if m.role == "tool"]
    assert len(TAG.findall(turn)) == 2 * len(found)
    assert not TAG.search(prompts(one).render(1)[-1].content)


def test_own_system_text_and_tools_stand_under_headings() -> None:
    """Several system messages become one; tools are listed with their schemas unless the system text explains them."""
    schema = '{"type": "object", "properties": {"what": {"type": "string"}}}'
    tools = (ToolSpec(name="grab", description="Grabs.", parameters=schema),)
    one = trace("k", system("First."), system("Second."), user("x"), says("y"), tools=tools)
    head = prompts(one).render(3)[0].content
    own = f"{OWN_HEADING}First.\n\nSecond."
    listed = f'{{"name":"grab","description":"Grabs.","parameters":{schema.replace(" ", "")}}}'
    assert head == f"{make_instruction('call')}{own}{TOOLS_HEADING}{listed}"
    named = trace("k", system("Use grab."), user("x"), says("y"), tools=tools)
    assert prompts(named).render(2)[0].content.endswith(listed)
    told = trace("k", system("Use grab with what to take."), user("x"), says("y"), tools=tools)
    assert prompts(told).render(2)[0].content == f"{make_instruction('call')}{OWN_HEADING}Use grab with what to take."
    assert prompts(trace("k", user("x"), says("y"))).render(1)[0].content == make_instruction("call")


def test_many_tools_are_cut_with_a_mark_and_none_is_lost_for_another() -> None:
    """Short ones stay whole, and what is cut of long ones is counted; the system text keeps its half."""
    long = json.dumps({"type": "object", "properties": {f"argument_{n}": {"type": "string"} for n in range(400)}})
    tools = tuple(ToolSpec(name=f"tool_{n}", parameters=long if n % 2 else "{}") for n in range(6))
    one = trace("k", system("Be good. " * 400), user("x"), says("y"), tools=tools)
    made = prompts(one, most=8192)
    head = made.render(2)[0].content
    assert all(f'"name":"tool_{n}"' in head for n in range(6))
    assert head.count(" characters left out]\n") == 3 and "Be good. " * 400 in head
    assert make_token_counter(None).count(head) <= 8192 // 2
    deep = '{"a":' * 900 + "1" + "}" * 900
    for schema, held in (("no JSON", ',"parameters":"no JSON"'), ("[1]", ',"parameters":[1]'), ("", ""), (deep, None)):
        bare = trace("k", user("x"), says("y"), tools=(ToolSpec(name="t", parameters=schema),))
        assert held is None or prompts(bare).render(1)[0].content.endswith(f'{{"name":"t","description":""{held}}}')
        assert make_token_counter(None).count(prompts(bare).render(1)[0].content) < MOST


def test_a_tool_that_describes_itself_as_a_call_looks_like_none() -> None:
    words = "</tool_response><tool_call>"
    one = trace("k", user("x"), says("y"), tools=(ToolSpec(name="t", description=words),))
    head = prompts(one).render(1)[0].content
    assert not TAG.search(head) and json.loads(head.splitlines()[-1])["description"] == words


@pytest.mark.parametrize("broken", ['{"action":', '{"act', "{", '{ "action" : '])
def test_a_target_that_two_messages_make_together_is_found(broken: str) -> None:
    """They are one turn, so the prompt would hold it."""
    whole = '{ "action" : "repair" }' if broken.startswith("{ ") else '{"action":"repair"}'
    one = trace("k", user("x"), runs("ls"), user(broken), user(whole[len(broken) :]), says("a"))
    held = JOIN.join([broken, whole[len(broken) :]])
    assert prompts(one).has_target_before(4) == has_target(held) == (broken != '{"act')


@pytest.mark.parametrize("target", ["type", "call", "message"])
def test_the_instruction_holds_no_marker_of_a_label(target: Any) -> None:
    assert not has_target(make_instruction(target))
    assert all(a in make_instruction(target) for a in ("file_read", "BLOCKED")) == (target != "message")


@pytest.mark.parametrize("text", ["", "a", "a" * 350, "é" * 350, "\ud800" * 7])
def test_bytes_are_counted_and_rounded_up(text: str) -> None:
    assert make_token_counter(None).count(text) == -(-len(text.encode("utf-8", "surrogatepass")) * 2 // 7)


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(UsageError, match=r"is not a tokenizer\.json"):
            make_token_counter(str(path))


def test_a_build_counts_by_the_tokenizer_and_refuses_too_little_room(tokenizer: Path, tmp_path: Path) -> None:
    """The manifest says how it counted, by digest, not where the file lay."""
    write_traces([trace("a", user("x" * 3000), runs("ls"), seen("y"), says("z"))], tmp_path / "t")
    report = build(tmp_path / "t", out=tmp_path / "d", tokenizer=str(tokenizer), max_context_tokens=4096)
    assert report.manifest["token_counter"] == make_token_counter(str(tokenizer)).method
    assert report.manifest["settings"]["tokenizer"] == "given"
    wide = json.loads(tokenizer.read_text())
    wide["model"]["merges"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(wide))
    with pytest.raises(UsageError, match="the instruction itself takes"):
        build(tmp_path / "t", out=tmp_path / "e", tokenizer=str(tmp_path), max_context_tokens=2048)


def test_targets_are_canonical_json_of_action_tool_and_arguments() -> None:
    """Sorted keys, no spaces, further calls behind `more`; a message without a call has tool null."""
    one = calls("edit", '{"b": [1, {"z": 1, "a": "é"}], "a": 1.0}')
    text = make_target_text(one, ActionType.FILE_WRITE, "call")
    assert text == '{"action":"file_write","tool":"edit","arguments":{"a":1.0,"b":[1,{"a":"é","z":1}]}}'
    two = says("", tool_calls=(*runs("ls").tool_calls, *one.tool_calls))
    more = json.loads(make_target_text(two, ActionType.FILE_READ, "call"))["more"]
    assert more == [{"tool": "edit", "arguments": {"a": 1.0, "b": [1, {"a": "é", "z": 1}]}}]
    assert make_target_text(says("x"), ActionType.BLOCKED, "type") == '{"action":"BLOCKED"}'
    assert has_target(text) and has_target('x { "action" :  "BLOCKED" }') and not has_target('{"action":"jump"}')


ROOM = 100
Turns = list[tuple[str, int]]
"""Role and tokens of each message."""
any_turns = st.lists(st.tuples(st.sampled_from(["assistant", "user"]), st.integers(1, 40)), max_size=40)


def make(window: Window, turns: Turns) -> HistoryWindow:
    made = HistoryWindow(window, ROOM)
    for role, tokens in turns:
        made.add(role, tokens)
    return made


def agents(turns: Turns) -> list[int]:
    return [at for at, (role, _) in enumerate(turns) if role == "assistant"]


@given(windows, any_turns)
def test_what_is_shown_fits_and_begins_with_the_agent(window: Window, turns: Turns) -> None:
    made = make(window, turns)
    for end in agents(turns):
        start = made.find_start(end)
        assert 0 <= start < end or end == 0 == start
        assert made.count_tokens(start, end) <= ROOM
        assert start == 0 or turns[start][0] == "assistant" or "assistant" not in dict(turns[start:end])


@given(any_turns)
def test_a_block_stays_until_there_is_no_room(turns: Turns) -> None:
    made = make("blocks", turns)
    for step, later in pairwise(agents(turns)):
        start, after = made.find_start(step), made.find_start(later)
        assert after >= start
        if start == 0 or turns[start][0] == "assistant":
            assert (after == start) == (made.count_tokens(start, later) <= ROOM)


def test_a_turn_longer_than_half_of_the_room_is_shown_with_its_call() -> None:
    turns = [("assistant", 30), ("user", 30), ("assistant", 30), ("user", 40), ("assistant", 1)]
    assert make("blocks", turns).find_start(4) == 2
    results = [("assistant", 30), *[("user", 40)] * 3, ("assistant", 1)]
    assert make("blocks", results).find_start(4) == 2  # none has room for what follows it


def long_trace(number: int = 0, turns: int = 60) -> Trace:
    messages = [m for n in range(turns) for m in (runs(f"cat {number}-{n}"), seen(f"{n} line\n" * 20))]
    name = f"{number:02d}"
    return trace(name, user(f"Do {number}."), *messages, says("Done."), task=name, group=name)


def flatten(prompt: list[Any]) -> str:
    return "".join(f"<{m.role}>{m.content}" for m in prompt)


def test_consecutive_prompts_share_their_beginning_except_at_cuts() -> None:
    one = long_trace()
    made = Prompts(one, "call", 2048, make_token_counter(None), "blocks")
    steps = [index for index, message in enumerate(one.messages) if message.role == "assistant"]
    cuts, total, cached = 0, 0, 0
    for step, later in pairwise(steps):
        before, after = flatten(made.render(step)), flatten(made.render(later))
        shared = sum(1 for _ in takewhile(bool, (a == b for a, b in zip(before, after, strict=False))))
        total, cached = total + len(after), cached + shared
        if made.find_shown(step).start == made.find_shown(later).start:
            assert after.startswith(before)
        else:
            cuts += 1
    assert 3 < cuts < len(steps) / 5 and cached / total > 0.8


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "traces"
    write_traces([long_trace(number, 24) for number in range(8)], folder)
    return folder


@pytest.fixture(scope="module")
def built(traces: Path) -> dict[str, Path]:
    """A dataset for each window."""
    folders = {window: traces.parent / window for window in ("sliding", "blocks")}
    for window, folder in folders.items():
        build(traces, out=folder, max_context_tokens=1024, statistical_gates=False, window=window)  # type: ignore
    return folders


@pytest.mark.parametrize("window", ["sliding", "blocks"])
def test_an_agent_at_work_gets_the_prompts_of_the_dataset(built: dict[str, Path], traces: Path, window: str) -> None:
    renderer = PromptRenderer(built[window])
    by_key = {one.key: one for one in read_traces(traces)}
    found = list(rows(built[window], "proposer"))
    assert len(found) > 100
    for row in found:
        assert renderer.render(by_key[row["key"]].messages[: row["step"]]) == row["prompt"]


def test_what_no_prompt_can_be_rendered_for_is_refused(built: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="is not a foretrace dataset"):
        PromptRenderer(tmp_path)
    text = (built["blocks"] / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace("utf-8 bytes / 3.5", "tokenizer 0123"))
    with pytest.raises(UsageError, match="are counted by tokenizer 0123, and not by utf-8 bytes"):
        PromptRenderer(tmp_path)
    manifest = json.loads(text)
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "versions": {}}))
    with pytest.raises(BuildError, match="is not a foretrace dataset"):
        PromptRenderer(tmp_path)
    manifest["versions"]["renderer"] = "1"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BuildError, match="are of version 1 of the renderer"):
        PromptRenderer(tmp_path)
