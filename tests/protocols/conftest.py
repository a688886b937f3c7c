"""One sandbox a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocols.play import Stage, open_sandbox


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with open_sandbox(1) as opened:
        yield Stage(*opened)
