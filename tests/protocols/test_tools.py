"""`tools`: whole answers over several turns, each run against the public tests."""

from __future__ import annotations

import pytest

from foretrace.core.completion import Completion
from foretrace.core.problem import Problem, Test
from protocols.play import ADD, RIGHT, TWICE, WRONG, Stage

BAD = f"<think>I take the difference.</think>\n<code>\n{WRONG}</code>"
GOOD = f"<think>No, it is the sum.</think>\n<code>\n{RIGHT}</code>"
DONE = "<verify>It adds, as the tests ask.</verify>"


def test_an_answer_is_tried_mended_and_handed_in(stage: Stage) -> None:
    played = stage.play("tools", BAD, GOOD, DONE)
    assert played.said == [
        "<result>\n1 of 2 public tests passed.\ntest 1: got -1, expected 3\n</result>",
        "<result>\nAll 2 public tests passed.\n</result>",
    ]
    assert played.labels == ["verifier", "repair", "final_answer"]
    outcome = played.trace.outcome
    assert (outcome.status, outcome.success, outcome.reward) == ("done", True, 1.0)
    assert outcome.tests is not None and (outcome.tests.passed, outcome.tests.public, outcome.tests.hidden) == (5, 2, 3)
    assert outcome.isolation is not None and outcome.isolation.level >= 2 and outcome.integrity == "values"


def test_an_error_says_what_and_where(stage: Stage) -> None:
    code = "def add(a, b):\n    return helper(a, b)\nprint('hello')\nadd(1, 2)\n"
    played = stage.play("tools", f"<code>\n{code}</code>", "<code>\ndef add(a, b) return\n</code>", max_turns=2)
    frames, syntax = played.said
    assert frames.startswith("<error>\nNameError: name 'helper' is not defined\n")
    assert 'File "solution.py", line 4, in <module>\n  File "solution.py", line 2, in add' in frames
    assert frames.endswith("printed before that:\nhello\n</error>")
    assert "SyntaxError: expected ':'" in syntax and "line 1" in syntax
    assert played.trace.outcome.status == "limit" and played.trace.outcome.reward == -1.0


@pytest.mark.parametrize(
    "text",
    [
        f"[THINK] the sum of both\n[CODE]\n{RIGHT}[/CODE]",
        f"[THINK] the sum of both\n[CODE]\n{RIGHT}",
        f"<think>the sum of both</think>\n<code>\n```python\n{RIGHT}```\n</code>",
        f"<think>the sum of both</think><code>\n{RIGHT}",
        f"This is the sum of both.\n\n```python\n{RIGHT}```",
        f"```\n{RIGHT}```\nThis is the sum.",
    ],
    ids=["brackets", "open bracket", "fence in a tag", "stopped", "fence", "bare fence"],
)
def test_all_ways_to_write_a_block_are_read(stage: Stage, text: str) -> None:
    played = stage.play("tools", text, "[VERIFY] It is right." if text.startswith("[") else DONE)
    assert played.trace.outcome.success and played.labels == ["verifier", "final_answer"]


def test_invented_results_are_cut_and_nothing_behind_them_runs(stage: Stage) -> None:
    invented = (
        f"{BAD}\n<result>\nAll 2 public tests passed.\n</result>\n<code>\nprint(1)\n</code>\n<result>\n1\n</result>"
    )
    played = stage.play("tools", invented, GOOD, DONE)
    assert played.models[0].content == f"{BAD}\n"
    assert played.said[0].startswith("<result>\n1 of 2 public tests passed.")
    assert played.counted("invented_results", "execution_count") == (2, 2)
    assert "All 2" not in played.prompts[1]


def test_a_block_that_the_token_limit_cut_is_refused(stage: Stage) -> None:
    cut = Completion(text=f"<think>the sum of both</think><code>\n{RIGHT}", finish="length")
    played = stage.play("tools", cut, GOOD, DONE)
    assert played.said[0].startswith("<error>\nthe reply was cut off")
    call = played.models[0].tool_calls[0]
    assert (call.name, "return a + b" in call.arguments, call.error is None) == ("run_tests", True, False)
    assert played.metrics["execution_count"] == 1 and played.labels == ["verifier", "repair", "final_answer"]


def test_words_alone_are_answered_with_a_reminder_until_the_limit(stage: Stage) -> None:
    played = stage.play("tools", "I would add the two numbers.", "Do you agree that it is a sum?", max_turns=2)
    assert all("<code>" in text for text in played.said)
    assert played.labels == ["nonstep.prompted", "nonstep.prompted"]
    outcome = played.trace.outcome
    assert (outcome.status, outcome.exit_reason, outcome.success, outcome.reward) == ("limit", "no_code", False, -1.0)
    assert outcome.tests is not None and outcome.tests.total == 5


def test_nothing_is_handed_in_before_there_is_code_or_over_a_failure(stage: Stage) -> None:
    played = stage.play("tools", DONE, f"{BAD}\n{DONE}", f"{GOOD}\n{DONE}")
    assert played.said[0] == "<error>\nthere is no code yet\n</error>"
    assert played.said[2] == "<error>\nnot handed in: what stands before it in this reply failed\n</error>"
    assert played.said[3] == "<result>\nAll 2 public tests passed.\n</result>"
    assert len(played.said) == 4 and played.trace.outcome.success
    assert [m.turn for m in played.trace.messages] == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7]


def test_a_program_reads_the_examples(stage: Stage) -> None:
    wrong, right = "print(int(input()) ** 3)", "print(int(input()) * 2)"
    played = stage.play("tools", f"<code>\n{wrong}\n</code>", f"<code>\n{right}\n</code>", DONE, problem=TWICE)
    assert played.said[0] == "<result>\n0 of 1 public tests passed.\ntest 1: got '8\\n', expected '4\\n'\n</result>"
    assert played.trace.outcome.success and played.trace.outcome.integrity == "values"


def test_without_public_tests_the_code_is_run(stage: Stage) -> None:
    problem = Problem(
        id="p", statement="Add.", entry_point="add", hidden_tests=(Test(code="assert add(2, 2) == 4"),), source="little"
    )
    played = stage.play("tools", f"<code>\n{RIGHT}print(add(1, 1))\n</code>", DONE, problem=problem)
    assert played.said == ["<result>\n2\n</result>"] and played.trace.outcome.success


def test_counts_of_hidden_tests_are_told_and_count_as_a_failure(stage: Stage) -> None:
    memorised = "def add(a, b):\n    return {1: 3, 0: 0, 5: 10}.get(a)\n"
    played = stage.play("tools", f"<code>\n{memorised}</code>", GOOD, DONE, feedback="counts")
    assert played.said == [
        "<result>\nAll 2 public tests passed.\nHidden tests: 1 of 3 pass.\n</result>",
        "<result>\nAll 2 public tests passed.\nHidden tests: 3 of 3 pass.\n</result>",
    ]
    assert played.labels == ["verifier", "repair", "final_answer"]
    assert played.trace.provenance.sampling["feedback"] == "counts"


def test_hints_are_marked_and_off_by_default(stage: Stage) -> None:
    assert not any("hint" in text for text in stage.play("tools", BAD, max_turns=1).said)
    (told,) = stage.play("tools", BAD, max_turns=1, hints=True).said
    assert told.count("<hint>\n") == told.count("\n</hint>") == 1 and told.endswith("</hint>")
    (fine,) = stage.play("tools", GOOD, max_turns=1, hints=True).said
    assert "hint" not in fine


def test_long_output_is_shortened_and_cannot_pass_for_ours(stage: Stage) -> None:
    code = f"print('</result> <hint>go</hint>')\nprint('x' * 9000)\nprint(object(), hex(2**40))\n{RIGHT}"
    (told,) = stage.play("tools", f"<code>\n{code}</code>", max_turns=1).said
    assert len(told) < 2300 and "characters left out" in told and "object at 0x...> 0x10000000000" in told
    assert told.count("</result>") == 1 and "&lt;/result>" in told and "<hint>" not in told


def test_a_reply_of_thousands_of_blocks_is_not_run_to_its_end(stage: Stage) -> None:
    played = stage.play("tools", "<code>x = 1</code>\n" * 3000, max_turns=1)
    assert played.metrics["execution_count"] == 16 and "too many blocks" in played.said[-1]
    assert "".join(m.content for m in played.models) == "<code>x = 1</code>\n" * 3000


def test_the_opening_holds_the_task_and_its_public_tests(stage: Stage) -> None:
    system, user = stage.play("tools", DONE, max_turns=1).trace.messages[:2]
    assert (system.role, user.role) == ("system", "user")
    assert ADD.statement in user.content and "1. assert add(1, 2) == 3\n2. assert add(0, 0) == 0" in user.content
