"""Which level comes out: on this machine, in a container without namespaces or Landlock, and for an ordinary user."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sandbox.boxes import Box, box_at
from sandbox.container import LANDLOCK, NAMESPACES

CONTAINER = Path(__file__).with_name("container.py")
SCRIPT = """
import asyncio, json, logging, sys, warnings
import foretrace
from foretrace.core.errors import SandboxError
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox
logs = []
class Keep(logging.Handler):
    def emit(self, record): logs.append([record.levelname, record.name, record.getMessage()])
logging.getLogger().addHandler(Keep())
settings, code, block = json.loads(sys.argv[1])
async def main():
    sandbox = LocalSandbox(SandboxSettings(**settings))
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            isolation = await sandbox.start()
    except SandboxError as error:
        return {"error": str(error), "logs": logs}
    guards = [[g.name, g.on, g.level, g.reason, g.remedy] for g in await sandbox.guards()]
    result = await sandbox.run(code)
    async with await sandbox.session() as session:
        await session.run("x = 1")
        await session.run("1/0")
        blocks = await session.run(block)
    await sandbox.close()
    return {"level": isolation.level, "missing": isolation.missing, "logs": logs, "guards": guards,
        "warnings": [str(w.message) for w in seen if issubclass(w.category, UserWarning)],
        "run": [result.ending, result.stdout, result.stderr, result.isolation.level, list(result.isolation.missing)],
        "session": [blocks.ending, blocks.stdout, blocks.mode], "from": foretrace.__file__}
print(json.dumps(asyncio.run(main())))
"""
WRITES = "import os\ntry: open('/tmp/foretrace-escape', 'w')\nexcept OSError: print('refused')\nelse: print('written')"


def try_in(command: list[str], code: str = WRITES, *, user: int | None = None, path: str = "", **settings: Any) -> Any:
    """What comes out when a sandbox with these settings is opened under `command`."""
    given = json.dumps([{"workers": 1, **settings}, code, "print(x)"])
    with tempfile.TemporaryDirectory(prefix="foretrace-test-", dir="/tmp") as folder:
        os.chmod(folder, 0o777)
        done = subprocess.run(
            [*command, "-c", SCRIPT, given],
            capture_output=True,
            text=True,
            timeout=120,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            cwd="/",
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": path or os.pathsep.join(p for p in sys.path if p),
                "TMPDIR": folder,
            },
        )
        assert os.listdir(folder) == []
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


def refusing(*names: str) -> list[str]:
    return [sys.executable, str(CONTAINER), ",".join(names), "--", sys.executable]


@pytest.fixture(scope="module", autouse=True)
def _linux() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the ladder is Linux's")


def test_a_container_without_namespaces_comes_out_at_level_2() -> None:
    found = try_in(refusing(*NAMESPACES))
    assert found["level"] == 2 and {"namespaces", "jail", "scratch"} <= set(found["missing"])
    assert found["run"] == ["ok", "refused\n", "", 2, found["missing"]]
    assert found["session"] == ["ok", "1\n", "replay"]
    assert found["warnings"] == []
    ((level, logger, text),) = found["logs"]
    assert (level, logger) == ("WARNING", "foretrace.sandbox") and "level 2" in text and "unshare" in text
    off = {name: (on, reason, remedy) for name, on, _, reason, remedy in found["guards"] if not on}
    assert set(off) == set(found["missing"]) and all(reason for _, reason, _ in off.values())


@pytest.mark.parametrize(
    "refused", ["unshare", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mount", "pivot_root", "umount2"))]
)
def test_each_refused_call_is_named(refused: str) -> None:
    found = try_in(refusing(refused), min_level=3)
    assert refused in found["error"] and "EPERM" in found["error"] and "namespaces" in found["error"]


def test_without_landlock_too_it_is_an_error_unless_allowed() -> None:
    error = try_in(refusing(*NAMESPACES, *LANDLOCK))["error"]
    assert "landlock_create_ruleset" in error and "5.13" in error and "allow_weak_isolation" in error
    found = try_in(refusing(*NAMESPACES, *LANDLOCK), "print(1)", allow_weak_isolation=True)
    assert found["level"] == 1 and {"filesystem_read", "filesystem_write", "jail"} <= set(found["missing"])
    (warning,) = found["warnings"]
    assert "level 1" in warning and "filesystem_write" in warning
    assert found["session"] == ["ok", "1\n", "replay"]


def test_without_any_of_them_level_0_needs_to_be_allowed() -> None:
    names = (*NAMESPACES, *LANDLOCK, "seccomp")
    assert "seccomp" in try_in(refusing(*names))["error"]
    found = try_in(refusing(*names), code="print(1)", allow_weak_isolation=True)
    assert found["level"] == 0 and found["run"][:2] == ["ok", "1\n"] and len(found["warnings"]) == 1


@pytest.mark.parametrize("level", [pytest.param(1, marks=pytest.mark.slow), 0])
def test_weak_levels_run_and_warn(runner: asyncio.Runner, level: int) -> None:
    with pytest.warns(UserWarning, match=f"level {level}"):  # noqa: PT031
        for box in box_at(level, runner):
            assert box.out("open('f', 'w').write('x'); import os; print(os.listdir('.'))") == "['f']\n"
            assert box.out("import os; print(os.listdir('.'))") == "[]\n"
            assert box.run("print(1)").isolation.level == level
            assert box.run("while True: pass", cpu_s=1).ending == "timeout"
            folder = Path(box.out("import os; print(os.getcwd())").strip())
            assert folder.is_dir()
            if level == 0:
                _leave_processes(box)
    assert not folder.exists()


def _leave_processes(box: Box) -> None:
    """Without a filter code can make processes: they end with its run."""
    forks = "if os.fork() == 0:\n  os.setsid(); print(os.getpid(), flush=True); os.write(w, b'x'); time.sleep(20)"
    pid = box.out(f"import os, time\nr, w = os.pipe()\n{forks}\nos.read(r, 1)").strip()
    assert pid.isdigit() and not Path("/proc", pid).exists()


@pytest.fixture(scope="module")
def readable() -> Iterator[tuple[str, str]]:
    """A Python and copies of foretrace and msgspec that every user can read."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    probe = "import sys; print('%d.%d' % sys.version_info[:2])"
    if (
        python is None
        or subprocess.run([python, "-c", probe], capture_output=True, text=True).stdout.strip() != version
    ):
        pytest.skip(f"no Python {version} that every user can read")
    with tempfile.TemporaryDirectory(prefix="foretrace-test-", dir="/tmp") as folder:
        for name in ("foretrace", "msgspec"):
            spec = find_spec(name)
            assert spec is not None and spec.origin is not None
            shutil.copytree(Path(spec.origin).parent, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield python, folder


@pytest.mark.parametrize("level", [3, 2])
def test_as_an_ordinary_user(readable: tuple[str, str], level: int) -> None:
    python, folder = readable
    found = try_in([python], user=65534, path=folder, level=level, min_level=level)
    if "error" in found and level == 3 and "unshare" in found["error"]:
        pytest.skip(found["error"])
    assert found.get("level") == level, found
    assert found["from"].startswith(folder)
    assert found["run"][:3] == ["ok", "written\n" if level == 3 else "refused\n", ""]
    assert not Path("/tmp/foretrace-escape").exists()
    assert found["session"] == ["ok", "1\n", "fork" if level == 3 else "replay"]


def test_an_ordinary_user_with_an_interpreter_that_is_not_theirs(readable: tuple[str, str], tmp_path: Path) -> None:
    python, folder = readable
    hidden = tmp_path / "python"  # pytest's folders are private to root
    hidden.symlink_to(python)
    found = try_in([python], user=65534, path=folder, interpreter=str(hidden))
    assert str(hidden) in found["error"] and len(found["error"].splitlines()) == 1
