"""`foretrace build` of sources: a file, a split and a limit of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Run, chat_row, write_rows
from foretrace.core.store import read_traces
from foretrace.samples import sample_files

FILES = sample_files()
BUILD = ("--out", "d", "--outcomes", "all", "--no-statistical-gates", "--recipes", "trajectories")


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_sources_are_imported_with_their_files_splits_and_limit(run: Run) -> None:
    sources = (f"swe_smith:mine={FILES['swe_smith:tool']}", f"chat={FILES['chat']}")
    done = run("build", *sources, "--limit", 2, *BUILD, "--json")
    assert [each["rows"] for each in done.json["imported"]] == [2, 2]
    splits = {trace.provenance.source: trace.provenance.split for trace in read_traces("d-traces")}
    assert splits["swe_smith"] == "mine"


def test_unknown_outcomes_that_are_left_out_come_with_the_option_that_takes_them(run: Run, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{**chat_row(0), "resolved": True}, *map(chat_row, range(1, 4))])
    more = ("--out", "d", "--no-statistical-gates", "--recipes", "trajectories", "--split", "1/0/0")
    done = run("build", f"chat={rows}", *more)
    assert "3 of 4 attempts do not say whether they succeeded" in done.err and "outcomes=not_failed" in done.err
    assert "traces_unknown: 3" in done.out and "traces_in_two_inputs" not in done.out
    assert "do not say" not in run("build", f"chat={rows}", *more, "--outcomes", "not_failed").err
