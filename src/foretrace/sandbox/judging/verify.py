"""Decides from the records of `inside.recorder` which asserts hold; this process has the constants."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from msgspec.structs import replace

from foretrace.core.problem import RunError, TestResult
from foretrace.sandbox.forkserver.run_result import read_error
from foretrace.sandbox.inside.recorder import NAMES
from foretrace.sandbox.inside.values import decode, show_value
from foretrace.sandbox.judging.plan import JudgePlan
from foretrace.sandbox.judging.rewrite import Check

NOT_RUN = "not run"
_MAX_BITS = 1 << 14
_MAX_ITEMS = 1 << 20
_WIDTH = re.compile(r"[*\d]")
"""The parts of a format that determine how long its result may become."""
_NUMBERS = (int, float, complex, bool, Decimal, Fraction)


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that takes bounded time, whatever values an answer has returned."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        for value in args:
            if isinstance(value, Fraction):
                value = value.numerator * value.denominator
            if isinstance(value, int) and value.bit_length() > _MAX_BITS:
                raise ValueError("a number is too large to compute with")
            if _is_long_range(value):
                raise ValueError("a range is too long to be looked through")
        numbers = [isinstance(value, _NUMBERS) for value in args]
        if not all(numbers) and function.__name__ in ("mul", "mod"):
            widths = function.__name__ == "mod" and _WIDTH.search(str(args[0]))
            sizes = [value if number else len(value) for value, number in zip(args, numbers, strict=True)]
            if widths or (function.__name__ == "mul" and sizes[0] * sizes[1] > _MAX_ITEMS):
                raise ValueError("texts and lists are not computed with")
        return function(*args)

    return call


_BOUNDED = {name: _bound(NAMES[name]) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "same_items")}


def evaluate(check: Check, expression: str, leaves: Sequence[Any]) -> Any:
    """The value of an expression of a check for plain leaves; ValueError if it would take too long."""
    if check.kinds & {"In", "NotIn"}:
        given = (*leaves, *check.constants)
        # only integers are found in a range without iterating over it
        if any(_is_long_range(value) for value in given) and not all(isinstance(v, (int, range)) for v in given):
            raise ValueError("a range is too long to be looked through")
    names = {f"t{n}": leaf for n, leaf in enumerate(leaves)} | {f"c{n}": c for n, c in enumerate(check.constants)}
    return eval(_compile(expression), {**NAMES, **_BOUNDED, "__builtins__": {}}, names)


def _is_long_range(value: Any) -> bool:
    return isinstance(value, range) and (value.stop - value.start) // value.step > _MAX_ITEMS


@functools.lru_cache(maxsize=4096)
def _compile(expression: str) -> Any:
    return compile(expression, "skeleton", "eval")


def refuse(error: str) -> TestResult:
    """A result that has no name yet."""
    return TestResult(name="", passed=False, error=error)


_PASSED = TestResult(name="", passed=True)
_DENIED = refuse("the assert does not hold: an object of the code decided it (its `==`, `in`, `<` or truth)")
_NOT_BELIEVED = refuse("not believed: an object of the code also says that the assert holds with wrong values")
NO_DECOYS = "not decided: an object of the code is compared with a value in whose place no other can be tried"
_UNDECIDED = refuse(NO_DECOYS)
"""An object decides it, which must be asked again with decoys."""
_MALFORMED = refuse("the process broke the protocol")


def judge_values(check: Check, leaves: Sequence[Any], *, extended: bool = False) -> TestResult:
    """Whether an assert holds for plain leaves."""
    actual = expected = error = None
    try:
        holds = bool(evaluate(check, check.skeleton, leaves))
    except Exception as raised:
        holds, error = False, f"{type(raised).__name__}: {raised}"[:500]
    if extended and "is" in check.kinds:
        holds = "is not" in check.skeleton
    if check.sides:
        with contextlib.suppress(Exception):
            actual, expected = (show_value(evaluate(check, side, leaves)) for side in check.sides)
    elif "is" in check.kinds or check.skeleton in ("t0", "(not t0)"):
        actual = show_value(leaves[0])
    error = None if holds else error
    return TestResult(name="", passed=holds, actual=actual, expected=expected, error=error)


def judge_record(check: Check, record: list[Any], place: int | None) -> TestResult:
    """What one record says about its check; `place` is the index of the true constants in a line-up."""
    match record[1:]:
        case ["v", [*leaves], bool(extended)] if len(leaves) == len(check.leaves):
            try:
                values = [decode(leaf) for leaf in leaves]
            except ValueError:
                return _MALFORMED
            made = judge_values(check, values, extended=extended)
            return _UNDECIDED if extended and not made.passed and check.hides else made
        case ["n", bool(holds), *sides] if len(sides) in (0, 2):
            actual, expected = (str(side)[:500] for side in sides) if sides else (None, None)
            return TestResult(name="", passed=holds, actual=actual, expected=expected)
        case ["e", error]:
            described = read_error(error)
            return refuse(format_error(described) if described else "an exception")
        case ["l", None]:
            return _UNDECIDED
        case ["l", [*answers]] if place is not None and place < len(answers):
            return _judge_line_up(check, answers, place)
        case ["b", said, [*others]]:
            if said is not True:
                return _DENIED
            if len(others) > 1 and check.claims_sameness and all(other is True for other in others):
                return _NOT_BELIEVED
            if len(check.leaves) == 2 and not check.claims_sameness and others[-2:].count(True) and check.is_strict:
                return _NOT_BELIEVED
            return _PASSED
        case _:
            return _MALFORMED


def _judge_line_up(check: Check, answers: list[Any], place: int) -> TestResult:
    others = [answer for number, answer in enumerate(answers) if number != place]
    alike = sum(other is True for other in others)
    if answers[place] is not True:
        return _DENIED
    exact = check.kinds - {"arithmetic"} == {"Eq"} and not re.search("mul|mod|floordiv", check.skeleton)
    has_members = "In" in check.kinds  # other constants may also be members, but not all of them
    if check.claims_sameness and not has_members and (alike > len(others) / 2 or (alike and exact)):
        return _NOT_BELIEVED
    if (has_members or check.kinds & {"Lt", "LtE", "Gt", "GtE"}) and alike == len(others):
        return _NOT_BELIEVED
    return _PASSED


class TestReport:
    """The results of the tests, in the order of a plan. `places`: by check, the index of the true constants in its
    line-up."""

    __test__ = False

    def __init__(self, plan: JudgePlan, places: Mapping[int, int]) -> None:
        self._checks, self._tests = plan.code.checks, plan.code.tests
        self._names, self._places = plan.names, places
        self._results: list[TestResult | None] = [None] * len(plan.names)
        self._seconds: dict[int, float] = {}
        self.unsure: set[int] = set()
        """Checks that must be repeated with decoys."""
        self.same_for_others = False
        self.failed: str | None = None
        """Why all tests fail, whatever was reported."""
        self.why = NOT_RUN
        """Why tests without a report fail."""
        self.needs_objects: str | None = None
        """Why the tests have to be run in one process with the answer."""

    def take(self, number: Any, records: Any, failures: Any, seconds: float, *, answer_gone: bool = False) -> bool:
        """Add the records of one test and the errors that it raised; false if they are invalid. The answer's process
        may have `gone` before its end."""
        if type(number) is not int or not 0 <= number < len(self._tests) or not isinstance(records, list):
            return False
        if not isinstance(failures, list):
            return False
        seen: set[int] = set()
        for record in records:
            if not isinstance(record, list) or len(record) < 2 or type(record[0]) is not int:
                return False
            if record[1] == "f":
                if 0 <= record[0] < len(self._results):
                    self._fail(record[0], refuse("AssertionError"))
                continue
            if not 0 <= record[0] < len(self._checks):
                return False
            seen.add(record[0])
            self._take_check(record[0], record)
        results = self._tests[number]
        for n, check in enumerate(self._checks):
            if check.result in results and check.required and n not in seen and not failures:
                self._fail(check.result, refuse("not reached"))
        if answer_gone:
            # What has no result fails for the reason that ended the process. It may have ended in a loop, after each
            # assert had held once.
            if all(one is not None and one.passed for one in map(self._results.__getitem__, results)):
                self._results[results[-1]] = None
            return True
        reached = {self._checks[n].result for n in seen}
        for failure in failures:
            self._finish(self._find_results(failure, results), failure, reached)
        self._finish(results, failures[0] if failures else None, reached)
        for result in results:
            self._seconds[result] = seconds
        return True

    def _take_check(self, n: int, record: list[Any]) -> None:
        made = judge_record(self._checks[n], record, self._places.get(n))
        self.same_for_others |= made is _NOT_BELIEVED
        if made is _UNDECIDED and n not in self._places:
            self.unsure.add(n)
            return
        result, path = self._checks[n].result, self._checks[n].path
        if not made.passed:
            if self._checks[n].is_method:
                wanted = f", expected {made.expected}" if made.expected is not None else ""
                said = made.error or ("fails" if made.actual is None else f"got {made.actual}{wanted}")
                made = replace(made, error=f"in {path}: {said}"[:500])
            self._fail(result, made)
        elif self._results[result] is None:
            self._results[result] = made

    def _fail(self, result: int, made: TestResult) -> None:
        before = self._results[result]
        if before is None or before.passed:
            self._results[result] = made

    def _find_results(self, failure: Any, results: list[int]) -> list[int]:
        """The results of the function or class that raised this error; all of them if it was none."""
        test = failure.get("test") if isinstance(failure, dict) else None
        if not isinstance(test, str):
            return results
        inside = f".{test}."
        found = {check.result for check in self._checks if inside in f".{check.path}."}
        return [result for result in results if result in found] or results

    def _finish(self, results: list[int], failure: Any, seen: set[int]) -> None:
        """Decide what has no result yet, and fail the last of the results if they include no failed one in spite of a
        `failure`."""
        error = read_error(failure)
        text = (format_error(error) if error else "it failed") if failure is not None else None
        unreached = text if text is None or len(results) == 1 else f"not reached: {text}"[:500]
        for result in results:
            if self._results[result] is None:  # if it was seen, it is unsure: the next run decides
                self._results[result] = _PASSED if result in seen or unreached is None else refuse(unreached)
        made = [self._results[result] for result in results]
        if text is not None and all(one is not None and one.passed for one in made):
            self._results[results[-1]] = replace(refuse(text), actual=made[-1].actual if made[-1] else None)

    def results(self) -> list[TestResult]:
        """All results."""
        made: list[TestResult] = []
        for number, (name, judged) in enumerate(zip(self._names, self._results, strict=True)):
            if judged is None or self.failed is not None:
                made.append(replace(refuse(self.why if self.failed is None else self.failed), name=name))
            else:
                made.append(replace(judged, name=name, seconds=self._seconds.get(number)))
        return made


def format_error(error: RunError) -> str:
    return f"{error.kind}: {error.message}"[:500] if error.message else error.kind
