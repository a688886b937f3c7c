"""Proving a set: what passes and must not, what fails and must not, and what proves nothing."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foretrace.core.errors import ProblemError, SandboxError
from foretrace.core.plugins import load_plugin
from foretrace.core.problem import Problem, Test, TestResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.episodes.validate import ValidationReport, judge_problems, make_empty_answer, make_report
from foretrace.sandbox.base import SandboxSettings

LEVEL = Isolation(level=0)


def problem(own: str, reference: str | None = "def f(n):\n    return n + 1\n", **more: Any) -> Problem:
    fields: dict[str, Any] = {
        "id": own,
        "statement": "Add one.",
        "entry_point": "f",
        "public_tests": (Test(code="assert f(1) == 2"),),
        "hidden_tests": (Test(code="assert f(2) == 3"), Test(code="assert f(-1) == 0")),
        "reference": reference,
    }
    return Problem(**{**fields, **more})


def real(problems: Sequence[Problem], **options: Any) -> ValidationReport:
    async def run() -> ValidationReport:
        async with load_plugin("sandbox", "local")(SandboxSettings(workers=2)) as sandbox:
            return make_report(await judge_problems(problems, sandbox, **options), 0.5)

    return asyncio.run(run())


class Scripted:
    """Answers each `judge` by what a function says, after a delay that it may choose."""

    name = "scripted"

    def __init__(self, say: Any) -> None:
        self.say = say
        self.calls: list[tuple[str, str]] = []
        self.now = self.most = 0

    async def judge(self, code: str, tests: Sequence[Test], **_: Any) -> Verdict:
        self.now += 1
        self.most = max(self.most, self.now)
        self.calls.append((code, tests[0].code))
        try:
            await asyncio.sleep(0.001 * (len(self.calls) * 7 % 5))
            answer = self.say(code, tests)
        finally:
            self.now -= 1
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Verdict):
            return answer
        results = tuple(TestResult(name=str(n), passed=answer) for n in range(len(tests)))
        return Verdict(tests=results, integrity="values", isolation=LEVEL)


def scripted(say: Any, problems: Any, **options: Any) -> tuple[ValidationReport, Scripted]:
    sandbox: Any = Scripted(say)
    return make_report(asyncio.run(judge_problems(problems, sandbox, **options)), 0.5), sandbox


def truth(code: str, tests: Sequence[Test]) -> bool:
    return "return n" in code


def test_a_reference_that_fails_is_named_with_its_test() -> None:
    wrong = [
        problem("hidden", "def f(n):\n    return abs(n) + 1\n"),
        problem("public", "def f(n):\n    return 3 if n == 2 else 0\n"),
        problem("broken", "def f(n:\n"),
        problem("absent", "def g(n):\n    return n + 1\n"),
        problem("raises", "def f(n):\n    raise ValueError('no ' * 400)\n"),
    ]
    found = real(wrong)
    assert [(f.problem, f.kind, f.tests) for f in found.faults] == [
        ("hidden", "reference_failed", "hidden"),
        ("public", "reference_failed", "public"),
        *((own, "reference_failed", which) for own in ("broken", "absent", "raises") for which in ("public", "hidden")),
    ]
    assert found.faults[0].detail == "test 1 (`assert f(-1) == 0`): 2 is not 0"
    assert all(f.detail and "\n" not in f.detail and len(f.detail) <= 300 for f in found.faults)
    assert found.references_passed == 0 and not found.sound


def test_tests_that_ask_for_nothing_are_found_and_all_is_counted() -> None:
    nothing, shown = (Test(code="assert f(1) is None or f(1)"),), (Test(code="assert f(1) == None"),)
    found = real(
        [
            problem("sound"),
            problem("hidden", public_tests=()),
            problem("unreferenced", None),
            problem("public", hidden_tests=()),
            problem("nothing", hidden_tests=nothing),
            problem("shown", None, public_tests=shown, hidden_tests=()),
        ]
    )
    faults = [(f.problem, f.kind, f.tests) for f in found.faults]
    assert faults == [("nothing", "empty_passed", "hidden"), ("shown", "empty_passed", "public")]
    assert (found.problems, found.references_passed, found.empty_passed, found.without_reference) == (6, 4, 2, 2)
    assert (found.public, found.with_public, found.hidden) == (5, 5, 7)
    assert found.forms == {"calls": 1, "values": 5} and not found.sound and real([problem("sound")]).sound


def test_which_tests_are_judged_in_which_form_and_which_cannot_be() -> None:
    loop = Test(code="for n in (1, 2):\n    assert f(n) == n + 1")
    bad = (Test(code="assert f(1) == 2"), Test(code="f(2)"), loop, Test(code="assert 1 == 1"))
    found = real(
        [
            problem("values"),
            problem("calls", hidden_tests=(loop,)),
            problem("public", hidden_tests=(), public_tests=(loop,)),
            problem("object", "def f(n):\n    return type('N', (int,), {})(n + 1)\n"),
            problem("bad", hidden_tests=bad),
            problem("mixed", public_tests=(Test(code="assert f(1)"), Test(stdin="", stdout=""))),
            problem("bare", public_tests=(), hidden_tests=()),
        ]
    )
    assert [(one.problem, one.public, one.hidden) for one in found.judged] == [
        ("values", "values", "values"),
        ("calls", "values", "calls"),
        ("public", "calls", None),
        ("object", "together", "together"),
        ("bad", "values", None),
        ("mixed", None, "values"),
        ("bare", None, None),
    ]
    assert found.forms == {"calls": 2, "together": 1, "values": 2}
    said = [(f.problem, f.kind, f.tests, f.detail.split(":")[0]) for f in found.faults]
    assert said.pop() == ("bare", "unusable", None, "no tests")
    assert said.pop()[:3] == ("mixed", "unusable", "public")
    assert said == [
        ("bad", "unusable", "hidden", "test 1 has no assert"),
        ("bad", "unusable", "hidden", "test 3 does not call the code"),
    ]


def test_a_lost_run_is_tried_again_and_proves_nothing() -> None:
    lost = Verdict(tests=(), integrity="values", ending="lost", isolation=LEVEL)
    seen: set[str] = set()

    def once(code: str, tests: Sequence[Test]) -> Any:
        if tests[0].code + code in seen:
            return truth(code, tests)
        seen.add(tests[0].code + code)
        return lost

    found, sandbox = scripted(once, [problem("a")])
    assert found.sound and len(sandbox.calls) == 6
    found, sandbox = scripted(lambda code, tests: lost, [problem("a")])
    assert [(f.kind, f.tests) for f in found.faults] == [("lost", t) for t in ("public", "hidden", "hidden")]
    assert (found.references_passed, found.empty_passed, len(sandbox.calls)) == (0, 0, 6)


def test_the_order_is_that_of_the_set_and_the_work_is_bounded() -> None:
    names = [f"p{number:02}" for number in range(40)]
    done: list[int] = []
    found, sandbox = scripted(lambda c, t: True, [problem(n) for n in names], workers=7, progress=done.append)
    assert [f.problem for f in found.faults] == names and {f.kind for f in found.faults} == {"empty_passed"}
    assert sandbox.most == 7 and done == list(range(1, 41))
    again, one = scripted(lambda c, t: True, [problem(n) for n in names], workers=1)
    assert one.most == 1
    assert msgspec.structs.replace(again, seconds=0) == msgspec.structs.replace(found, seconds=0)


def test_problems_are_read_as_they_are_needed_and_errors_end_it_all() -> None:
    read: list[int] = []

    def endless() -> Iterator[Problem]:
        while True:
            read.append(1)
            if len(read) > 20:
                raise ProblemError("set.jsonl row 20: no test at all")
            yield problem(f"p{len(read)}")

    with pytest.raises(ProblemError, match="row 20"):
        scripted(truth, endless(), workers=3)
    read.clear()
    with pytest.raises(SandboxError, match="no worker"):
        scripted(lambda c, t: SandboxError("no worker"), endless(), workers=3)
    assert len(read) == 3


@pytest.mark.parametrize(
    ("reference", "prompt", "wanted"),
    [
        ("def f(a, b=print, *c, d: int = 3, **e) -> int:\n    return 1", "", "def f(a, b=None, *c, d=None, **e):"),
        ("async def f(a, /):\n    pass", "", "async def f(a, /):"),
        ("f = lambda n: n", "def f(n: 'List'):\n    'x'", "def f(n):"),
        (None, "", "def f(*args, **kwargs):"),
        ("def f(n:", "", "def f(*args, **kwargs):"),
        ("def f(a):\n  pass\ndef f(b):\n  pass", "", "def f(b):"),
    ],
)
def test_the_empty_answer_has_the_shape_of_the_reference(reference: str | None, prompt: str, wanted: str) -> None:
    code = make_empty_answer(problem("a", reference, prompt=prompt))
    assert code == f"{wanted}\n    return None\n"


def test_the_empty_class_has_the_methods_of_the_reference() -> None:
    reference = (
        "class f(Base):\n    size = 3\n    def __init__(self, n=[]):\n        self.n = n\n"
        "    @property\n    def top(self): return self.n\n    @cache\n    @staticmethod\n    def make(): return f()\n"
    )
    code = make_empty_answer(problem("a", reference))
    space: dict[str, Any] = {}
    exec(code, space)
    made = space["f"]()
    assert (made.top, made.make(), ast.parse(code).body[0].bases) == (None, None, [])  # type: ignore[attr-defined]
    assert make_empty_answer(problem("a", "class f: pass")) == "class f:\n    pass\n"
    assert make_empty_answer(problem("a", entry_point=None)) == ""
    stub = "class Solution:\n    def run(self, *args, **kwargs):\n        return None\n"
    assert make_empty_answer(problem("a", None, entry_point="Solution().run")) == stub


@pytest.mark.slow
def test_human_eval_is_sound(shared: Path) -> None:
    path = shared / "data" / "problems" / "HumanEval.jsonl.gz"
    found = real(list(load_plugin("problems", "humaneval")().load(path)))
    assert found.faults == ()
    assert (found.problems, found.references_passed, found.empty_passed) == (164, 164, 0)
    assert (found.with_public, found.public) == (150, 429) and sum(found.forms.values()) == 164
