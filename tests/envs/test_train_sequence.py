"""Sequences for a trainer: the very ids, trained where they were sampled, closed by one end."""

from __future__ import annotations

import msgspec
import pytest

from foretrace.core.trace import Message, Provenance, Sampled, Task, Trace
from foretrace.envs.train_sequence import MASKED, UNKNOWN, TrainSequence, make_sequence, merge_turns

END = 7


def reply(*ids: int, logprobs_count: int | None = None, finish: str | None = "stop", **more: object) -> Message:
    count = len(ids) if logprobs_count is None else logprobs_count
    sampled = Sampled(token_ids=ids, logprobs=(-0.5,) * count, finish_reason=finish, exact="token")
    fields = {"role": "assistant", "author": "model", "content": "a", "sampled": sampled} | more
    return Message(**fields)  # type: ignore[arg-type]


def with_prompt(message: Message, *prompt: int) -> Message:
    assert message.sampled is not None
    return msgspec.structs.replace(message, sampled=msgspec.structs.replace(message.sampled, prompt_token_ids=prompt))


def environment_message(*ids: int) -> Message:
    sampled = Sampled(token_ids=ids, exact="token") if ids else None
    return Message(role="tool", author="environment", content="r", train=False, sampled=sampled)


def sequence(*messages: Message) -> TrainSequence:
    trace = Trace(
        key="k", task=Task(id="t", group="t"), messages=messages, provenance=Provenance(origin="generated", source="s")
    )
    made = make_sequence(trace, END, {END})
    assert made is not None and len(made.tokens) == len(made.masks) == len(made.logprobs)
    assert all((lp == UNKNOWN) == (m == MASKED) for m, lp in zip(made.masks, made.logprobs, strict=True))
    return made


def test_what_was_sampled_is_trained_and_the_rest_is_not() -> None:
    made = sequence(with_prompt(reply(3, 4, END), 1, 2), environment_message(5), reply(6, END))
    assert made.tokens == [1, 2, 3, 4, END, 5, 6, END]
    assert made.masks == [MASKED, MASKED, 3, 4, END, MASKED, 6, END]
    assert (made.trained, made.inexact, made.cut) == (5, 0, False)


@pytest.mark.parametrize("finish", ["length", "stop_sequence"])
def test_an_end_that_was_not_sampled_is_put_there_and_not_trained(finish: str) -> None:
    made = sequence(with_prompt(reply(3, finish=finish), 1))
    assert made.tokens == [1, 3, END] and made.masks == [MASKED, 3, MASKED]
    assert made.cut == (finish == "length")


def test_what_stands_behind_the_last_reply_is_left_out() -> None:
    assert sequence(with_prompt(reply(3, END), 1), environment_message(5)).tokens == [1, 3, END]


def test_ids_without_logprobs_are_not_trained_and_counted() -> None:
    made = sequence(with_prompt(reply(3, 4, logprobs_count=0), 1), environment_message(5), reply(6, END))
    assert made.masks == [MASKED] * 4 + [6, END] and (made.trained, made.inexact) == (2, 2)


def test_a_closing_tag_behind_what_was_sampled_is_not_trained_and_is_no_mismatch() -> None:
    made = sequence(with_prompt(reply(3, 4, 5, logprobs_count=2), 1))
    assert made.masks == [MASKED, 3, 4, MASKED, MASKED] and made.inexact == 0


def test_spans_of_one_completion_are_one() -> None:
    made = sequence(with_prompt(reply(3, finish=None), 1), reply(4, logprobs_count=0, turn=0))
    assert (made.trained, made.inexact) == (1, 0)


def test_a_trace_without_ids_gives_none() -> None:
    trace = Trace(
        key="k",
        task=Task(id="t", group="t"),
        messages=(reply(3),),
        provenance=Provenance(origin="generated", source="s"),
    )
    assert make_sequence(trace, END, {END}) is None


def test_messages_are_turns() -> None:
    opening = Message(role="user", author="user", content="q", turn=0)
    inline = [
        reply(3, turn=1, content="a"),
        Message(role="tool", author="environment", content="[r]", injected=True, turn=1),
        reply(4, turn=1, content="b", continues=True),
    ]
    answers = [
        Message(role="tool", author="environment", content=text, turn=2, raw_role="user") for text in ("one", "two")
    ]
    assert merge_turns([opening, *inline, *answers]) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a[r]b"},
        {"role": "user", "content": "one\ntwo"},
    ]
