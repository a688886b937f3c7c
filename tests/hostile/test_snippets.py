"""Hostile and ordinary code at each isolation level: no violation, no false alarm, and a fork server that goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile.harness import Host, Snippet, violations
from hostile.settings import make_test, runs_together

test_level_3 = make_test("L3")
test_level_2 = make_test("L2")
test_container = make_test("container")
test_level_1 = make_test("L1")
test_level_0 = make_test("L0")
KNOWN = {"stops_the_iteration"}
"""Forgeries that pass in the form `together`: a StopIteration of the answer ends a loop of the tests, as in Python."""


def test_at_level_3_nothing_is_missing(host: Callable[[str], Host]) -> None:
    assert host("L3").isolation == {"level": 3, "sandbox": "local"}


def test_a_container_says_what_it_lacks(host: Callable[[str], Host]) -> None:
    isolation = host("container").isolation
    assert isolation["level"] == 2 and "namespaces" in isolation["missing"]


@pytest.mark.parametrize(("snippet", "form"), runs_together())
def test_only_known_forgeries_pass_together(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
    found = violations(snippet, seen := host("L3").run(snippet, form))
    if snippet.name in KNOWN:
        found = [one for one in found if not one.startswith("forged")]
    assert not found, (found, seen)
