"""The form `together`, in which tests run in the process of the answer: what passes there though it is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile.harness import Host, Snippet, violations
from hostile.settings import ATTACKS, LINUX

pytestmark = LINUX

KNOWN = {"stops_the_iteration"}
"""Pass: a StopIteration of the answer ends a loop of the tests, as it does in plain Python."""
CALLS = [snippet for snippet in ATTACKS if snippet.kind == "forge" and snippet.forms != ("program",)]


@pytest.mark.parametrize("snippet", CALLS, ids=lambda s: s.name)
def test_only_known_forgeries_pass(host: Callable[[str], Host], snippet: Snippet) -> None:
    found = violations(snippet, seen := host("L3").run(snippet, "together"))
    if snippet.name in KNOWN:
        found = [one for one in found if not one.startswith("forged")]
    assert not found, (found, seen)
