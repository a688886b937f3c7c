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


@pytest.mark.parametrize(("snippet", "form"), runs_together())
def test_only_known_forgeries_pass_together(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
    found = violations(snippet, seen := host("L3").run(snippet, form))
    if snippet.name in KNOWN:
        found = [one for one in found if not one.startswith("forged")]
    assert not found, (found, seen)
