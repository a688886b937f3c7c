"""The same where new namespaces are refused, as in a container: the sandbox comes out at level 2 and says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile.harness import Host, Snippet
from hostile.settings import LINUX, check, runs

pytestmark = LINUX


@pytest.mark.parametrize(("snippet", "form"), runs("container"))
def test_no_violation(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
    check(host("container"), snippet, form)


def test_it_says_what_it_lacks(host: Callable[[str], Host]) -> None:
    isolation = host("container").isolation
    assert isolation["level"] == 2
    assert "namespaces" in isolation["missing"]
