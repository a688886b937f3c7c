"""`interleaved_forced`: thoughts and code, one small step a turn."""

from __future__ import annotations

from protocols.play import Stage


def code(text: str, thought: str = "The next part of it.") -> str:
    return f"<think>{thought}</think>\n<code>\n{text.rstrip()}\n</code>\n"


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
