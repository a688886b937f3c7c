"""`foretrace predict`, `verify`, `score` and `push`; what they compute is tested elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import foretrace
from cli.conftest import Run, write_rows
from cli.test_command import command
from dataset import test_push
from dataset.little import corpus, rows
from fakes.hub import TOKEN, FakeHub
from foretrace.api.datasets import build
from foretrace.api.evaluation import predict
from foretrace.cli.display.score import show_lines, write_difference
from foretrace.cli.output import Output
from foretrace.core.predictions import read_predictions
from foretrace.core.references import ScoreRow
from foretrace.core.store import write_traces


def test_predict(run: Run, sample_dataset: Path) -> None:
    done = run(f"predict {sample_dataset} --predictor markov:2 --k 2 --out p.jsonl --quiet")
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert first.startswith("p.jsonl: ") and "guesses of markov:2 at" in first
    assert "trained on" in second and "ms a row (p95" in second
    found = read_predictions(Path("p.jsonl"))
    assert found.header is not None and found.header.predictor == "markov:2" and found.problems == {}
    # What guesses types is sure of types.
    assert "confidence that the type is right" in run("score p.jsonl", sample_dataset, "--quiet").out


def make_guess(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": row["key"], "step": row["step"], "completion": row["completion"][0]["content"], **more}


@pytest.fixture
def predictions(sample_dataset: Path, tmp_path: Path) -> Path:
    return write_rows(tmp_path / "p.jsonl", [make_guess(row) for row in rows(sample_dataset, "eval")])


@pytest.fixture
def judge() -> str:
    write_rows(Path("judge.jsonl"), [{"turns": ["yes"], "repeat": True}])
    return "scripted:judge.jsonl"


def test_verify_then_score(run: Run, sample_dataset: Path, predictions: Path, judge: str) -> None:
    shown = run("verify p.jsonl", sample_dataset, "--model", judge, "--out", "s.jsonl", "--quiet")
    assert (shown.code, shown.err) == (0, "")
    number = predictions.read_text().count("\n")
    assert shown.out.startswith(f"{judge} scored {number} predictions: {number} scores\n{number} scores are 1 or ")
    assert shown.out.endswith(f"next: foretrace score s.jsonl {sample_dataset}\n")
    scored = run("score s.jsonl", sample_dataset, "--quiet")
    assert f"verifier {judge}" in scored.out and "AUROC of its scores -" in scored.out, "all guesses are right"
    assert "nothing is accepted: no first guess in the half that is measured has a score" in scored.out
    found = run("score s.jsonl", sample_dataset, "--quiet", "--json").json
    assert (found["groups"], found["verifier"]["n"], found["verifier"]["policies"]) == (1, 0, [])


def test_verify_pairs_then_score(run: Run, sample_dataset: Path, judge: str) -> None:
    report = run("verify --pairs", sample_dataset, "--model", judge, "--out", "s.jsonl", "--quiet", "--json").json
    assert report["scored"] == 2 * report["rows"] > 0
    shown = run("score s.jsonl", sample_dataset, "--quiet")
    assert (shown.code, shown.err) == (0, "")
    assert f"{judge} on {report['rows']} test pairs" in shown.out and "50% [50, 50]" in shown.out
    found = run("score s.jsonl", sample_dataset, "--quiet", "--json").json
    assert {row["accuracy"]["value"] for row in found["families"]} == {0.5}
    refused = run("score s.jsonl", sample_dataset, "--quiet", "--against", "s.jsonl")
    assert (refused.code, refused.out) == (2, "") and "--against is for predictions; " in refused.err


hub = test_push.hub


def test_predictions_for_another_dataset_are_refused(run: Run, sample_dataset: Path) -> None:
    known = [make_guess(row) for row in rows(sample_dataset, "eval")][:2]
    write_rows(Path("p.jsonl"), [{"key": f"other{n}", "step": 1, "action": "repair"} for n in range(3)] + known)
    refused = run("score p.jsonl", sample_dataset, "--quiet")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "3 of 5 steps are not among the eval rows" in refused.err
    assert "or --allow-partial scores the others" in refused.err
    scored = run("score p.jsonl", sample_dataset, "--quiet", "--allow-partial", "--json")
    assert (scored.code, scored.err) == (0, "")
    assert (scored.json["unknown"], scored.json["missing"]) == (3, scored.json["rows"] - 2)


@pytest.mark.slow
def test_push_under_a_name(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process: the Hub's client reads from the environment, when it is imported, whether it draws bars."""
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS")
    dataset = test_push.build(tmp_path / "d")
    names = [f"acme/my-agent-{ending}" for ending in test_push.REPOSITORIES]
    line = "push d --org acme --name my-agent"
    said = command(f"{line} --json --quiet --dry-run")
    assert (said.returncode, said.stderr, hub.requests) == (0, "", [])
    assert json.loads(said.stdout)["dry_run"]
    assert [r["repo_id"] for r in json.loads(said.stdout)["repositories"]] == names
    done = command(f"{line} --json --quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert [r["repo_id"] for r in json.loads(done.stdout)["repositories"]] == names == list(hub.repos)
    assert json.loads(hub.file(names[0], "manifest.json")) == json.loads((dataset / "manifest.json").read_text())
    again = command(line)
    assert again.returncode == 0 and again.stdout.count("is there already") == len(names)
    assert TOKEN not in done.stdout + again.stdout + again.stderr


def test_score_shows_what_decides_and_writes_all(run: Run, sample_dataset: Path) -> None:
    gold = list(rows(sample_dataset, "eval"))
    write_rows(Path("p.jsonl"), [make_guess(row) | {"rank": 2, "confidence": 0.5} for row in gold])
    write_rows(Path("o.jsonl"), [make_guess(row) for row in gold])
    line = f"score p.jsonl {sample_dataset} --quiet"
    shown = run(f"{line} --against o.jsonl --out s.json")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"p.jsonl on {len(gold)} eval steps of ")
    assert f"exact call {' ' * 8}worse by 100.0 points [100.0, 100.0]\n" in shown.out
    assert "without intervals: all steps are of one group\n" in shown.out and "balanced" not in shown.out
    written = json.loads(Path("s.json").read_text())
    assert written == run(f"{line} --against o.jsonl --json").json
    assert {row["metric"]: row["value"] for row in written["scores"]}["exact_call@3"] == 1
    every = run(f"{line} --details").out
    for words in ("balanced", "source", "type accuracy"):
        assert words in every
    same = run("score o.jsonl", sample_dataset, "--quiet", "--against", "o.jsonl").out
    assert "exact call         the same\n" in same and "-0.0" not in same


def test_faults_of_lines_are_counted(run: Run, sample_dataset: Path) -> None:
    row = make_guess(next(rows(sample_dataset, "eval")))
    Path("torn.jsonl").write_text(json.dumps(row | {"confidence": 2}) + "\n" + json.dumps(row)[:-3])
    shown = run("score torn.jsonl", sample_dataset, "--quiet")
    assert shown.code == 0 and "faults of lines: bad confidence 1, torn last line 1" in shown.out


@pytest.mark.slow
def test_score_shows_the_cascade_beside_the_references(run: Run) -> None:
    write_traces(corpus(8), "t")
    build("t", out="d", split=(0.5, 0.0, 0.5), statistical_gates=False)
    printed = str(foretrace.add_references("d")).splitlines()
    assert printed[0].startswith("predictor") and any(line.startswith("markov:2 ") for line in printed)
    predict("d", predictor="memory", out="p.jsonl")
    cascade = run("score p.jsonl d --cascade 0.05 --json").json["cascade"]
    assert {row["predictor"] for row in cascade} >= {"memory", "majority (reference)", "markov:1 (reference)"}
    assert {row["cost"]["value"] for row in cascade if row["threshold"] is None} == {0.05, 0.0}
    shown = run("score p.jsonl d --cascade 0.05").out
    assert "precision" in shown and "regression (reference)" in shown
    assert "cascade" not in run("score p.jsonl d").out
    Path("mine.jsonl").write_text(Path("p.jsonl").read_text().partition("\n")[2])  # without header
    assert run("score mine.jsonl d --cascade 0.05 --json").json["cascade"][0]["predictor"] == "mine.jsonl"


def test_figures_of_one_group_or_task_have_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    one = ScoreRow(slice="natural", metric="tool", value=0.2, low=0.2, high=0.2, n=9)
    assert write_difference(one, tasks=1) == "better by 20.0 points, on one task: it may be chance"
    assert write_difference(one, tasks=2) == "better by 20.0 points [20.0, 20.0]"
    for groups, written in ((1, "  20%\n"), (2, "  20% [20, 20]\n")):
        show_lines(Output(), [("memory", [one])], groups=groups)
        assert capsys.readouterr().out.endswith(written)
