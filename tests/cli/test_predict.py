"""`foretrace predict` on the command line; what it computes is tested in tests/evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Run, write_rows
from foretrace.core.predictions import read_predictions

MINE = """
class Mine:
    def fit(self, rows): self.rows = len(rows)
    def predict(self, prompt, k):
        if "x = 1" in prompt[-1].content:
            raise KeyError("x")
        return [("file_read", "bash", {"command": "ls"}, 0.25)]
"""


def test_predict(run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    done = run("predict", sample_dataset, "--predictor", "markov:2", "--k", "2", "--out", out, "--quiet")
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert first.startswith(f"{out}: ") and "guesses of markov:2 at" in first
    assert "trained on" in second and "ms a row (p95" in second
    found = read_predictions(out)
    assert found.header is not None and found.header.predictor == "markov:2" and found.problems == {}
    # What guesses types is sure of types.
    assert "confidence that the type is right" in run("score", out, sample_dataset, "--quiet").out
    refused = run(
        "predict", tmp_path / "nothing", "--predictor", "markov:2", "--out", tmp_path / "p.parquet", "--quiet"
    )
    assert (refused.code, refused.err.count("\n")) == (2, 1) and "p.parquet: name it .jsonl" in refused.err


def test_a_model(run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    reply = {"action": "file_read", "tool": "bash", "arguments": {"command": "ls"}}
    script = write_rows(tmp_path / "s.jsonl", [{"turns": [json.dumps(reply)], "repeat": True}])
    out = tmp_path / "p.jsonl"
    words = ["predict", sample_dataset, "--model", f"scripted:{script}", "--samples", "2", "--limit", "3", "--out", out]
    done = run(*words, "--quiet")
    assert (done.code, done.err) == (0, "")
    assert "3 guesses of scripted:" in done.out and "6 requests" in done.out
    again = run(*words, "--quiet", "--json")
    assert (again.json["requests"], again.json["guesses"]) == (0, 3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "name one that guesses: --predictor or --model"),
        (["--predictor", "majority", "--model", "scripted:x"], "name one that guesses"),
        (["--predictor", "majority", "--base-url", "http://x"], "--base-url is for a model: name it with --model"),
        (["--model", "nothing:x"], "unknown model 'nothing:x'"),
        (["--predictor", "markov:9"], "choose one of markov:1, markov:2, markov:3"),
        (["--predictor", "nothing"], "unknown predictor 'nothing': choose one of majority, markov, regression, memory"),
        (["--predictor", "os:sep"], "is not a predictor: it has no 'fit', 'predict'"),
        (["--predictor", "majority", "--k", "0"], "--k 0: give 1 or more"),
        (["--predictor", "majority", "--rows", "proposer", "--folds", "1"], "--folds 1: give 2 or more"),
        (["--predictor", "majority", "--folds", "5"], "--folds 5 is for train rows"),
        (["--predictor", "majority", "--logprobs"], "--logprobs is for a model: name it with --model"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    run: Run, sample_dataset: Path, tmp_path: Path, options: list[str], says: str
) -> None:
    done = run("predict", sample_dataset, *options, "--out", tmp_path / "p.jsonl", "--quiet")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err
    assert not (tmp_path / "p.jsonl").exists()
