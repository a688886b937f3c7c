"""The form `together`, in which tests run in the process of the answer: what passes there though it is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile.harness import Host, Snippet, violations
from hostile.settings import runs_together

KNOWN = {"stops_the_iteration"}
"""Pass: a StopIteration of the answer ends a loop of the tests, as it does in plain Python."""


@pytest.mark.parametrize(("snippet", "form"), runs_together())
def test_only_known_forgeries_pass(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
    found = violations(snippet, seen := host("L3").run(snippet, form))
    if snippet.name in KNOWN:
        found = [one for one in found if not one.startswith("forged")]
    assert not found, (found, seen)
