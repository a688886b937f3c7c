"""Targets of the proposer, and what the other recipes make of the same steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dataset.little import build, corpus, rows, runs, says, seen, trace, user
from foretrace.core.trace import Message, Outcome, ToolCall


def test_a_step_that_two_attempts_took_alike_is_one_row(tmp_path: Path) -> None:
    """The same prompt and the same target once; where they part, both have rows."""
    one = trace("a", user("x"), runs("ls"), seen("y"), says("done"))
    other = trace("b", user("x"), runs("ls"), seen("z"), says("done"))
    manifest = build(tmp_path, one, other)
    found = sorted((r["key"], r["step"]) for r in rows(tmp_path / "d", "proposer"))
    assert found == [("a", 1), ("a", 3), ("b", 3)]
    assert manifest["drops"]["proposer"] == {"repeated_step": 1}
    assert len(list(rows(tmp_path / "d", "trajectories"))) == 2


def test_steps_that_are_no_targets_are_counted_by_reason(tmp_path: Path) -> None:
    """Not trainable, not the model's, a call that could not be read, an empty turn: none is a target anywhere."""
    broken = says("<tool_call>{</tool_call>", tool_calls=(ToolCall(error="bad json"),))
    demo = Message(role="assistant", author="demo", content="Like this.")
    begins = user("x"), demo, user("Now you."), runs("ls"), seen("y")
    none = broken, seen("?"), says("  "), says("made up", train=False)
    manifest = build(tmp_path, trace("a", *begins, *none, user("More."), says("end")), allow_unread=True)
    assert [r["step"] for r in sorted(rows(tmp_path / "d", "proposer"), key=lambda r: r["step"])] == [3, 10]
    drops = manifest["drops"]["proposer"]
    assert sum(drops.values()) == 4 and drops["not_trainable"] == 1
    row = next(rows(tmp_path / "d", "trajectories"))
    assert [i for i, m in enumerate(row["messages"]) if m["trained"]] == [3, 10] and row["steps"] == 2


def test_eval_rows_look_ahead_over_the_next_five_types(tmp_path: Path) -> None:
    build(tmp_path, *corpus(8), split=(0.2, 0.0, 0.8))
    found = sorted(rows(tmp_path / "d", "eval"), key=lambda r: (r["key"], r["step"]))
    by_key: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_key.setdefault(row["key"], []).append(row)
    for attempt in by_key.values():
        actions = [r["action"] for r in attempt]
        assert [r["next_actions"] for r in attempt] == [actions[i : i + 5] for i in range(len(actions))]
        assert [r["state_version"] for r in attempt] == sorted(r["state_version"] for r in attempt)


def test_rows_say_how_their_attempt_ended_and_weigh_it(tmp_path: Path) -> None:
    ended = Outcome(success=False, reward=0.25, flags=("peeked",))
    bad = msgspec.structs.replace(corpus(1)[0], key="bad", outcome=ended)
    manifest = build(tmp_path, bad, *corpus(8), outcomes="all", weights={"failed": 0.2})
    assert manifest["settings"]["weights"] == {"failed": 0.2}
    ends = {one.key: (one.outcome.success, one.outcome.reward, [*one.outcome.flags]) for one in [bad, *corpus(8)]}
    for config in ("proposer", "verifier", "verifier_unpaired", "eval", "trajectories"):
        for row in rows(tmp_path / "d", config):
            if row.get("label") is False and row["family"] == "sibling":
                assert row["success"] is False  # of the attempt that gave the wrong answer
                continue
            assert (row["success"], row["reward"], row["flags"]) == ends[row["key"]]
            assert row["weight"] == (0.2 if row["success"] is False else 1.0)
    assert any(row["key"] == "bad" for row in rows(tmp_path / "d", "proposer"))
