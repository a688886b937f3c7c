"""`interleaved` and `interleaved_forced`: thoughts and code in one reply, or one small step a turn."""

from __future__ import annotations

from foretrace.core.completion import Completion
from protocols.play import RIGHT, WRONG, Stage

HELPER = "def negated(n):\n    return -n\n"
USES = "def add(a, b):\n    return a - negated(b)\n"
CHECKS = "<verify>\nassert add(2, 2) == 4\n</verify>"


def code(text: str, thought: str = "The next part of it.") -> str:
    return f"<think>{thought}</think>\n<code>\n{text.rstrip()}\n</code>\n"


def test_a_caught_mistake_is_replaced(stage: Stage) -> None:
    wait = "<wait>That is the difference.</wait>\n"
    played = stage.play("interleaved", code(f"LIMIT = 1\n\n{WRONG}") + wait + code(RIGHT) + CHECKS)
    assert played.trace.outcome.success and "a - b" not in played.episode.code and "LIMIT" in played.episode.code
    broken = code("def add(a, b:\n    return a - b\nLIMIT = 2")
    played = stage.play("interleaved", broken + wait + code(RIGHT) + CHECKS)
    assert played.trace.outcome.success and "LIMIT" in played.episode.code


def test_a_failed_verify_is_recorded_and_ends_it_too(stage: Stage) -> None:
    played = stage.play("interleaved", code(WRONG) + CHECKS)
    assert played.said[1] == "<error>\nAssertionError\nline 1: assert add(2, 2) == 4\n</error>"
    assert played.episode.done and played.trace.outcome.success is False and played.labels[-1] == "verifier"


def test_a_reply_that_was_cut_may_go_on(stage: Stage) -> None:
    cut = Completion(text=code(HELPER) + "<think>And now the sum.</think>\n<code>\ndef add(a, b):", finish="length")
    played = stage.play("interleaved", cut, code(USES) + CHECKS)
    assert "cut off" in played.said[1] and played.trace.outcome.success
    played = stage.play("interleaved", "I think that it is a sum.", code(RIGHT))
    assert "no code yet" in played.said[0] and played.trace.outcome.success


def test_it_takes_one_small_step_a_turn_until_it_verifies(stage: Stage) -> None:
    steps = (
        "<think>Two numbers come in.</think>",
        code("def add(a, b):"),
        "<code>\n    return a - b",
        "<verify></verify>",
        "<think>A plus it must be.</think>\n<code>\ndef add(a, b):\n    return a + b\n</code>",
        "<verify></verify>",
    )
    played = stage.play("interleaved_forced", *steps)
    asked = [text.endswith("Go on with the next step.") for text in played.said]
    assert asked == [True] * 5 + [False], "behind the last reply nothing is asked for"
    assert played.labels == ["nonstep.prompted", "file_write", "file_write", "verifier", "repair", "verifier"]
    assert played.trace.outcome.success and played.trace.provenance.protocol == "interleaved_forced"
    assert played.counted("think_count", "code_block_count") == (3, 3), "a thought and code of one reply are both kept"


def test_it_refuses_long_blocks(stage: Stage) -> None:
    long = code("def add(a, b):\n    # the sum\n    c = a\n    c += b\n    return c")
    played = stage.play(
        "interleaved_forced", long, code("def add(a, b):\n    # the sum\n\n    c = a + b\n    return c"), "<verify>"
    )
    assert "one to 3 lines" in played.said[0] and played.trace.outcome.success
