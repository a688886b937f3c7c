"""What `foretrace score` prints: the references of a dataset, a cascade, and differences from other predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace
from cli.conftest import Run
from dataset.little import corpus
from foretrace.api.datasets import build
from foretrace.api.evaluation import predict
from foretrace.cli.display.score import show_lines, write_difference
from foretrace.cli.output import Output
from foretrace.core.references import ScoreRow
from foretrace.core.store import write_traces


@pytest.mark.slow
def test_score_shows_the_cascade_beside_the_references(run: Run, tmp_path: Path) -> None:
    write_traces(corpus(8), tmp_path / "t")
    build(tmp_path / "t", out=tmp_path / "d", split=(0.5, 0.0, 0.5), statistical_gates=False)
    printed = str(foretrace.add_references(tmp_path / "d")).splitlines()
    assert printed[0].startswith("predictor") and any(line.startswith("markov:2 ") for line in printed)
    predict(tmp_path / "d", predictor="memory", out=tmp_path / "p.jsonl")
    report = run("score", tmp_path / "p.jsonl", tmp_path / "d", "--cascade", "0.05", "--json").json
    rows = report["cascade"]
    assert {row["predictor"] for row in rows} >= {"memory", "majority (reference)", "markov:1 (reference)"}
    assert {row["cost"]["value"] for row in rows if row["threshold"] is None} == {0.05, 0.0}
    shown = run("score", tmp_path / "p.jsonl", tmp_path / "d", "--cascade", "0.05").out
    assert "precision" in shown and "regression (reference)" in shown
    assert "cascade" not in run("score", tmp_path / "p.jsonl", tmp_path / "d").out
    without_header = (tmp_path / "p.jsonl").read_text().partition("\n")[2]
    (tmp_path / "mine.jsonl").write_text(without_header)
    report = run("score", tmp_path / "mine.jsonl", tmp_path / "d", "--cascade", "0.05", "--json").json
    assert report["cascade"][0]["predictor"] == "mine.jsonl"
    refused = run("score", tmp_path / "p.jsonl", tmp_path / "d", "--cascade", "-1")
    assert refused.code == 2 and "--cascade -1" in refused.err


def test_figures_of_one_group_or_task_have_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    one = ScoreRow(slice="natural", metric="tool", value=0.2, low=0.2, high=0.2, n=9)
    assert write_difference(one, tasks=1) == "better by 20.0 points, on one task: it may be chance"
    assert write_difference(one, tasks=2) == "better by 20.0 points [20.0, 20.0]"
    row = ScoreRow("natural", "tool", 0.5, 0.5, 0.5, 9)
    show_lines(Output(), [("memory", [row])], groups=1)
    show_lines(Output(), [("memory", [row])], groups=2)
    assert [line.split("  ")[-1].strip() for line in capsys.readouterr().out.splitlines()[1::2]] == [
        "50%",
        "50% [50, 50]",
    ]
