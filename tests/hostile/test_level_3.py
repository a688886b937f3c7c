"""Hostile and ordinary code at level 3: no violation, no false alarm, and a fork server that goes on."""

from __future__ import annotations

from collections.abc import Callable

from hostile.harness import Host
from hostile.settings import make_test

test_no_violation = make_test("L3")


def test_nothing_is_missing(host: Callable[[str], Host]) -> None:
    assert host("L3").isolation == {"level": 3, "sandbox": "local"}
