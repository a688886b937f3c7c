"""One loop and one sandbox a module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(runner: asyncio.Runner) -> Iterator[LocalSandbox]:
    box = LocalSandbox(SandboxSettings(workers=1))
    runner.run(box.start())
    yield box
    runner.run(box.close())
