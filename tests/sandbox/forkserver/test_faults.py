"""Bad input and bad luck, one test each: a clear result or error, a pool that serves on, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import SandboxError, UsageError
from foretrace.sandbox.base import Limits
from foretrace.sandbox.local import LocalSandbox
from sandbox.boxes import Box, box_at, marked, settings, until

pytestmark = pytest.mark.usefixtures("nothing_left")


# Bad source text


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("x = 1\ndef f(:\n  pass", "SyntaxError", 2),
        ("if True:\nx = 1", "IndentationError", 2),
        ("return 1", "SyntaxError", 1),
        ("x = 1\0", "SyntaxError", None),
        ("x = '\ud800'", "UnicodeEncodeError", None),
        ("x = " + "(" * 300 + ")" * 300, "SyntaxError", 1),
        ("x = " + "-" * 200_000 + "1", "MemoryError", None),
    ],
    ids=range(7),
)
def test_source_that_is_no_python(box: Box, code: str, kind: str, line: int | None) -> None:
    result = box.run(code)
    assert result.ending == ("memory" if kind == "MemoryError" else "error") and result.stdout == ""
    assert result.error and result.error.kind == kind and result.error.line == line, result.error
    assert kind in result.stderr and "foretrace" not in result.stderr
    assert box.out("print(1)") == "1\n"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, 1 << 50])
@pytest.mark.parametrize("name", ["wall_s", "memory_mb", "processes"])
def test_limits_without_sense_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name}=.*a limit is between 0 and"):
        Limits(**{name: value})


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
