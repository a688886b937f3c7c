"""One sandbox a module."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from episodes.generating import Ground
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox
from protocols.play import Stage


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        sandbox = LocalSandbox(SandboxSettings(workers=1))
        yield Stage(runner, sandbox)
        runner.run(sandbox.close())


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with asyncio.Runner() as runner:
        sandbox = LocalSandbox(SandboxSettings(workers=2))
        yield Ground(runner, sandbox)
        runner.run(sandbox.close())
