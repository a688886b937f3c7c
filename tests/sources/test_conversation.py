"""Turns, results and times out of records, in whatever order a format writes them."""

from __future__ import annotations

import pytest

from foretrace.sources.account import Account
from foretrace.sources.conversation import Conversation, make_call, read_time

T = 1_700_000_000.0


def test_records_of_one_reply_are_one_message() -> None:
    talk = Conversation(Account())
    talk.add_user("hi", 0, at=T)
    talk.add_agent(1, text="I look", reply="m1", at=T + 2)
    talk.add_agent(2, calls=[make_call("c1", "Read", {"path": "a"})], reply="m1", at=T + 2.5)
    talk.add_result("c1", "text", 3, at=T + 3)
    talk.add_agent(4, calls=[make_call("c2", "Read", '{"path": "b"}')], reply="m1", at=T + 2.7)
    talk.add_result("c2", "more", 5, at=T + 5, is_error=True)
    messages = talk.finish()
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool"]
    assert [c.name for c in messages[1].tool_calls] == ["Read", "Read"] and messages[1].content == "I look"
    assert messages[1].model_s == pytest.approx(2.7) and messages[1].model_s_source == "stamps"
    assert [m.tool_s for m in messages[2:]] == pytest.approx([0.5, 2.3]) and messages[3].is_error
    assert messages[0].started == "2023-11-14T22:13:20+00:00"


def test_what_was_measured_wins_and_persons_are_no_tools() -> None:
    talk = Conversation(Account(), person_tools=["ask"])
    talk.add_agent(0, calls=[make_call("a", "ask", {}), make_call("b", "run", {})], at=T)
    talk.add_result("a", "yes", 1, at=T + 60)
    talk.add_result("b", "ok", 2, at=T + 60, seconds=1.5)
    talk.time_call("b", 1.25)
    talk.time_call("nobody", 1)
    _, asked, ran = talk.finish()
    assert asked.tool_s is None and asked.tool_s_source is None
    assert (ran.tool_s, ran.tool_s_source) == (1.25, "runner")


def test_stamps_that_say_nothing_give_no_time() -> None:
    account = Account()
    talk = Conversation(account)
    talk.add_user("hi", 0, at=T)
    talk.add_agent(1, calls=[make_call("a", "run", {}), make_call("late", "run", {})], at=T + 0.001)
    talk.add_result("a", "", 2, at=T - 5)
    talk.add_result("?", "", 3)
    talk.add_result("", "", 4, seconds=-1)
    assert all(m.model_s is None and m.tool_s is None for m in talk.finish())
    assert account.notes == {
        "clocks that run backwards": 1, "durations below zero": 1, "results without a call": 1,
        "calls without a result": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [1.7e9, 1.7e12, 1.7e15, 1_700_000_000 * 10**9, "2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "1700000000000"],
)
def test_time_stamps(value: object) -> None:
    assert read_time(value) == T
