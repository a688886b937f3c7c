"""The window of the history: it fits, follows from the past alone, and in blocks it moves rarely."""

from __future__ import annotations

import json
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.little import rows, runs, says, seen, trace, user
from foretrace.api.datasets import build
from foretrace.core.errors import BuildError, UsageError
from foretrace.core.store import read_traces, write_traces
from foretrace.core.trace import Trace
from foretrace.dataset.prompts import HistoryWindow, PromptRenderer, Prompts, make_token_counter
from foretrace.dataset.settings import Window

ROOM = 100
Turns = list[tuple[str, int]]
"""Role and tokens of each message."""
any_turns = st.lists(st.tuples(st.sampled_from(["assistant", "user"]), st.integers(1, 40)), max_size=40)
windows = st.sampled_from(["sliding", "blocks"])


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
