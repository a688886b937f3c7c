"""`interleaved_tools`: small blocks in a session; what fails is not part of the answer, and a fix replaces."""

from __future__ import annotations

from foretrace.core.problem import Problem, Test
from protocols.play import RIGHT, TWICE, WRONG, Stage

CHECK = "<verify></verify>"


def code(text: str, thought: str = "One more small step.") -> str:
    return f"<think>{thought}</think>\n<code>\n{text.strip()}\n</code>"


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
