"""`foretrace view`: where the page goes, and what is said of it."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from cli.conftest import Run


def test_view_writes_a_folder_or_one_file(run: Run, traces: Path, tmp_path: Path) -> None:
    folder, single = tmp_path / "v", tmp_path / "r.html"
    done = run("view", traces, "--out", folder, "--json").json
    assert done["page"] == str(folder / "index.html") and done["left_out"] == 0
    shown = run("view", traces, "--single", single)
    assert shown.code == 0 and f"page    {single}\n" in shown.out
    assert run("view", traces, "--single", single).code == 0  # its own file may be written again


def test_open_opens_the_page(run: Run, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert run("view", traces, "--out", tmp_path / "v", "--open").code == 0
    assert opened == [(tmp_path / "v" / "index.html").as_uri()]


def test_what_view_refuses(run: Run, traces: Path, tmp_path: Path) -> None:
    both = run("view", traces, "--out", tmp_path / "v", "--single", tmp_path / "r.html")
    assert (both.code, both.err) == (2, "foretrace: --single writes one file, and --out a folder: leave one out\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    other = run("view", traces, "--out", tmp_path / "notes")
    assert other.code == 1 and "is not a page that foretrace wrote; choose another --out" in other.err
