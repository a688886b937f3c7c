"""What every sandbox of the folder keeps, for each one that can start here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from foretrace.core import plugins
from foretrace.core.errors import SandboxError
from foretrace.core.problem import RunResult
from foretrace.sandbox.base import Guard, Limits, SandboxSettings
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


def test_there_are_sandboxes() -> None:
    assert "local" in plugins.plugin_names("sandbox")


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


CASES: list[tuple[str, dict[str, Any]]] = [
    ("print('é')", {"ending": "ok", "stdout": "é\n", "ok": True, "exit_code": None, "error": None}),
    ("import sys; print('e', file=sys.stderr)", {"ending": "ok", "stderr": "e\n", "stdout": ""}),
    ("print(input())", {"ending": "ok", "stdout": "given\n"}),
    ("import sys; sys.exit(3)", {"ending": "exit", "exit_code": 3, "ok": False, "error": None}),
    ("import sys; sys.exit(0)", {"ending": "exit", "exit_code": 0, "ok": True}),
    ("\n1/0", {"ending": "error", "ok": False, "exit_code": None}),
    ("x = (", {"ending": "error", "ok": False}),
    ("x = bytearray(10**11)", {"ending": "memory", "ok": False}),
    ("import time; time.sleep(30)", {"ending": "timeout", "ok": False}),
    ("import os\nwhile True: os.write(1, b'x' * 65536)", {"ending": "output", "truncated": True}),
    ("import os; os.abort()", {"ending": "killed", "ok": False}),
    ("#" * (1 << 21), {"ending": "error", "ok": False}),
]


@pytest.mark.parametrize(("code", "wanted"), CASES, ids=range(len(CASES)))
def test_runs(any_box: Box, code: str, wanted: dict[str, Any]) -> None:
    result = any_box.run(code, stdin="given", wall_s=1.0, output_mb=1)
    assert {name: getattr(result, name) for name in wanted} == wanted, result
    if wanted["ending"] not in ("ok", "exit"):
        assert result.error is not None and result.error.kind and result.error.message is not None
    assert msgspec.json.decode(msgspec.json.encode(result), type=RunResult) == result
    assert any_box.out("print(1)") == "1\n"


def test_runs_share_nothing(any_box: Box) -> None:
    any_box.run("open('f', 'w').write('x')\nimport builtins; builtins.x = 1")
    assert any_box.out("import os; print(os.path.exists('f'), 'x' in dir(__builtins__))") == "False False\n"


def test_sessions(any_box: Box) -> None:
    async def use() -> None:
        session = await any_box.sandbox.session(limits=Limits(wall_s=1.0))
        assert session.head == 0 and session.mode in ("fork", "replay")
        one = await session.run("x = [1]")
        assert one.ok and one.step == session.head and one.mode == session.mode
        failed = await session.run("x.append(2); 1/0")
        assert failed.ending == "error" and failed.step is None and session.head == one.step
        assert (await session.run("print(x)")).stdout == "[1]\n"
        await session.run("x.append(3)")
        assert (await session.run("print(x)", at=one.step)).stdout == "[1]\n"
        with pytest.raises(SandboxError, match="no state"):
            await session.run("x", at=999)
        await session.close()
        await session.close()
        with pytest.raises(SandboxError, match="closed"):
            await session.run("x")

    any_box.do(use())
