"""Hostile and ordinary code at level 3: no violation, no false alarm, and a fork server that goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile.harness import Host, Snippet
from hostile.settings import LINUX, check, runs

pytestmark = LINUX


@pytest.mark.parametrize(("snippet", "form"), runs("L3"))
def test_no_violation(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
    check(host("L3"), snippet, form)


def test_nothing_is_missing(host: Callable[[str], Host]) -> None:
    assert host("L3").isolation == {"level": 3, "sandbox": "local"}
