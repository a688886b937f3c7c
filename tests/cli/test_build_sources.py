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


def test_each_source_has_its_limit(run: Run) -> None:
    sources = (f"swe_smith:mine={FILES['swe_smith:tool']}", f"chat={FILES['chat']}")
    done = run("build", *sources, "--limit", 2, "--limit", "swe_smith:mine=3", "--limit", "chat=1", *BUILD, "--json")
    assert [each["rows"] for each in done.json["imported"]] == [3, 1]
    splits = {trace.provenance.source: trace.provenance.split for trace in read_traces("d-traces")}
    assert splits["swe_smith"] == "mine"


def test_import_takes_the_same_name(run: Run) -> None:
    for number, words in enumerate(
        [(f"swe_smith:mine={FILES['swe_smith:tool']}",), ("swe_smith:mine", FILES["swe_smith:tool"])]
    ):
        assert run("import", *words, "--out", f"t{number}").code == 0
    one, other = ([trace.key for trace in read_traces(f"t{number}")] for number in (0, 1))
    assert one == other and all("/mine" in key for key in one)


def test_unknown_outcomes_that_are_left_out_come_with_the_option_that_takes_them(run: Run, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{**chat_row(0), "resolved": True}, *map(chat_row, range(1, 4))])
    more = ("--out", "d", "--no-statistical-gates", "--recipes", "trajectories", "--split", "1/0/0")
    done = run("build", f"chat={rows}", *more)
    assert "3 of 4 attempts do not say whether they succeeded" in done.err and "outcomes=not_failed" in done.err
    assert "traces_unknown: 3" in done.out and "traces_in_two_inputs" not in done.out
    assert "do not say" not in run("build", f"chat={rows}", *more, "--outcomes", "not_failed").err


@pytest.mark.parametrize(
    ("limit", "told"),
    [("0", "write N or SOURCE=N"), ("x", "write N or SOURCE=N"), ("toolbench=3", "the sources here are chat")],
)
def test_a_limit_that_cannot_be_served(run: Run, limit: str, told: str) -> None:
    done = run("build", f"chat={FILES['chat']}", "--limit", limit, *BUILD)
    assert done.code == 2 and f"--limit {limit}" in done.err and told in done.err
    assert not Path("d-traces").exists()
