"""Times of steps: what is known is taken as it is, what is not stays unknown, and why is said."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.timed import Timed, make, make_trace
from foretrace.core.trace import Message, ToolCall
from foretrace.evaluation.step_times import time_steps


def say(*calls: str, at: int | None = None, **more: Any) -> Message:
    """An agent's message with calls of `read_file`, at a second of a minute."""
    made = tuple(ToolCall(id=call, name="read_file") for call in calls)
    return Message(role="assistant", author="model", tool_calls=made, started=stamp(at), **more)


def answer(call: str, seconds: float | None = None, *, at: float | None = None, **more: Any) -> Message:
    return Message(role="tool", author="environment", tool_call_ids=(call,), tool_s=seconds, started=stamp(at), **more)


def stamp(at: float | None) -> str | None:
    return None if at is None else f"2026-01-01T10:00:{at:09.6f}+00:00"


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Timed(None, 1.0), "no_model_time"), (Timed(0.0, 1.0), "no_model_time"), (Timed(1.0, None), "no_tool_time"),
        (Timed(-1.0, 1.0), "absurd_time"), (Timed(1.0, -0.1), "absurd_time"), (Timed(1.0, math.nan), "absurd_time"),
        (Timed(math.inf, 1.0), "absurd_time"), (Timed(1.0, 86_401.0), "absurd_time"),
    ],
)  # fmt: skip
def test_what_is_not_known_says_why(step: Timed, why: str) -> None:
    assert [found.unknown for found in time_steps(make_trace([step, Timed(1.0, 1.0)]))] == [why, None]


def test_a_call_without_a_result_is_unknown_unless_nothing_waits_for_it() -> None:
    (lost,) = time_steps(make([say("a", model_s=1.0)]))
    assert lost.unknown == "no_result" and lost.tool_s is None
    submit = Message(role="assistant", author="model", tool_calls=(ToolCall(id="a", name="submit"),), model_s=1.0)
    ask = Message(role="assistant", author="model", tool_calls=(ToolCall(id="b", name="ask_user"),), model_s=1.0)
    asked, handed_in = time_steps(make([ask, answer("b", 300.0), submit]))
    assert (handed_in.unknown, handed_in.tool_s) == (None, 0.0)
    assert (asked.unknown, asked.tool_s) == (None, 0.0), "a person's time is not a tool's"


def test_parallel_calls_count_as_their_union_where_it_is_known() -> None:
    stamps: dict[str, Any] = {"tool_s_source": "stamps"}
    calls = say("a", "b", at=0, model_s=1.0)
    (step,) = time_steps(make([calls, answer("a", 4.0, at=4, **stamps), answer("b", 3.0, at=6, **stamps)]))
    assert (step.tool_s, step.overlap) == (6.0, "union"), "0 to 4 and 3 to 6"
    inside = [answer(i, s, at=at, **stamps) for i, s, at in (("a", 9.0, 9), ("b", 1.0, 2), ("c", 2.0, 10))]
    (step,) = time_steps(make([say("a", "b", "c", at=0, model_s=1.0), *inside]))
    assert step.tool_s == 10.0, "0 to 9, 1 to 2 and 8 to 10"
    (step,) = time_steps(make([calls, answer("a", 4.0), answer("b", 3.0)]))
    assert (step.tool_s, step.overlap) == (4.0, "longest")
    assert [call.tool_s for call in step.calls] == [4.0, 3.0]
    (step,) = time_steps(make([calls, answer("a", 4.0), answer("b")]))
    assert step.unknown == "no_tool_time" and step.tool_s is None


def test_calls_of_a_generated_reply_ran_one_by_one() -> None:
    reply = [say("a", at=0, model_s=2.0), say("b", continues=True)]
    results = [answer("a", 1.0, at=2), answer("b", 0.5, at=3)]
    (step,) = time_steps(make([*reply, *results], origin="generated"))
    assert (step.model_s, step.tool_s, step.overlap, step.indexes) == (2.0, 1.5, "union", (0, 1))


def test_messages_of_one_reply_are_one_step() -> None:
    (step,) = time_steps(make([say(model_s=1.0), say("a", model_s=2.0), answer("a", 1.0)]))
    assert step.model_s == 3.0, "measured by itself each"
    stamps: dict[str, Any] = {"model_s_source": "stamps"}
    (step,) = time_steps(make([say(model_s=1.0, **stamps), say("a", model_s=2.0, **stamps), answer("a", 1.0)]))
    assert step.model_s == 2.0, "both begin with the input"
    (step,) = time_steps(make([say(model_s=1.0), say("a"), answer("a", 1.0)]))
    assert step.unknown == "no_model_time", "half of a reply"


def test_a_clock_that_runs_backwards_is_unknown_there_only() -> None:
    steps = [say("a", at=5, model_s=1.0), answer("a", 1.0, at=4), say("b", at=6, model_s=1.0), answer("b", 1.0, at=7)]
    assert [step.unknown for step in time_steps(make(steps))] == ["clock_backwards", None]
    steps = [say("a", at=5, model_s=1.0), answer("a", 1.0, at=6), say(at=4, model_s=1.0)]
    assert [step.unknown for step in time_steps(make(steps))] == [None, "clock_backwards"]


def test_examples_and_what_the_program_did_are_no_steps() -> None:
    shown = Message(role="assistant", author="demo", model_s=1.0)
    own = Message(role="assistant", author="environment", tool_calls=(ToolCall(name="read_file"),))
    assert time_steps(make([shown, own, answer("")])) == []


def test_a_person_between_two_steps_is_seen() -> None:
    person = Message(role="user", author="user", content="And now?")
    nudge = Message(role="user", author="environment", content="Go on.")
    steps = time_steps(make([say(model_s=1.0), nudge, say(model_s=1.0), person, say(model_s=1.0)]))
    assert [step.after_person for step in steps] == [False, False, True]


def stamped_reply(*calls: str, at: float, seconds: float) -> Message:
    return msgspec.structs.replace(say(*calls), started=stamp(at), model_s=seconds, model_s_source="stamps")


def test_a_call_that_began_while_the_model_wrote_counts_from_the_end_of_the_reply() -> None:
    asked = Message(role="user", author="user", content="Go.", started=stamp(0))
    streamed = [asked, stamped_reply("a", "b", at=1, seconds=4.0)]
    results = [answer("a", 2.0, at=3, tool_s_source="stamps"), answer("b", 3.0, at=6, tool_s_source="stamps")]
    (step,) = time_steps(make([*streamed, *results]))
    assert (step.model_s, step.tool_s) == (4.0, 2.0), "0 to 4 the model, 3 to 6 the second call"
    assert [call.tool_s for call in step.calls] == [2.0, 3.0]
    (step,) = time_steps(make([asked, stamped_reply("a", at=1, seconds=4.0), answer("a", 30.0, at=6)]))
    assert step.tool_s == 2.0, "a runner's 30 s do not fit between 4 and 6"
    (step,) = time_steps(make([asked, stamped_reply("a", at=1, seconds=4.0), answer("a", 1.5, at=6)]))
    assert step.tool_s == 1.5


@given(st.data())
def test_steps_take_no_longer_than_their_stamps(data: st.DataObject) -> None:
    """Whatever calls overlap one another and the reply."""
    tenths = st.integers(1, 40).map(lambda n: n / 10)
    now, messages = 0.0, [Message(role="user", author="user", content="Go.", started=stamp(0))]
    for number in range(data.draw(st.integers(1, 4))):
        seconds, ids = data.draw(tenths), [f"{number}.{n}" for n in range(data.draw(st.integers(0, 3)))]
        first_record = now + data.draw(st.floats(0, 1)) * seconds
        messages.append(stamped_reply(*ids, at=first_record, seconds=seconds))
        now += seconds
        came = sorted(now + data.draw(tenths) for _ in ids)
        for call, at in zip(ids, came, strict=True):
            source = data.draw(st.sampled_from(["stamps", "runner"]))
            messages.append(answer(call, data.draw(tenths), at=at, tool_s_source=source))
        now = max([now, *came])
    steps = time_steps(make(messages))
    assert math.fsum((step.model_s or 0) + (step.tool_s or 0) for step in steps) <= now + 1e-6
