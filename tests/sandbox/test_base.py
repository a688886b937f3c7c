"""What every sandbox of the folder keeps, for each one that can start here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from foretrace.core import plugins
from foretrace.core.errors import SandboxError
from foretrace.sandbox.base import Guard, SandboxSettings
from sandbox.boxes import Box, skip_if_refused


@pytest.fixture(scope="module", params=plugins.plugin_names("sandbox"))
def any_box(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Box]:
    sandbox = plugins.load_plugin("sandbox", request.param)(SandboxSettings(workers=1))
    try:
        isolation = runner.run(sandbox.start())
    except SandboxError as error:
        if len(str(error).splitlines()) != 1:
            pytest.fail(f"no clear line: {error}")
        if request.param == "local":
            skip_if_refused(error)
            raise
        pytest.skip(f"{request.param} cannot start here: {error}")
    yield Box(runner, sandbox, isolation.level)
    runner.run(sandbox.close())
    runner.run(sandbox.close())


@pytest.mark.parametrize("name", plugins.plugin_names("sandbox"))
def test_it_can_be_closed_before_it_was_started(runner: asyncio.Runner, name: str) -> None:
    sandbox = plugins.load_plugin("sandbox", name)()
    assert sandbox.name == name
    runner.run(sandbox.close())


def test_it_says_how_well_it_isolates(any_box: Box) -> None:
    isolation = any_box.do(any_box.sandbox.start())
    assert isolation == any_box.do(any_box.sandbox.start())
    assert isolation.sandbox and isolation.level in range(5)
    guards = any_box.do(any_box.sandbox.guards())
    assert guards and all(isinstance(g, Guard) and g.name for g in guards)
    assert len({g.name for g in guards}) == len(guards)
    assert set(isolation.missing) <= {g.name for g in guards if not g.on}
    assert any_box.run("1").isolation == isolation
