"""What the sandbox tests share: one event loop a module, a sandbox at each level, and a look at what is left behind."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.core.problem import Test, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Limits
from foretrace.sandbox.forkserver import server_process
from foretrace.sandbox.forkserver.pool import ForkServerPool
from foretrace.sandbox.forkserver.server_process import LaunchSpec
from foretrace.sandbox.judging.judge import judge
from foretrace.sandbox.judging.plan import make_judge_plan
from sandbox.boxes import QUICK, Blocks, Box, Judge, box_at, mark_fork_servers, marked, until


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


@pytest.fixture(scope="module")
def judged(runner: asyncio.Runner) -> Iterator[Judge]:
    """Judges on unguarded fork servers: what must hold here holds without any isolation."""
    pool = ForkServerPool(LaunchSpec(interpreter=sys.executable, level=0), 2, 1)

    def judged(code: str, *tests: str | Test, entry_point: str = "f", **more: Any) -> Verdict:
        cases = [Test(code=test) if isinstance(test, str) else test for test in tests]
        asked = {key: more.pop(key) for key in ("setup", "prompt", "form") if key in more}
        made = make_judge_plan(cases, entry_point=entry_point, **asked)
        verdict = runner.run(judge(pool.start_child, made, code, Limits(**more), Isolation(level=0)))
        assert tuple(test.name for test in verdict.tests) == made.names
        assert verdict.integrity in (made.form, "together")
        return verdict

    yield judged
    pool.close()


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
def spoiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A copy of the fork server's code in which one line is another."""
    source = Path(foretrace.__file__).parent
    copy = tmp_path / "src"
    for part in ("core", "sandbox"):
        shutil.copytree(source / part, copy / "foretrace" / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "__init__.py", copy / "foretrace")

    def spoil(file: str, line: str, other: str) -> None:
        path = copy / "foretrace/sandbox/inside" / file
        text = path.read_text("utf-8")
        assert text.count(line) >= 1, f"{file} has no {line!r} any more"
        path.write_text(text.replace(line, other), "utf-8")

    monkeypatch.setattr(server_process, "_ROOT", copy)
    return spoil


@pytest.fixture
def blocks(box: Box) -> Iterator[Blocks]:
    with closing(Blocks(box)) as blocks:
        yield blocks


@pytest.fixture
def brief(box: Box) -> Iterator[Blocks]:
    """A session whose blocks have little time."""
    with closing(Blocks(box, QUICK)) as blocks:
        yield blocks
