"""The sandboxes of the folder, and an ordered list of them: who serves, and what is said of those that do not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from foretrace.core import plugins
from foretrace.core.errors import SandboxError, Setting, UsageError
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.docker import DockerSandbox
from foretrace.sandbox.fallback import FallbackSandbox
from foretrace.sandbox.local import LocalSandbox

ONE = SandboxSettings(workers=1, min_level=0, allow_weak_isolation=True)


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def both() -> FallbackSandbox:
    return FallbackSandbox([("docker", DockerSandbox(ONE)), ("local", LocalSandbox(ONE))])


def test_the_first_that_starts_serves_and_results_say_why_not_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with both() as sandbox:
            isolation = await sandbox.start()
            assert (isolation.sandbox, sandbox.name) == ("local", "local")
            assert list(isolation.refused) == ["docker"]
            assert "no container engine here" in isolation.refused["docker"]
            assert (await sandbox.run("print(1)")).isolation == isolation
            assert (await sandbox.guards())[0].on
            async with await sandbox.session() as session:
                block = await session.run("a = 1")
                assert (block.isolation.level, block.step, session.head) == (isolation.level, 1, 1)
                assert session.mode == block.mode

    with caplog.at_level(logging.WARNING, "foretrace.sandbox"):
        asyncio.run(run())
    assert any("local serves, and not docker: no container" in record.getMessage() for record in caplog.records)


def test_all_refuse() -> None:
    missing = SandboxSettings(workers=1, interpreter="/no/such/python")
    sandbox = FallbackSandbox([("docker", DockerSandbox(ONE)), ("mine", LocalSandbox(missing))])
    with pytest.raises(SandboxError) as found:
        asyncio.run(sandbox.start())
    message = str(found.value)
    assert message.startswith("no sandbox serves: docker: no container engine here")
    assert "; mine: no interpreter at /no/such/python" in message
    assert "\n" not in message
    assert Setting("sandbox", "local") in found.value.parts


def test_a_wrong_setting_is_no_reason_to_go_on() -> None:
    wrong = SandboxSettings(min_level=0)
    sandbox = FallbackSandbox([("docker", DockerSandbox(wrong)), ("local", LocalSandbox(ONE))])
    with pytest.raises(UsageError, match="allow_weak_isolation"):
        asyncio.run(sandbox.start())


@pytest.mark.parametrize("name", plugins.plugin_names("sandbox"))
def test_a_sandbox_can_be_closed_before_it_was_started_and_twice(name: str) -> None:
    async def run() -> None:
        sandbox = plugins.load_plugin("sandbox", name)(ONE)
        assert sandbox.name == name
        await sandbox.close()
        with pytest.raises(SandboxError) if name == "docker" else contextlib.nullcontext():
            isolation = await sandbox.start()
            assert isolation == await sandbox.start() and isolation.sandbox == name
        await sandbox.close()
        await sandbox.close()

    asyncio.run(run())


def test_an_empty_list() -> None:
    with pytest.raises(UsageError, match="no sandbox is named"):
        FallbackSandbox([])
