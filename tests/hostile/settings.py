"""The settings under which the snippets run, and which of them run at each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hostile.harness import Host, Snippet, violations
from hostile.load import load

_WEAK = {"allow_weak_isolation": True, "min_level": 0}
SETTINGS = {
    "L3": {"level": 3, "min_level": 3},
    "L2": {"level": 2},
    "container": {"refuse": True},
    "L1": {"level": 1, **_WEAK},
    "L0": {"level": 0, **_WEAK},
}
"""`container`: no user namespaces, and the level left to the sandbox. L0 and L1 promise only verdicts."""
IN_MAKE_TEST = {"L3": 3, "L2": 8, "container": 3, "L1": 8, "L0": 8, "together": 4}
"""Of how many runs one is not a slow test."""
ATTACKS = [snippet for kind in ("forge", "leak", "escape", "resource") for snippet in load(kind)]
BEHAVED = load("behaved")


def _runs(setting: str) -> list[Any]:
    """Parameters (snippet, form) of what must show no violation at a setting.

    The form `together` runs the tests in the candidate's process: test_together.py says what can be forged there.
    In the container the guards are those of level 2, where all of them run: a sample shows that they are there.
    """
    weak = "allow_weak_isolation" in SETTINGS[setting]
    found = [
        (snippet, form)
        for snippet in ATTACKS + BEHAVED
        for form in snippet.forms
        if not (snippet.kind == "forge" and form == "together") and (snippet.kind == "forge" or not weak)
    ]
    return _sample(setting, found[::5] if setting == "container" else found)


def runs_together() -> list[Any]:
    """Forgeries, each in the form `together`."""
    forging = [snippet for snippet in ATTACKS if snippet.kind == "forge" and snippet.forms != ("program",)]
    return _sample("together", [(snippet, "together") for snippet in forging])


def _sample(setting: str, found: list[tuple[Snippet, str]]) -> list[Any]:
    return [
        pytest.param(
            *(snippet, form),
            id=f"{snippet.kind}-{snippet.name}-{form}",
            marks=pytest.mark.slow if number % IN_MAKE_TEST[setting] else (),
        )
        for number, (snippet, form) in enumerate(found)
    ]


def check(host: Host, snippet: Snippet, form: str) -> None:
    """Run it guarded, and fail on any violation.

    A machine that has much else to do may be late now and then, what was left alive each time: where there is nothing
    else, it is run again, twice at most.
    """
    for _ in range(3):
        seen = host.run(snippet, form)
        found = violations(snippet, seen, slack_s=5.0)
        if not found or not all(each.startswith(("late: ", "left: ")) for each in found):
            break
    assert not found, (found, seen.ending, seen.everything[:1500])


def make_test(setting: str) -> Any:
    """The test that nothing which is run at a setting shows a violation."""

    @pytest.mark.parametrize(("snippet", "form"), _runs(setting))
    def test(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
        check(host(setting), snippet, form)

    return test
