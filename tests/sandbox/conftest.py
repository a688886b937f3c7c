"""What the sandbox tests share: one event loop a module, a sandbox at each level, and a look at what is left behind."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.boxes import Blocks, Box, box_at, mark_fork_servers, marked, until


@pytest.fixture(scope="session", autouse=True)
def _marked() -> None:
    mark_fork_servers()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        runner.get_loop()
        yield runner


@pytest.fixture(scope="module", params=[3, 2], ids=["L3", "L2"])
def box(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Box]:
    """A sandbox at level 3, then one at level 2."""
    yield from box_at(request.param, runner)


@pytest.fixture(scope="module")
def jailed(runner: asyncio.Runner) -> Iterator[Box]:
    """A sandbox at level 3."""
    yield from box_at(3, runner)


@pytest.fixture(scope="module")
def unjailed(runner: asyncio.Runner) -> Iterator[Box]:
    """A sandbox at level 2."""
    yield from box_at(2, runner)


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No process beyond those of the module's own sandboxes, and no file in the folder for temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = marked()
    yield
    temporary.chmod(0o755)
    assert list(temporary.iterdir()) == []
    # A fork server that was killed in a test of a shared sandbox is replaced by one (two processes at level 3).
    assert until(lambda: len(marked() - before) <= 2), marked() - before


@pytest.fixture
def blocks(box: Box) -> Iterator[Blocks]:
    blocks = Blocks(box)
    yield blocks
    blocks.close()


@pytest.fixture
def forked(jailed: Box) -> Iterator[Blocks]:
    blocks = Blocks(jailed)
    yield blocks
    blocks.close()
