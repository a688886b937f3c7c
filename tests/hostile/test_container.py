"""The same where new namespaces are refused, as in a container: the sandbox comes out at level 2 and says so."""

from __future__ import annotations

from collections.abc import Callable

from hostile.harness import Host
from hostile.settings import make_test

test_no_violation = make_test("container")


def test_it_says_what_it_lacks(host: Callable[[str], Host]) -> None:
    isolation = host("container").isolation
    assert isolation["level"] == 2
    assert "namespaces" in isolation["missing"]
