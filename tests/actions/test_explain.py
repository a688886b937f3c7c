"""Why a step has its label: what the rules found, without a second reading of the trace."""

from __future__ import annotations

import msgspec
import pytest

from actions.traces import BOOM, OK, PASSED, REFUSED, change, do, labels, make, notice, say, seen, sh, trace
from foretrace.actions.corrections import Corrections, TraceCorrections
from foretrace.actions.explain import StepExplanation, explain_trace
from foretrace.actions.taxonomy import ActionType
from foretrace.core.trace import Message

RUN = sh("cd /r && python probe.py")


def explain(*messages: Message) -> list[StepExplanation]:
    return explain_trace(trace(*messages))


REPAIRS = {
    "repair.failing_target": ([make("/r/probe.py"), OK, RUN, BOOM, change("/r/probe.py")], "/r/probe.py", 0, 3),
    "repair.doubtful_target": ([change("/r/a.py"), OK, RUN, seen("x"), change("/r/a.py")], "/r/a.py", 0, 3),
    "repair.refused_write": ([change("/r/a.py"), REFUSED, change("/r/a.py")], "/r/a.py", 0, 1),
    "repair.reissued": (
        [do("cancel_order", order="1"), seen("Error: no such order"), do("cancel_order", order="2")],
        "cancel_order",
        0,
        1,
    ),
    "repair.failing_definition": (
        [
            do("python", code="def add(a, b):\n    return a - b"),
            seen(""),
            do("python", code="assert add(1, 2) == 3"),
            seen("Traceback (most recent call last):\nAssertionError"),
            do("python", code="def add(a, b):\n    return a + b"),
        ],
        "add",
        0,
        3,
    ),
    "repair.failing_code": (
        [do("run_tests", code="x = 1"), seen("1 failed"), do("run_tests", code="x = 2")],
        "tested code",
        0,
        1,
    ),
    "repair.wrong_answer": (
        [do("python", code="print(1)"), seen("1"), do("submit_answer", answer="1"), seen("Your answer is wrong."),
         do("python", code="print(2)")],
        "",
        2,
        3,
    ),
    "repair.undo": (
        [change("/r/a.py"), OK, sh("pytest"), seen("1 failed"), sh("git checkout -- /r/a.py")],
        "/r/a.py",
        0,
        3,
    ),
    "repair.chat_code": (
        [say("```python\nx\n```"), notice("NameError: x is not defined"), say("Sorry:\n```python\nx = 1\n```")],
        "",
        0,
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", REPAIRS)
def test_a_repair_says_what_it_does_over_and_what_showed_the_failure(rule: str) -> None:
    messages, target, step, shown_by = REPAIRS[rule]
    found = explain(*messages)[-1]
    assert (found.label.action, found.label.rule) == (ActionType.REPAIR, rule)
    assert found.repair is not None
    assert (found.repair.target, found.repair.step, found.repair.shown_by) == (target, step, shown_by)


def test_the_line_that_shows_a_failure_is_told_with_the_step_and_with_its_repair() -> None:
    found = explain(make("/r/a.py"), OK, sh("pytest"), seen("collected 3\n2 failed, 1 passed"), change("/r/a.py"), OK)
    check, repair = found[1], found[2]
    assert [(s.message_index, s.result, s.line) for s in check.observations] == [(3, "failed", "2 failed, 1 passed")]
    assert repair.repair is not None and repair.repair.line == "2 failed, 1 passed"
    assert repair.observations[0].result == "unclear" and repair.observations[0].line == ""


@pytest.mark.parametrize(
    ("call", "observation", "result", "line"),
    [
        (sh("pytest"), PASSED, "passed", "===== 3 passed in 0.1s ====="),
        (sh("cat a.py"), seen("cat: a.py\n[exit code: 1]"), "failed", "[exit code: 1]"),
        (sh("pip install x"), BOOM, "failed", "KeyError: 3"),
        (change("a.py"), REFUSED, "failed", REFUSED.content),
        (do("get_order"), seen('{"error": "no order 7"}'), "failed", '{"error": "no order 7"}'),
        (sh("grep x a.py"), seen("Error: in a file"), "failed", "Error: in a file"),
        (sh("pytest"), seen(f"{'a' * 90}\n{'b' * 40}: 2 failed{'c' * 900}"), "unclear", ""),
        (sh("pytest"), seen(f"ok\n1 failed, {'c' * 900}"), "failed", f"1 failed, {'c' * 190}"),
    ],
)
def test_the_line_of_a_result(call: Message, observation: Message, result: str, line: str) -> None:
    shown = explain(call, observation)[0].observations[0]
    assert (shown.result, shown.line, shown.marked) == (result, line, False)


def test_explaining_gives_the_labels_of_labelling() -> None:
    messages = [make("/r/a.py"), OK, RUN, BOOM, change("/r/a.py"), OK, sh("pytest"), PASSED, say("Done.")]
    assert [each.label for each in explain(*messages)] == labels(*messages)


def test_a_corrected_step_says_so() -> None:
    one = msgspec.structs.replace(trace(sh("ls"), OK, say("Done.")), id="x")
    given = Corrections({"t": TraceCorrections("x", {0: ActionType.RETRIEVAL}, 2)}, 0)
    first, last = explain_trace(one, given)
    assert (first.label.action, first.label.confidence, first.seen) == (ActionType.RETRIEVAL, 1.0, 0)
    assert first.meaning == "A person corrected this label."
    assert not last.label.corrected


def test_a_flag_is_explained() -> None:
    first, second = explain(sh("git show origin/main"), seen("diff"), say("Done."))
    (flag,) = first.flags
    assert (flag.rule, flag.is_cheat, flag.evidence) == ("history.read", True, "git show origin/main")
    assert "commits" in flag.meaning and not second.flags
