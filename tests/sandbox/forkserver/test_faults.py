"""Bad input and bad luck, one test each: a clear result or error, a pool that serves on, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import SandboxError, UsageError
from foretrace.sandbox.local import LocalSandbox
from sandbox.boxes import Box, box_at, marked, settings, start_sleeping, until
from timing import AT_ONCE_S

pytestmark = pytest.mark.usefixtures("nothing_left")


# Bad source text


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("x = 1\ndef f(:\n  pass", "SyntaxError", 2),
        ("if True:\nx = 1", "IndentationError", 2),
        ("if True:\n\tx = 1\n        y = 2", "TabError", 3),
        ("return 1", "SyntaxError", 1),
        ("x = 1\0", "SyntaxError", None),
        ("x = '\ud800'", "UnicodeEncodeError", None),
        ("x = " + "(" * 300 + ")" * 300, "SyntaxError", 1),
        ("x = " + "-" * 200_000 + "1", "MemoryError", None),
        ("print('\x1b[31m')\n\x07", "SyntaxError", 2),
        ("int('" + "1" * 5000 + "')\nx = " + "1" * 5000, "SyntaxError", 2),
    ],
    ids=range(10),
)
def test_source_that_is_no_python(box: Box, code: str, kind: str, line: int | None) -> None:
    result = box.run(code)
    assert result.ending == ("memory" if kind == "MemoryError" else "error") and result.stdout == ""
    assert result.error and result.error.kind == kind and result.error.line == line, result.error
    assert kind in result.stderr and "foretrace" not in result.stderr
    assert box.out("print(1)") == "1\n"


def test_empty_source(box: Box) -> None:
    for code in ("", "\n", "# nothing", "\\\n"):
        result = box.run(code)
        assert result.ending in ("ok", "error") and result.stdout == ""


def test_a_coding_cookie_changes_nothing(box: Box) -> None:
    for cookie in ("latin-1", "utf-16", "no-such-coding"):
        assert box.out(f"# -*- coding: {cookie} -*-\nprint('é')") == "é\n"


def test_a_byte_order_mark(box: Box) -> None:
    # A file that begins with one runs; so does its text, or it is a plain syntax error.
    result = box.run("\ufeffprint(1)")
    assert result.stdout == "1\n" or (result.error and result.error.kind == "SyntaxError" and result.error.line == 1)


def test_line_ends_of_other_systems(box: Box) -> None:
    assert box.out("x = 1\r\nif x:\r\n    print(x)\r\n") == "1\n"
    assert box.out("x = 1\rprint(x)\r") == "1\n"


def test_a_huge_source_is_refused(box: Box) -> None:
    result = box.run("x = 1\n" + "#" * 2_000_000)
    assert result.ending == "error" and result.error and result.error.kind == "SourceTooLarge"
    assert "2,000,006" in result.error.message and "1,048,576" in result.error.message


def test_a_large_source_runs(box: Box) -> None:
    code = "x = [\n" + "    0x1234,\n" * 75_000 + "]\nprint(len(x))\n"
    assert 800_000 < len(code) < 1_000_000
    assert box.run(code, wall_s=20, cpu_s=15).stdout == "75000\n"
    wide = "x = '" + "\U0001f40d" * 450_000 + "'\nprint(len(x))"
    assert box.out(wide) == "450000\n"


@pytest.mark.parametrize(
    "limits",
    [
        {"wall_s": float("inf")},
        {"wall_s": float("nan")},
        {"wall_s": 1e12},
        {"wall_s": -1.0},
        {"cpu_s": float("inf")},
        {"memory_mb": 1 << 50},
        {"memory_mb": -1},
        {"scratch_mb": -1},
        {"stdout_kb": -1},
        {"processes": 1 << 70},
    ],
    ids=str,
)
def test_limits_without_sense(jailed: Box, limits: dict[str, Any]) -> None:
    """They are refused in one line, or serve; neither a crash nor a lost fork server."""
    try:
        result = jailed.run("print(1)", **limits)
    except (UsageError, SandboxError, ValueError) as error:
        if len(str(error).splitlines()) != 1 or next(iter(limits)) not in str(error):
            pytest.fail(f"no clear line: {error}")
        return
    assert result.ending in ("ok", "timeout", "memory"), result


@pytest.mark.parametrize("memory_mb", [0, 1, 8, 16])
def test_too_little_memory_to_run_at_all(box: Box, memory_mb: int) -> None:
    result = box.run("x = bytearray(1 << 24)", memory_mb=memory_mb)
    assert result.ending == "memory", result
    assert box.out("print(1)") == "1\n"


# Full disks


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(9): open(str(i), 'wb').write(b'x' * 2**22)",
        "for i in range(9999): open(str(i), 'w').close()",
        "for i in range(9999): os.mkdir(str(i))",
        "for i in range(9999): os.symlink('x' * 4000, str(i))",
        "f = open('f', 'wb')\nos.posix_fallocate(f.fileno(), 0, 2**23)\ng = open('g', 'wb')\n"
        "os.posix_fallocate(g.fileno(), 0, 2**23)\nopen('h', 'w').write('x' * 9999)",
    ],
)
def test_a_full_scratch_folder(jailed: Box, code: str) -> None:
    result = jailed.run(f"import os\n{code}")
    assert result.ending == "error" and result.error and result.error.kind == "OSError"
    assert "No space left" in result.error.message
    assert jailed.out("import os; open('f', 'wb').write(b'x' * 2**22); print(os.listdir('.'))") == "['f']\n"


def test_a_file_that_grows_too_large(jailed: Box) -> None:
    result = jailed.run("open('f', 'wb').write(b'x' * (9 << 20))")
    assert result.ending == "error" and result.error and "File too large" in result.error.message


def test_no_folder_for_temporary_files(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The self-test needs one on the host: without it there is one clear error, or a start that did without."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    before = marked()
    for level in (3, 0):
        sandbox = LocalSandbox(settings(level))
        with pytest.raises(SandboxError, match="temporary"):
            runner.run(sandbox.start())
        runner.run(sandbox.close())
    assert until(lambda: marked() <= before), marked() - before


# Interpreters


def start_error(runner: asyncio.Runner, **changes: Any) -> str:
    before = marked()
    sandbox = LocalSandbox(settings(**changes))
    with pytest.raises(SandboxError) as caught:
        runner.run(sandbox.start())
    runner.run(sandbox.close())
    assert until(lambda: marked() <= before)
    text = str(caught.value)
    assert len(text.splitlines()) == 1 and len(text) < 500, text
    return text


def test_a_missing_interpreter(runner: asyncio.Runner, tmp_path: Path) -> None:
    text = start_error(runner, interpreter=str(tmp_path / "python"))
    assert str(tmp_path / "python") in text and "3.11" in text


def test_what_is_no_interpreter(runner: asyncio.Runner, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("hello")
    assert str(data) in start_error(runner, interpreter=str(data))
    data.chmod(0o755)
    assert str(data) in start_error(runner, interpreter=str(data))
    assert str(tmp_path) in start_error(runner, interpreter=str(tmp_path))
    assert "/bin/true" in start_error(runner, interpreter="/bin/true")
    quits = tmp_path / "quits"
    quits.write_text("#!/bin/sh\necho 'it is broken' >&2\nexit 3\n")
    quits.chmod(0o755)
    text = start_error(runner, interpreter=str(quits))
    assert "it is broken" in text and str(quits) in text


def test_an_interpreter_that_dies_later(runner: asyncio.Runner, tmp_path: Path) -> None:
    async def lose(sandbox: Any) -> None:
        assert (await sandbox.run("print(1)")).stdout == "1\n"
        link.unlink()
        run = await start_sleeping(sandbox)
        for pid in sorted(marked() - others):  # the fork server before its child
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert (await run).ending == "lost"
        for _ in range(3):
            with pytest.raises(SandboxError, match="interpreter"):
                await asyncio.wait_for(sandbox.run("print(1)"), AT_ONCE_S)
        link.symlink_to(sys.executable)
        assert (await sandbox.run("print(2)")).stdout == "2\n"

    link, others = tmp_path / "python", marked()
    link.symlink_to(sys.executable)
    for box in box_at(3, runner, interpreter=str(link)):
        box.do(lose(box.sandbox))


def test_an_unknown_preload(runner: asyncio.Runner) -> None:
    text = start_error(runner, preload="no_such_module_at_all")
    assert "no_such_module_at_all" in text and "install" in text
    with pytest.raises(UsageError, match="preload"):
        LocalSandbox(settings(preload="os; print(1)"))


@pytest.fixture
def home() -> Iterator[Path]:
    """A private folder, below one that all may enter."""
    with tempfile.TemporaryDirectory(prefix="foretrace-test-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        private = Path(folder, "home")
        private.mkdir(mode=0o700)
        yield private


@pytest.mark.parametrize("level", [3, 2])
def test_an_interpreter_in_a_private_home(runner: asyncio.Runner, home: Path, level: int) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", home / "venv"], check=True)
    python = home / "venv/bin/python"
    assert not python.is_symlink() and home.stat().st_mode & 0o77 == 0
    for box in box_at(level, runner, interpreter=str(python)):
        assert box.out("import sys, json, decimal; print(sys.version)") == sys.version + "\n"
        assert box.run("import os; os.listdir('/tmp/' + os.listdir('/tmp')[0] + '/home/venv')").ending == "error"
