"""`structured`: rounds of plan, action and reflection."""

from __future__ import annotations

from protocols.play import RIGHT, WRONG, Stage

PLAN = "<plan>1. Take both numbers. 2. Give their sum.</plan>"
REFLECT = "<reflect>The sign was wrong: the difference was given.</reflect>"


def code(text: str) -> str:
    return f"<code>\n{text}</code>"


def test_several_parts_of_one_reply_are_all_read(stage: Stage) -> None:
    played = stage.play("structured", f"[PLAN] the sum of both\n[ACTION]\n{RIGHT}[REFLECTION] it should be right")
    assert not played.episode.done
    played = stage.play("structured", f"{PLAN}\n{code(RIGHT)}", "All of it passes, so I am done.")
    assert played.episode.done and played.labels == ["verifier", "final_answer"]


def test_a_reflection_on_code_that_fails_does_not_end_it(stage: Stage) -> None:
    played = stage.play("structured", PLAN, code(WRONG), REFLECT, max_turns=3)
    assert (played.trace.outcome.status, played.trace.outcome.success) == ("limit", False)
    assert played.labels == ["nonstep.prompted", "verifier", "nonstep.prompted"]


def test_behind_the_last_reply_nothing_is_asked_for(stage: Stage) -> None:
    (_, told) = stage.play("structured", PLAN, code(RIGHT), max_turns=2).said
    assert told == "<result>\nAll 2 public tests passed.\n</result>"
