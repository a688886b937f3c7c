"""Memory that is copied while forking: as much as a run needs, and nothing where the system refuses."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from foretrace.sandbox.inside.server.pinned_pages import make_ring
from sandbox.boxes import Box, box_at


def _pinned(box: Box) -> list[int]:
    return [server.facts["pinned"] for server in box.sandbox._verified.pool._idle]


def test_fork_servers_pin_what_runs_change(box: Box) -> None:
    """As much as a run needs, and not all of the memory there is."""
    ring = make_ring()
    if ring < 0:
        pytest.skip("io_uring is refused here")
    os.close(ring)
    sizes = _pinned(box)
    assert sizes and all(1 << 19 < size < 4 << 20 for size in sizes), sizes


def test_where_io_uring_is_refused_nothing_is_pinned_and_code_runs(runner: asyncio.Runner, spoiled: Any) -> None:
    spoiled("confine/syscalls.py", '"io_uring_setup": 425', '"io_uring_setup": 9999')
    for box in box_at(2, runner):
        assert _pinned(box) == [0] and box.out("print(1)") == "1\n"
