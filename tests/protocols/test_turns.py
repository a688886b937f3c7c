"""`interleaved`, `interleaved_forced`, `interleaved_tools` and `structured`: thoughts, code and checks take turns."""

from __future__ import annotations

from foretrace.core.completion import Completion
from foretrace.core.problem import Problem, Test
from protocols.play import RIGHT, TWICE, WRONG, Stage

CHECK = "<verify></verify>"


def code(text: str, thought: str = "The next part of it.") -> str:
    return f"<think>{thought}</think>\n<code>\n{text.strip()}\n</code>\n"


# --- interleaved and interleaved_forced: what does not run before it is verified

HELPER = "def negated(n):\n    return -n\n"
USES = "def add(a, b):\n    return a - negated(b)\n"
CHECKS = "<verify>\nassert add(2, 2) == 4\n</verify>"


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
        CHECK,
        "<think>A plus it must be.</think>\n<code>\ndef add(a, b):\n    return a + b\n</code>",
        CHECK,
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


# --- interleaved_tools: a session, in which what fails is no part of the answer

MEAN = Problem(
    id="mean",
    source="little",
    statement="The mean of numbers, 0 for none.",
    entry_point="mean",
    public_tests=(Test(code="assert mean([1, 3]) == 2"), Test(code="assert mean([]) == 0")),
    hidden_tests=(Test(code="assert mean([5]) == 5"),),
    license="MIT",
)
TOTAL = "import math\n\ndef total(numbers):\n    return math.fsum(numbers)\n\nprint(total([1, 2]))"
MEAN_BAD = "def mean(numbers):\n    return total(numbers) / len(numbers)"
MEAN_GOOD = "def mean(numbers):\n    return total(numbers) / len(numbers) if numbers else 0"


def test_blocks_accumulate_and_a_failing_verify_leads_to_a_fix(stage: Stage) -> None:
    played = stage.play("interleaved_tools", code(TOTAL), code(MEAN_BAD), CHECK, code(MEAN_GOOD), CHECK, problem=MEAN)
    assert played.said == [
        "<result>\n3.0\n</result>",
        "<result>\n(no output)\n</result>",
        "<result>\n1 of 2 public tests passed.\ntest 2: ZeroDivisionError: float division by zero\n</result>",
        "<result>\n(no output)\n</result>",
        "<result>\nAll 2 public tests passed.\n</result>",
    ]
    assert played.labels == ["tool_call", "tool_call", "verifier", "repair", "verifier"]
    assert [m.tool_calls[0].name for m in played.models] == ["python", "python", "run_tests", "python", "run_tests"]
    assert played.trace.outcome.success and played.metrics["is_ideal"]


def test_a_failed_block_is_no_part_of_the_answer(stage: Stage) -> None:
    played = stage.play("interleaved_tools", code("x = 1\n1 / 0"), code("print(x)"), code(RIGHT), CHECK)
    assert "ZeroDivisionError" in played.said[0] and "line 2: 1 / 0" in played.said[0]
    assert "NameError: name 'x' is not defined" in played.said[1]
    assert played.episode.code == RIGHT and played.trace.outcome.success


def test_a_fix_takes_the_place_of_what_it_fixes_and_keeps_the_rest(stage: Stage) -> None:
    first = f"import math\n\nLIMIT = 3\n\n{WRONG}\nprint(add(1, 1))"
    second = "table = [add(n, n) for n in range(LIMIT)]"
    played = stage.play("interleaved_tools", code(first), code(second), code(RIGHT), code("print(table)"), CHECK)
    assert played.said[3] == "<result>\n[0, 2, 4]\n</result>", "what the old code had computed is computed anew"
    answer = played.episode.code
    assert answer.count("def add") == 1 and "a - b" not in answer
    assert answer.index("LIMIT = 3") < answer.index("def add") < answer.index("print(add(1, 1))")
    assert played.labels == ["tool_call", "tool_call", "tool_call", "tool_call", "verifier"]


def test_code_that_kills_its_session_costs_only_that_block(stage: Stage) -> None:
    kill = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGKILL)"
    played = stage.play("interleaved_tools", code(RIGHT), code(kill), code("print(add(2, 3))"), CHECK)
    assert played.said[1].startswith("<error>") and played.said[2] == "<result>\n5\n</result>"
    assert played.trace.outcome.status == "done" and played.trace.outcome.success


def test_a_session_of_a_program_reads_the_first_example(stage: Stage) -> None:
    played = stage.play(
        "interleaved_tools", code("number = int(input())"), code("print(number * 2)"), CHECK, problem=TWICE
    )
    assert played.said[1] == "<result>\n4\n</result>" and played.trace.outcome.success


# --- structured: rounds of plan, action and reflection

PLAN = "<plan>1. Take both numbers. 2. Give their sum.</plan>"
REFLECT = "<reflect>The sign was wrong: the difference was given.</reflect>"


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
