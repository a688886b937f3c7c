"""Judging from plain test functions."""

from __future__ import annotations

from typing import Protocol

from foretrace.core.problem import Test, Verdict


class Judge(Protocol):
    def __call__(
        self, code: str, *tests: str | Test, entry_point: str = "f", setup: str = "", **more: object
    ) -> Verdict: ...


def outcome(verdict: Verdict) -> list[bool]:
    return [test.passed for test in verdict.tests]


LOOP = "for x in (1, 2):\n    assert f(x) == x * 7"
