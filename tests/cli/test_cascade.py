"""The reference predictors of a dataset, as tables, and `foretrace score --cascade` beside them."""

from __future__ import annotations

from pathlib import Path

import foretrace
from cli.conftest import Run
from dataset.little import corpus
from foretrace.api.datasets import build
from foretrace.api.evaluation import predict
from foretrace.core.store import write_traces


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
    refused = run("score", tmp_path / "p.jsonl", tmp_path / "d", "--cascade", "-1")
    assert refused.code == 2 and "--cascade -1" in refused.err
