"""Warnings of foretrace are one plain line of the command each; those of others stay as Python writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.conftest import chat_row, write_rows
from cli.test_command import command


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An installed package that brings a source of the name of ours, and one that warns by itself."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[foretrace.source]\nchat = stranger:Chat\n")
    (tmp_path / "loud.py").write_text(
        "import warnings\nfrom foretrace.sources.chat import Chat\nwarnings.warn('mine is old')\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def test_one_plain_line_once_and_none_under_quiet(environment: dict[str, str], tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [chat_row(1)])
    asked = ["import", "chat", file, "--out", tmp_path / "t"]
    done = command(*asked, env=environment)
    said = [line for line in done.stderr.splitlines() if "ours is used" in line]
    assert done.returncode == 0 and len(said) == 1
    assert said[0].startswith("foretrace: warning: stranger brings a source 'chat', which is the name of foretrace's")
    assert "ForetraceWarning" not in done.stderr and "plugins.py" not in done.stderr
    quiet = command(*asked, "--quiet", env=environment)
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_warnings_of_others_stay(environment: dict[str, str], tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [chat_row(1)])
    done = command("import", "loud:Chat", file, "--out", tmp_path / "t", "--quiet", env=environment)
    assert done.returncode == 0 and "loud.py:3: UserWarning: mine is old" in done.stderr


def test_weak_isolation_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "weak.py").write_text(
        "from foretrace.sandbox.local import PLUGIN as Local\n"
        "import msgspec\n"
        "def Weak(settings):\n    return Local(msgspec.structs.replace(settings, level=0))\n"
    )
    asked = ["generate", "--problems", "builtin", "--limit", "1", "--protocol", "tools", "--model", "demo"]
    asked += ["--sandbox", "weak:Weak", "--allow-weak-isolation", "--out", "t", "--max-turns", "1"]
    done = command(*asked, cwd=tmp_path)
    said = [line for line in done.stderr.splitlines() if "untrusted code runs at isolation level 0" in line]
    assert done.returncode == 0 and len(said) == 1 and said[0].startswith("foretrace: warning: ")
