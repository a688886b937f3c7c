"""Sequences for a trainer: the very ids, trained where they were sampled, closed by one end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from envs.tokenizer import demo_tokens
from foretrace.core.completion import Capabilities, Completion, Request, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.plugins import load_plugin
from foretrace.core.store import TraceStore
from foretrace.core.trace import Message, Provenance, Sampled, Task, Trace
from foretrace.envs.rollouts import Lane, Rolled, Rollouts, lane_of
from foretrace.envs.trace_sink import Kept
from foretrace.envs.train_sequence import MASKED, UNKNOWN, TrainSequence, chat_of, sequence_of
from foretrace.episodes.identity import Identity
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.servers.demo import Demo
from foretrace.problems.builtin import Builtin
from foretrace.sandbox.base import Settings
from foretrace.sandbox.local import LocalSandbox
from integrations.scoring import CLOSE, rescored

END = 7
PROBLEMS = list(Builtin().load())


# --- made by hand


def said(*ids: int, weighed: int | None = None, finish: str | None = "stop", **more: object) -> Message:
    count = len(ids) if weighed is None else weighed
    sampled = Sampled(token_ids=ids, logprobs=(-0.5,) * count, finish_reason=finish, exact="token")
    given = {"role": "assistant", "author": "model", "content": "a", "sampled": sampled} | more
    return Message(**given)  # type: ignore[arg-type]


def first(message: Message, *prompt: int) -> Message:
    assert message.sampled is not None
    return msgspec.structs.replace(message, sampled=msgspec.structs.replace(message.sampled, prompt_token_ids=prompt))


def answered(*ids: int) -> Message:
    sampled = Sampled(token_ids=ids, exact="token") if ids else None
    return Message(role="tool", author="environment", content="r", train=False, sampled=sampled)


def sequence(*messages: Message) -> TrainSequence:
    trace = Trace(
        key="k", task=Task(id="t", group="t"), messages=messages, provenance=Provenance(origin="generated", source="s")
    )
    made = sequence_of(trace, END, {END})
    assert made is not None and len(made.tokens) == len(made.masks) == len(made.logprobs)
    assert all((lp == UNKNOWN) == (m == MASKED) for m, lp in zip(made.masks, made.logprobs, strict=True))
    return made


def test_what_was_sampled_is_trained_and_the_rest_is_not() -> None:
    made = sequence(first(said(3, 4, END), 1, 2), answered(5), said(6, END))
    assert made.tokens == [1, 2, 3, 4, END, 5, 6, END]
    assert made.masks == [MASKED, MASKED, 3, 4, END, MASKED, 6, END]
    assert (made.trained, made.inexact, made.cut) == (5, 0, False)


@pytest.mark.parametrize("finish", ["length", "stop_sequence"])
def test_an_end_that_was_not_sampled_is_put_there_and_not_trained(finish: str) -> None:
    made = sequence(first(said(3, finish=finish), 1))
    assert made.tokens == [1, 3, END] and made.masks == [MASKED, 3, MASKED]
    assert made.cut == (finish == "length")


def test_an_end_that_was_sampled_is_not_doubled() -> None:
    assert sequence(first(said(3, END), 1)).tokens == [1, 3, END]


def test_what_stands_behind_the_last_reply_is_left_out() -> None:
    assert sequence(first(said(3, END), 1), answered(5)).tokens == [1, 3, END]


def test_ids_without_logprobs_are_not_trained_and_counted() -> None:
    made = sequence(first(said(3, 4, weighed=0), 1), answered(5), said(6, END))
    assert made.masks == [MASKED] * 4 + [6, END] and (made.trained, made.inexact) == (2, 2)


def test_a_closing_tag_behind_what_was_sampled_is_not_trained_and_is_no_mismatch() -> None:
    made = sequence(first(said(3, 4, 5, weighed=2), 1))
    assert made.masks == [MASKED, 3, 4, MASKED, MASKED] and made.inexact == 0


def test_spans_of_one_completion_are_one() -> None:
    made = sequence(first(said(3, finish=None), 1), said(4, weighed=0, turn=0))
    assert (made.trained, made.inexact) == (1, 0)


def test_a_trace_without_ids_gives_none() -> None:
    trace = Trace(
        key="k",
        task=Task(id="t", group="t"),
        messages=(said(3),),
        provenance=Provenance(origin="generated", source="s"),
    )
    assert sequence_of(trace, END, {END}) is None


def test_messages_are_turns() -> None:
    opening = Message(role="user", author="user", content="q", turn=0)
    inline = [
        said(3, turn=1, content="a"),
        Message(role="tool", author="environment", content="[r]", injected=True, turn=1),
        said(4, turn=1, content="b", continues=True),
    ]
    answers = [
        Message(role="tool", author="environment", content=text, turn=2, raw_role="user") for text in ("one", "two")
    ]
    assert chat_of([opening, *inline, *answers]) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a[r]b"},
        {"role": "user", "content": "one\ntwo"},
    ]


# --- made by the demo model


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(runner: asyncio.Runner) -> Iterator[LocalSandbox]:
    box = LocalSandbox(Settings())
    runner.run(box.start())
    yield box
    runner.run(box.close())


def rolled(
    runner: asyncio.Runner,
    sandbox: LocalSandbox,
    protocol: str,
    *,
    model: Demo | None = None,
    most: int = 2048,
    count: int = 3,
    flag: bool = False,
    traces: Path | None = None,
) -> list[Rolled]:
    """Rollouts of one problem."""

    async def run() -> list[Rolled]:
        tokens, talk = demo_tokens(), load_plugin("protocol", protocol)()
        kept = Kept(str(traces) if traces else None, "test")
        async with model or Demo() as served:
            lane = await lane_of(
                served, tokens, talk, asyncio.Semaphore(2), most=most, logprobs=not flag, check=model is None
            )
            rollouts = Rollouts(
                talk, sandbox, tokens, kept, settings=EpisodeSettings(), seed=3, flag=flag, identity=Identity()
            )
            sampling = Sampling(temperature=1.0, max_tokens=300)
            try:
                return [await rollouts.run(PROBLEMS[1], lane, sampling) for _ in range(count)]
            finally:
                await kept.close()

    return runner.run(run())


@pytest.mark.parametrize("protocol", ["interleaved_tools", "inline", "tools", "interleaved", "structured"])
def test_trained_tokens_have_the_logprobs_of_the_network(
    protocol: str, runner: asyncio.Runner, sandbox: LocalSandbox
) -> None:
    for one in rolled(runner, sandbox, protocol):
        made = one.sequence
        assert made is not None and not one.why and made.trained
        trained = [n for n, mask in enumerate(made.masks) if mask != MASKED]
        again = rescored(made.tokens, 1)
        assert np.abs(again[[n - 1 for n in trained]] - [made.logprobs[n] for n in trained]).max() < CLOSE
        tokens = demo_tokens()
        assert made.tokens[-1] == tokens.end != made.tokens[-2]


def test_rollouts_of_one_problem_differ_and_are_the_same_again(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    one, two = ([r.sequence.tokens for r in rolled(runner, sandbox, "tools") if r.sequence] for _ in range(2))
    assert one == two and len({tuple(tokens) for tokens in one}) > 1


def test_a_sequence_stays_below_its_limit_and_is_judged(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    for one in rolled(runner, sandbox, "interleaved_tools", most=800):
        assert one.sequence is not None and len(one.sequence.tokens) < 800
        assert one.trace.outcome.reward is not None


def test_rollouts_land_as_traces_that_a_second_run_adds_to(
    runner: asyncio.Runner, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    for runs in (1, 2):
        rolled(runner, sandbox, "tools", traces=tmp_path / "traces", count=2)
        stored = list(TraceStore(tmp_path / "traces").read())
        assert len({trace.key for trace in stored}) == len(stored) == 2 * runs


class Silent(Demo):
    """Gives no logprobs, and says so or not."""

    def __init__(self, *, says: bool) -> None:
        super().__init__()
        self._says = says

    async def probe(self) -> Capabilities:
        found = await super().probe()
        reasons = {"logprobs": "it has none"}
        return msgspec.structs.replace(found, logprobs=False, reasons=reasons) if self._says else found

    async def complete(self, request: Request) -> Completion:
        return await super().complete(msgspec.structs.replace(request, logprobs=False))


def test_a_server_without_logprobs_is_refused(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    with pytest.raises(UsageError, match="gives no logprobs"):
        rolled(runner, sandbox, "tools", model=Silent(says=True))


@pytest.mark.parametrize("flag", [False, True])
def test_a_rollout_without_logprobs_is_dropped_or_flagged_and_never_trained_on(
    flag: bool, runner: asyncio.Runner, sandbox: LocalSandbox
) -> None:
    (one,) = rolled(runner, sandbox, "tools", model=Silent(says=False), flag=flag, count=1)
    assert one.why == ("" if flag else "mismatch")
    assert one.sequence is not None and one.sequence.inexact and not one.sequence.trained
    assert set(one.sequence.masks) == {MASKED} and set(one.sequence.logprobs) == {UNKNOWN}


class Prefixing(Demo):
    """Puts a token of its own before the prompt."""

    async def complete(self, request: Request) -> Completion:
        return await super().complete(msgspec.structs.replace(request, prompt_ids=(1, *(request.prompt_ids or ()))))


def test_a_prompt_that_the_server_changed_is_a_mismatch(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    (one,) = rolled(runner, sandbox, "tools", model=Prefixing(), count=1)
    assert one.why == "mismatch"


class Broken(Demo):
    """Fails from the second completion on."""

    calls = 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        if self.calls > 1:
            raise ModelError("gone", kind="refused")
        return await super().complete(request)


def test_a_rollout_that_fails_says_why(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    done = rolled(runner, sandbox, "interleaved_tools", model=Broken(), count=2)
    assert done[-1].why == "refused" and done[-1].sequence is None


def test_a_rollout_that_fails_is_kept_with_its_error_and_done_under_another_number(
    runner: asyncio.Runner, sandbox: LocalSandbox, tmp_path: Path
) -> None:
    for _ in range(2):
        rolled(runner, sandbox, "interleaved_tools", model=Broken(), count=2, traces=tmp_path / "traces")
    stored = list(TraceStore(tmp_path / "traces").read())
    errors = [trace.outcome.error for trace in stored]
    assert [error.message for error in errors if error is not None] == ["gone"] * 4
    assert sorted(trace.key.rpartition("/")[2] for trace in stored) == ["0", "1", "2", "3"]
    assert all(trace.outcome.success is None and trace.outcome.reward is None for trace in stored)


def test_a_lane_leaves_room_for_the_end_and_refuses_where_there_is_none(runner: asyncio.Runner) -> None:
    async def run(most: int) -> int:
        async with Demo() as model:
            lane = Lane(model, demo_tokens(), asyncio.Semaphore(2), ids=True, most=most)
            request = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=50, seed=1))
            return len((await lane.complete(request)).token_ids)

    assert runner.run(run(10)) == 10 - 2 - 3
    with pytest.raises(ModelError) as caught:
        runner.run(run(5))
    assert caught.value.kind == "overflow"


def test_a_lane_asks_within_its_slots(runner: asyncio.Runner) -> None:
    class Counting(Demo):
        now = most = 0

        async def complete(self, request: Request) -> Completion:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                return await super().complete(request)
            finally:
                self.now -= 1

    async def run() -> int:
        tokens = demo_tokens()
        async with Counting() as model:
            lane = Lane(model, tokens, asyncio.Semaphore(2), ids=True, most=100)
            request = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=3))
            await asyncio.gather(*(lane.complete(request) for _ in range(6)))
            return model.most

    assert runner.run(run()) == 2
