"""`foretrace verify` on the command line; what it asks and writes is tested in tests/evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Run, write_rows
from dataset.little import rows


def predict(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": row["key"], "step": row["step"], "completion": row["completion"][0]["content"], **more}


@pytest.fixture
def predictions(sample_dataset: Path, tmp_path: Path) -> Path:
    return write_rows(tmp_path / "p.jsonl", [predict(row) for row in rows(sample_dataset, "eval")])


@pytest.fixture
def judge(tmp_path: Path) -> str:
    script = tmp_path / "judge.jsonl"
    script.write_text('{"turns": ["yes"], "repeat": true}\n')
    return f"scripted:{script}"


def test_verify_then_score(run: Run, sample_dataset: Path, predictions: Path, judge: str, tmp_path: Path) -> None:
    out = tmp_path / "s.jsonl"
    shown = run("verify", predictions, sample_dataset, "--model", judge, "--out", out, "--quiet")
    assert (shown.code, shown.err) == (0, "")
    number = predictions.read_text().count("\n")
    assert shown.out.startswith(f"{judge} scored {number} predictions: {number} scores\n{number} scores are 1 or ")
    assert shown.out.endswith(f"next: foretrace score {out} {sample_dataset}\n")
    scored = run("score", out, sample_dataset, "--quiet")
    assert f"verifier {judge}" in scored.out and "AUROC of its scores -" in scored.out, "all guesses are right"
    assert "nothing is accepted: no first guess in the half that is measured has a score" in scored.out
    found = run("score", out, sample_dataset, "--quiet", "--json").json
    assert (found["groups"], found["verifier"]["n"], found["verifier"]["policies"]) == (1, 0, [])


def test_verify_pairs_then_score(run: Run, sample_dataset: Path, judge: str, tmp_path: Path) -> None:
    out = tmp_path / "pairs.jsonl"
    report = run("verify", "--pairs", sample_dataset, "--model", judge, "--out", out, "--quiet", "--json").json
    assert report["scored"] == 2 * report["rows"] > 0
    shown = run("score", out, sample_dataset, "--quiet")
    assert (shown.code, shown.err) == (0, "")
    assert f"{judge} on {report['rows']} test pairs" in shown.out and "50% [50, 50]" in shown.out
    found = run("score", out, sample_dataset, "--quiet", "--json").json
    assert {row["accuracy"]["value"] for row in found["families"]} == {0.5}
    refused = run("score", out, sample_dataset, "--quiet", "--against", out)
    assert (refused.code, refused.out) == (2, "") and "--against is for predictions; " in refused.err


def test_wrong_use_is_one_line(run: Run, sample_dataset: Path, predictions: Path, judge: str, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "s.jsonl", "--quiet"]
    for arguments, said in (
        ([predictions, sample_dataset], "verify takes either --model or --scores"),
        ([predictions, sample_dataset, "--model", judge, "--scores", predictions], "verify takes either"),
        ([sample_dataset, "--model", judge], "verify takes a file of predictions and the dataset"),
        ([predictions, sample_dataset, "--pairs", "--model", judge], "--pairs takes one folder, the dataset"),
        ([sample_dataset, "--pairs", "--scores", predictions], "--pairs wants --model; scores of pairs"),
        ([predictions, sample_dataset, "--scores", predictions, "--base-url", "http://x"], "--base-url is for --model"),
    ):
        refused = run("verify", *arguments, *out)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1), arguments
        assert said in refused.err, refused.err
    assert not (tmp_path / "s.jsonl").exists()
    refused = run("verify", predictions, sample_dataset, "--model", judge, "--out", tmp_path / "s.parquet")
    assert refused.code == 2 and "s.parquet: name it .jsonl" in refused.err
