"""Hostile and ordinary code at each isolation level: no violation, no false alarm, and a fork server that goes on."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile.harness import SETTINGS, Host, Snippet, violations

IN_MAKE_TEST = {"L3": 3, "L2": 8, "container": 3, "L1": 8, "L0": 8, "together": 4}
"""Of how many runs one is not a slow test."""
FOLDER = Path(__file__).parent / "snippets"
_TUPLES = ("forms", "endings", "tests")
KNOWN = {"stops_the_iteration"}
"""Forgeries that pass in the form `together`: a StopIteration of the answer ends a loop of the tests, as in Python."""


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


def runs() -> Iterator[Any]:
    """Parameters: the setting, the snippet and the form, of what must show no violation.

    Forgeries in the form `together`, where the tests run in the candidate's process, are a setting of their own. In the
    container the guards are those of level 2, where all of them run: a sample shows that they are there.
    """
    found: dict[str, list[tuple[Snippet, str]]] = {
        setting: [
            (snippet, form)
            for snippet in ATTACKS + BEHAVED
            for form in snippet.forms
            if not (snippet.kind == "forge" and form == "together")
            and (snippet.kind == "forge" or "allow_weak_isolation" not in settings)
        ]
        for setting, settings in SETTINGS.items()
    }
    found["container"] = found["container"][::5]
    forging = [snippet for snippet in ATTACKS if snippet.kind == "forge" and snippet.forms != ("program",)]
    found["together"] = [(snippet, "together") for snippet in forging]
    for setting, cases in found.items():
        for number, (snippet, form) in enumerate(cases):
            marks = pytest.mark.slow if number % IN_MAKE_TEST[setting] else ()
            name = f"{setting}-{snippet.kind}-{snippet.name}-{form}"
            yield pytest.param(setting, snippet, form, id=name, marks=marks)


@pytest.mark.parametrize(("setting", "snippet", "form"), list(runs()))
def test_it_shows_no_violation(host: Callable[[str], Host], setting: str, snippet: Snippet, form: str) -> None:
    """A machine that has much else to do may be late now and then, what was left alive each time: where there is
    nothing else, it is run again, twice at most."""
    for _ in range(3):
        seen = host("L3" if setting == "together" else setting).run(snippet, form)
        found = violations(snippet, seen, slack_s=5.0)
        if setting == "together" and snippet.name in KNOWN:
            found = [one for one in found if not one.startswith("forged")]
        if not found or not all(each.startswith(("late: ", "left: ")) for each in found):
            break
    assert not found, (found, seen.ending, seen.everything[:1500])
