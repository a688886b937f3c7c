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


def make_guess(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": row["key"], "step": row["step"], "completion": row["completion"][0]["content"], **more}


@pytest.fixture
def predictions(sample_dataset: Path, tmp_path: Path) -> Path:
    return write_rows(tmp_path / "p.jsonl", [make_guess(row) for row in rows(sample_dataset, "eval")])


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


hub = test_push.hub


def test_predictions_for_another_dataset_are_refused(run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    known = [make_guess(row) for row in rows(sample_dataset, "eval")][:2]
    foreign = [{"key": f"other{n}", "step": 1, "action": "repair"} for n in range(3)]
    file = write_rows(tmp_path / "p.jsonl", [*foreign, *known])
    refused = run("score", file, sample_dataset, "--quiet")
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "3 of 5 steps are not among the eval rows" in refused.err
    assert "or --allow-partial scores the others" in refused.err
    scored = run("score", file, sample_dataset, "--quiet", "--allow-partial", "--json")
    assert (scored.code, scored.err) == (0, "")
    assert (scored.json["unknown"], scored.json["missing"]) == (3, scored.json["rows"] - 2)


@pytest.mark.slow
def test_push_under_a_name(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process: the Hub's client reads from the environment, when it is imported, whether it draws bars."""
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS")
    dataset = test_push.build(tmp_path / "d")
    names = [f"acme/my-agent-{ending}" for ending in test_push.REPOSITORIES]
    asked = ["push", dataset, "--org", "acme", "--name", "my-agent", "--json", "--quiet"]
    said = command(*asked, "--dry-run")
    assert (said.returncode, said.stderr, hub.requests) == (0, "", [])
    assert json.loads(said.stdout)["dry_run"]
    assert [r["repo_id"] for r in json.loads(said.stdout)["repositories"]] == names
    done = command(*asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert [r["repo_id"] for r in json.loads(done.stdout)["repositories"]] == names == list(hub.repos)
    assert json.loads(hub.file(names[0], "manifest.json")) == json.loads((dataset / "manifest.json").read_text())
    again = command(*asked[:-2])
    assert again.returncode == 0 and again.stdout.count("is there already") == len(names)
    assert TOKEN not in done.stdout + again.stdout + again.stderr


def test_score_shows_what_decides_and_writes_all(run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    gold = list(rows(sample_dataset, "eval"))
    good = [make_guess(row) | {"rank": 2, "confidence": 0.5} for row in gold]
    file = write_rows(tmp_path / "p.jsonl", good)
    other = write_rows(tmp_path / "o.jsonl", [make_guess(row) for row in gold])
    shown = run("score", file, sample_dataset, "--quiet", "--against", other, "--out", tmp_path / "s.json")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"p.jsonl on {len(gold)} eval steps of ")
    assert f"exact call {' ' * 8}worse by 100.0 points [100.0, 100.0]\n" in shown.out
    assert "without intervals: all steps are of one group\n" in shown.out and "balanced" not in shown.out
    written = json.loads((tmp_path / "s.json").read_text())
    assert written == run("score", file, sample_dataset, "--quiet", "--against", other, "--json").json
    assert {row["metric"]: row["value"] for row in written["scores"]}["exact_call@3"] == 1
    every = run("score", file, sample_dataset, "--quiet", "--details").out
    for words in ("balanced", "source", "type accuracy"):
        assert words in every
    same = run("score", other, sample_dataset, "--quiet", "--against", other).out
    assert "exact call         the same\n" in same and "-0.0" not in same


def test_bad_predictions_are_one_line_each(run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    row = make_guess(next(rows(sample_dataset, "eval")))
    for lines, said in (
        ([row, row], "line 2: a second prediction for"),
        ([{"predictions": 1, "dataset": "00"}, row], "or --allow-other-version takes what fits"),
        ([{"predictions": 9}, row], "format 9 of predictions is not known"),
        ([row, 7], "line 2: is not a prediction"),
    ):
        refused = run("score", write_rows(tmp_path / "p.jsonl", lines), sample_dataset, "--quiet")
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1) and said in refused.err, said
    refused = run("score", sample_dataset, tmp_path / "p.jsonl", "--quiet")
    assert (refused.code, refused.err.count("\n")) == (1, 1) and "the predictions come first" in refused.err
    torn = tmp_path / "torn.jsonl"
    torn.write_text(json.dumps(row | {"confidence": 2}) + "\n" + json.dumps(row)[:-3])
    shown = run("score", torn, sample_dataset, "--quiet")
    assert shown.code == 0 and "faults of lines: bad confidence 1, torn last line 1" in shown.out


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
