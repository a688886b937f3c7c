"""The settings under which the snippets run, and which of them run at each."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostile.harness import Host, Snippet, violations

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
FOLDER = Path(__file__).parent / "snippets"
_TUPLES = ("forms", "endings", "tests")


def _load(kind: str) -> list[Snippet]:
    """All snippets of a kind, in the order of their files.

    To add one, put a `[[snippets]]` table with the fields of `harness.Snippet` into a file. What stands at the head of
    a file holds for all of its snippets, `uses` names code of helpers.toml that goes before its own, and each of
    `cases` (asserts) makes a snippet of which it is the only test.
    """
    helpers = tomllib.loads((FOLDER / "helpers.toml").read_text())
    found: list[Snippet] = []
    for path in sorted(FOLDER.glob("*.toml")):
        data = tomllib.loads(path.read_text())
        if data.pop("kind", "") != kind:
            continue
        entries = data.pop("snippets")
        head = ({"endings": ("ok",), "limits": {"wall_s": 3.0}} if kind == "behaved" else {}) | data
        for entry in entries:
            fields = head | entry
            fields["code"] = helpers.get(fields.pop("uses", ""), "") + fields["code"]
            for number, case in enumerate(fields.pop("cases", [""]), 1):
                own = {
                    "name": f"{fields['name']}_{number}",
                    "tests": [{"code": f"def check(candidate):\n    {case}\n"}],
                }
                made = fields | (own if case else {})
                made |= {name: tuple(made[name]) for name in _TUPLES if name in made}
                found.append(Snippet(kind=kind, **made))
    return found


ATTACKS = [snippet for kind in ("forge", "leak", "escape", "resource") for snippet in _load(kind)]
BEHAVED = _load("behaved")


def _runs(setting: str) -> list[Any]:
    """Parameters (snippet, form) of what must show no violation at a setting.

    The form `together` runs the tests in the candidate's process: see `runs_together`. In the container the guards are
    those of level 2, where all of them run: a sample shows that they are there.
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
