"""`foretrace score` and `foretrace push` on the command line; what they compute and send is tested in tests/dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Run, write_rows
from cli.test_command import command
from dataset import test_push
from dataset.little import rows
from fakes.hub import TOKEN, FakeHub

hub = test_push.hub


def predict(row: dict[str, Any]) -> dict[str, Any]:
    return {"key": row["key"], "step": row["step"], "completion": row["completion"][0]["content"]}


def test_predictions_for_another_dataset_are_refused(run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    known = [predict(row) for row in rows(sample_dataset, "eval")][:2]
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


@pytest.mark.parametrize("name", ["", "a/b", "-a"])
def test_push_refuses_a_name_that_no_repository_can_have(run: Run, tmp_path: Path, name: str) -> None:
    dataset = test_push.build(tmp_path / "d")
    refused = run("push", dataset, "--org", "acme", f"--name={name}", "--dry-run", "--quiet")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "--name" in refused.err and "name=" not in refused.err


def test_score_shows_what_decides_and_writes_all(run: Run, sample_dataset: Path, tmp_path: Path) -> None:
    gold = list(rows(sample_dataset, "eval"))
    good = [predict(row) | {"rank": 2, "confidence": 0.5} for row in gold]
    file = write_rows(tmp_path / "p.jsonl", good)
    other = write_rows(tmp_path / "o.jsonl", [predict(row) for row in gold])
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
    row = predict(next(rows(sample_dataset, "eval")))
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
