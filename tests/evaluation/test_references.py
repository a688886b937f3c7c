"""References: what planted predictors reach stands in the dataset, its card, every score, and what is pushed."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from cli import conftest
from cli.conftest import Run
from dataset.little import corpus, rows, tree
from foretrace.api import evaluation
from foretrace.api.datasets import build
from foretrace.core.errors import PredictionError, PushError, UsageError
from foretrace.core.predictions import digest_dataset
from foretrace.core.references import References, read_references
from foretrace.core.store import write_traces
from foretrace.dataset.push import push
from foretrace.evaluation.score import score

Row = dict[str, Any]
run = conftest.run


def predict(dataset: Path, *, out: Path, predictor: str, **_: Any) -> None:
    """`commands` knows the bash calls, and `nothing` knows nothing."""
    lines: list[Row] = [{"predictions": 1, "predictor": predictor, "dataset": digest_dataset(dataset)}]
    for row in rows(dataset, "eval"):
        knows = predictor == "commands" and row["tool"] == "bash"
        guess = json.loads(row["completion"][0]["content"]) if knows else {"action": "BLOCKED", "tool": None}
        lines.append({"key": row["key"], "step": row["step"], "prediction": guess})
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))


@contextlib.contextmanager
def planting(*names: str) -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "REFERENCES", names)
        patch.setattr(evaluation, "predict", predict)
        yield


def add_planted(dataset: Path) -> References:
    """Score what is there."""
    with planting():
        return evaluation.add_references(dataset)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("references") / "traces"
    write_traces(corpus(12), folder)
    return folder


@pytest.fixture(scope="module")
def built(traces: Path) -> Path:
    out = traces.with_name("dataset")
    with planting("commands", "nothing"):
        build(traces, out=out, split=(0.2, 0.0, 0.8), statistical_gates=False, references=True)
    return out


@pytest.fixture
def dataset(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "dataset")


def test_they_go_by_the_name_of_their_predictor(dataset: Path) -> None:
    """By that of the file where there is none, or where two are of one name."""
    files = {each: dataset / f"references/{each}.jsonl" for each in ("commands", "nothing", "again", "plain")}
    files["commands"].write_text(files["commands"].read_text().replace('"predictor": "commands"', '"predictor": "c:2"'))
    files["again"].write_text(files["nothing"].read_text())
    files["plain"].write_text(files["nothing"].read_text().partition("\n")[2])
    add_planted(dataset)
    found = read_references(dataset)
    assert found is not None and [each.predictor for each in found.predictors] == ["again", "c:2", "nothing", "plain"]


def test_they_stand_in_the_dataset_and_its_card(dataset: Path, traces: Path, tmp_path: Path) -> None:
    found = read_references(dataset)
    assert found is not None and found.dataset == digest_dataset(dataset)
    assert [(each.predictor, each.predictions) for each in found.predictors] == [
        ("commands", "references/commands.jsonl"),
        ("nothing", "references/nothing.jsonl"),
    ]
    figures = {(row.slice, row.metric): row.value for row in found.predictors[0].scores}
    assert figures["natural", "exact_call"] == figures["eligible", "exact_call"] == 1 > figures["natural", "macro_f1"]
    card = (dataset / "README.md").read_text()
    assert card.count("## What free predictors reach") == 1
    cells = next(line for line in card.splitlines() if line.startswith("| commands |")).split("|")
    assert cells[5].strip() == "100.0 [100.0, 100.0]" and "| nothing | 0.0 [0.0, 0.0] |" in card
    build(traces, out=tmp_path / "plain", split=(0.2, 0.0, 0.8), statistical_gates=False)
    added = {"references.json", "references/commands.jsonl", "references/nothing.jsonl"}
    with_them, without = tree(dataset), tree(tmp_path / "plain")
    assert {name for name in with_them if with_them[name] != without.get(name)} == {*added, "README.md"}
    assert card.startswith((tmp_path / "plain" / "README.md").read_text().rstrip("\n"))


def test_the_hub_can_still_load_it(dataset: Path) -> None:
    from datasets import load_dataset

    assert load_dataset(str(dataset), "eval", split="test").num_rows == len(list(rows(dataset, "eval")))


def test_adding_again_changes_nothing_and_own_predictions_count(dataset: Path) -> None:
    before = tree(dataset)
    add_planted(dataset)
    assert tree(dataset) == before
    own = (dataset / "references" / "nothing.jsonl").read_text()
    (dataset / "references" / "mine.jsonl").write_text(own)
    assert [each.predictor for each in add_planted(dataset).predictors] == [
        "commands",
        "mine",
        "nothing",
    ]
    assert (dataset / "README.md").read_text().count("## What free predictors reach") == 1


def test_score_shows_them_beside_its_own(dataset: Path, run: Run, tmp_path: Path) -> None:
    mine = dataset / "references" / "nothing.jsonl"
    report = score(mine, dataset)
    assert [each.predictor for each in report.references] == ["commands"], "and not the scored predictor itself"
    assert report.references_left_out is None
    shown = run("score", mine, dataset, "--quiet").out
    lines = [line.split("  ")[0] for line in shown.splitlines()]
    assert lines[2:5] == ["predictor", "nothing", "commands (reference)"] and "nothing (reference)" not in shown
    wider = score(mine, dataset, allow=["sandbox_exec"])
    slices = {row.slice for each in wider.references for row in each.scores}
    assert slices == {"natural", "balanced"}, "what is safe early differs, so the slice is another one"


def test_references_of_another_version_are_said_to_be_left_out(dataset: Path, run: Run) -> None:
    mine = dataset / "references" / "nothing.jsonl"
    text = (dataset / "references.json").read_text()
    (dataset / "references.json").write_text(text.replace(digest_dataset(dataset), "00"))
    report = score(mine, dataset)
    assert report.references == [] and report.references_left_out is not None
    assert "references are left out: " in run("score", mine, dataset, "--quiet").out
    (dataset / "references.json").write_text("{")
    with pytest.raises(PredictionError, match=r"references\.json: cannot be read: .*; remove it, or build"):
        score(mine, dataset)
    with pytest.raises(PushError, match=r"references\.json: cannot be read"):
        push(dataset, org="acme", dry_run=True, allow_undecided=True)


def test_they_are_pushed_with_the_eval_rows(dataset: Path) -> None:
    pushed = push(dataset, org="acme", dry_run=True, allow_undecided=True)
    with_them = [each.repo_id.rpartition("-")[2] for each in pushed if "references.json" in each.files]
    assert with_them == ["eval"]


def test_predictions_that_do_not_fit_are_named(dataset: Path) -> None:
    (dataset / "references" / "bad.jsonl").write_text('{"predictions": 1, "dataset": "00"}\n')
    with pytest.raises(PredictionError, match=r"references/bad\.jsonl: was made for another dataset"):
        add_planted(dataset)


def test_what_cannot_have_references(traces: Path, tmp_path: Path, run: Run) -> None:
    with pytest.raises(UsageError, match="references needs actions to predict: build with target='call'"):
        build(traces, out=tmp_path / "d", target="message", references=True)
    refused = run("build", traces, "--out", tmp_path / "d", "--target", "message", "--references", "--quiet")
    assert (refused.code, refused.err.count("\n")) == (2, 1) and not (tmp_path / "d").exists()
    build(traces, out=tmp_path / "e", split=(0.2, 0.0, 0.8), statistical_gates=False)
    with pytest.raises(PredictionError, match="holds no predictions"):
        add_planted(tmp_path / "e")
