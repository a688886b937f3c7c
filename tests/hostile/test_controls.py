"""Every snippet unguarded: an attack must bite and ordinary code must work, else a pass in the sandbox says nothing."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hostile.harness import DEFAULT_BITE, Seen, Snippet, UnguardedParents, unguarded, violations
from hostile.settings import ATTACKS, BEHAVED, LINUX

pytestmark = LINUX
PLAIN = [snippet for snippet in BEHAVED if snippet.forms == ("run",) or snippet.control != "process"]


def _can_bite(snippet: Snippet) -> bool:
    if snippet.needs == "CAP_SYS_RESOURCE":
        lines = Path("/proc/self/status").read_text().splitlines()
        effective = next(line.split()[1] for line in lines if line.startswith("CapEff"))
        return bool(int(effective, 16) >> 24 & 1)
    return {"": True, "root": os.geteuid() == 0, "x86_64": platform.machine() == "x86_64"}[snippet.needs]


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest) -> Iterator[Callable[[Snippet], Seen]]:
    """What an unguarded run showed. Many sleep past a deadline, so all that are selected run ahead, four at a time."""
    chosen = [item.callspec.params["snippet"] for item in request.session.items if _is_run(item, request.path)]
    parents = UnguardedParents()
    with ThreadPoolExecutor(4) as pool:
        found = {snippet.name: pool.submit(unguarded, snippet, parents) for snippet in chosen if _can_bite(snippet)}
        yield lambda snippet: found[snippet.name].result()
        for future in found.values():
            future.cancel()
    parents.close()


def _is_run(item: pytest.Item, path: Path) -> bool:
    return item.path == path and "snippet" in getattr(getattr(item, "callspec", None), "params", {})


@pytest.mark.integration
@pytest.mark.parametrize("snippet", ATTACKS, ids=lambda s: f"{s.kind}-{s.name}")
def test_the_attack_bites_when_unguarded(seen: Callable[[Snippet], Seen], snippet: Snippet) -> None:
    if not _can_bite(snippet):
        pytest.skip(f"needs {snippet.needs}")
    found = violations(snippet, was := seen(snippet))
    bite = snippet.bites or DEFAULT_BITE[snippet.kind]
    assert any(one.startswith(tuple(bite.split("|"))) for one in found), (found, was)


@pytest.mark.integration
@pytest.mark.parametrize("snippet", PLAIN, ids=lambda s: s.name)
def test_ordinary_code_works_in_plain_python(seen: Callable[[Snippet], Seen], snippet: Snippet) -> None:
    found = violations(dataclasses.replace(snippet, endings=()), was := seen(snippet))
    assert not found, (found, was)


def test_there_are_enough_of_every_kind() -> None:
    counts = {kind: sum(s.kind == kind for s in ATTACKS + BEHAVED) for kind in (*DEFAULT_BITE, "resource", "behaved")}
    assert min(counts.values()) >= 30, counts
    assert len({snippet.name for snippet in ATTACKS + BEHAVED}) == sum(counts.values())
