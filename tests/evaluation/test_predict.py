"""Predicting a dataset: what is learned from what, bytes, faults that are counted, and errors of one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import foretrace
from dataset.little import corpus
from evaluation.planted import build_dataset
from foretrace.core.errors import PredictionError, UsageError
from foretrace.core.message_columns import ChatText
from foretrace.core.predictions import digest_dataset, read_predictions
from foretrace.evaluation.dataset_rows import DatasetRow, read_rows
from foretrace.evaluation.predict import BadGuessError, check_guesses
from foretrace.evaluation.predictors.base import Guess


def write_dataset(folder: Path, **settings: Any) -> Path:
    """A dataset of 24 groups, with rows in its train and test splits."""
    return build_dataset(folder, corpus(), **{"split": (0.6, 0.0, 0.4), "recipes": ("proposer", "eval")} | settings)


class Spy:
    """Remembers what each of its kind has learned, and guesses what it is told to."""

    learned: ClassVar[list[set[str]]] = []
    asked: ClassVar[list[tuple[int, Sequence[ChatText]]]] = []
    says: Any = staticmethod(lambda prompt, k: [("file_read", "bash", {"command": "ls"}, 0.5)])

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        Spy.learned.append({row.group for row in rows})
        self._number = len(Spy.learned) - 1

    def predict(self, prompt: Sequence[ChatText], k: int) -> Any:
        Spy.asked.append((self._number, prompt))
        return Spy.says(prompt, k)


@pytest.fixture(autouse=True)
def fresh_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spy, "learned", [])
    monkeypatch.setattr(Spy, "asked", [])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("predict"))


def test_eval_rows_are_predicted_by_all_train_rows(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    report = foretrace.predict(dataset, predictor=Spy, out=out, k=2)
    train, asked = read_rows(dataset, "proposer", "train"), read_rows(dataset, "eval", "test")
    assert Spy.learned == [{row.group for row in train}]
    assert (report.learned_rows, report.steps, report.guesses) == (len(train), len(asked), len(asked))
    found = read_predictions(out)
    assert [(row.key, row.step) for row in found.rows] == [(row.key, row.step) for row in asked]
    header = found.header
    assert header is not None and header.latency_s.keys() == {"p50", "p95", "mean"}
    assert (header.dataset, header.predictor, header.steps, header.k) == (digest_dataset(dataset), "Spy", len(asked), 2)
    assert all(row.seconds is not None and row.confidence == 0.5 for row in found.rows)


def test_no_train_row_is_predicted_by_what_learned_its_group(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    foretrace.predict(dataset, predictor=Spy, out=out, rows="proposer", folds=3)
    rows = read_rows(dataset, "proposer", "train")
    groups = {row.group for row in rows}
    of_prompt = {row.prompt: row.group for row in rows}
    assert len(Spy.learned) == 3 and len(Spy.asked) == len(rows)
    assert all(of_prompt[tuple(prompt)] not in Spy.learned[number] for number, prompt in Spy.asked)
    assert all(groups - learned for learned in Spy.learned)
    found = read_predictions(out)
    header = found.header
    assert header is not None and header.settings == {"folds": 3}
    assert (header.config, header.split) == ("proposer", "train")
    assert header.built_from["split"] == [0.6, 0.0, 0.4] and header.built_from["target"] == "call"
    assert [(row.key, row.step) for row in found.rows] == [(row.key, row.step) for row in rows]


def test_validation_rows_are_predicted_by_all_train_rows_and_choose_thresholds(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "d", split=(0.5, 0.2, 0.3))
    validation, test = tmp_path / "validation.jsonl", tmp_path / "test.jsonl"
    report = foretrace.predict(dataset, predictor=Spy, out=validation, rows="validation")
    foretrace.predict(dataset, predictor=Spy, out=test)
    foretrace.predict(dataset, predictor=Spy(), out=test.with_stem("object"))
    assert (report.config, report.split) == ("proposer", "validation")
    train, asked = read_rows(dataset, "proposer", "train"), read_rows(dataset, "proposer", "validation")
    assert Spy.learned[0] == {row.group for row in train} and not Spy.learned[0] & {row.group for row in asked}
    found = read_predictions(validation)
    assert [(row.key, row.step) for row in found.rows] == [(row.key, row.step) for row in asked]
    assert found.header is not None and found.header.settings == {}
    scored: dict[str, Path] = {}
    for name, path in (("validation", validation), ("test", test)):
        scores, scored[name] = tmp_path / f"{name}-scores.jsonl", tmp_path / f"{name}-scored.jsonl"
        lines = [{"key": row.key, "step": row.step, "score": 1 / (1 + row.step)} for row in read_predictions(path).rows]
        scores.write_text("".join(json.dumps(line) + "\n" for line in lines))
        foretrace.verify(path, dataset, scores=scores, out=scored[name])
    verifier = foretrace.score(scored["test"], dataset, validation=scored["validation"]).verifier
    assert verifier is not None
    assert (verifier.thresholds_from, verifier.chosen_on) == ("validation", len(asked))


@pytest.mark.parametrize("name", ["majority", "markov:2", "regression", pytest.param("memory", marks=pytest.mark.slow)])
def test_without_times_the_same_rows_give_the_same_bytes(dataset: Path, tmp_path: Path, name: str) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    for out in (one, two):
        foretrace.predict(dataset, predictor=name, out=out, k=3, times=False)
    assert one.read_bytes() == two.read_bytes()
    assert b'"seconds"' not in one.read_bytes() and b'"latency_s":{}' in one.read_bytes()


def test_faults_are_counted_and_never_scored(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = iter(range(10**6))

    def say(prompt: Any, k: int) -> Any:
        number = next(count)
        if number % 4 == 0:
            raise RuntimeError("out of ideas")
        return [[("file_read", None, {}, float("nan"))], [], [Guess("file_read", None, {}, None)]][number % 4 - 1]

    monkeypatch.setattr(Spy, "says", staticmethod(say))
    report = foretrace.predict(dataset, predictor=Spy, out=tmp_path / "p.jsonl", limit=8)
    assert report.faults == {"bad_guess": 2, "no_guess": 2, "raised": 2}
    assert report.example is not None and report.example.endswith("RuntimeError: out of ideas")
    found = read_predictions(tmp_path / "p.jsonl")
    assert found.header is not None and found.header.faults == report.faults
    assert len(found.rows) == report.guesses == 2


def test_a_predictor_that_never_guesses_writes_no_file(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spy, "says", staticmethod(lambda prompt, k: "garbage"))
    with pytest.raises(PredictionError, match=r"Spy: gave no guess at any of \d+ rows, e.g. .*list of guesses"):
        foretrace.predict(dataset, predictor=Spy, out=tmp_path / "p.jsonl")
    assert not (tmp_path / "p.jsonl").exists()


def test_a_predictor_that_cannot_learn(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spy, "fit", lambda self, rows: 1 / 0)
    with pytest.raises(PredictionError, match=r"^Spy: cannot learn from \d+ rows: ZeroDivisionError: "):
        foretrace.predict(dataset, predictor=Spy, out=tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    "given",
    [
        "text", None, [("file_read", None, {})], [("no_action", None, {}, 0.5)], [("file_read", 3, {}, 0.5)],
        [("file_read", "bash", "no json", 0.5)], [("file_read", "bash", [1], 0.5)],
        [("file_read", "bash", {"x": float("nan")}, 0.5)], [("file_read", "bash", {"x": object()}, 0.5)],
        [("file_read", "bash", {}, True)], [("file_read", "bash", {}, "0.5")],
        [("file_read", "bash", {}, 1.5)], [("file_read", "\ud800", {}, 0.2)],
        [("file_read", "x", '{"a": "\ud800"}', 0.2)], [("file_read", "bash", {}, float("inf"))], [["file_read"]],
    ],
)  # fmt: skip
def test_garbage_is_no_guess(given: Any) -> None:
    with pytest.raises(BadGuessError):
        check_guesses(given, 3)


def test_guesses_are_cut_to_k_and_not_repeated() -> None:
    ls = ("file_read", "bash", {"command": "ls"}, 0.5)
    given = [ls, ("file_read", "bash", '{"command": "ls"}', 0.4), ("blocked", "", {}, None)]
    with pytest.raises(BadGuessError, match="'blocked'"):
        check_guesses(given, 3)
    given[2] = ("BLOCKED", "", {}, None)
    assert [guess.action for guess in check_guesses(given, 3)] == ["file_read", "BLOCKED"]
    assert len(check_guesses(given, 1)) == 1


def test_what_cannot_be_served(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    with pytest.raises(PredictionError, match="is not a foretrace dataset"):
        foretrace.predict(tmp_path, predictor="majority", out=out)
    wrong: dict[str, dict[str, Any]] = {
        "k=0": {"k": 0},
        "folds=1": {"rows": "proposer", "folds": 1},
        "folds=5 is for train rows, and eval rows are predicted": {"folds": 5},
        "folds=5 is for train rows, and validation rows are predicted": {"rows": "validation", "folds": 5},
        "samples=7 is for a model": {"samples": 7},
        "folds=3 is for a predictor": {"predictor": None, "model": "scripted:x.jsonl", "rows": "proposer", "folds": 3},
        "is not a predictor: it has no 'fit', 'predict'": {"predictor": "pathlib:PurePath"},
    }
    for said, settings in wrong.items():
        with pytest.raises(UsageError, match=said):
            foretrace.predict(dataset, out=out, **{"predictor": "majority"} | settings)
    message = write_dataset(tmp_path / "m", target="message")
    with pytest.raises(PredictionError, match="was built with target='message'; build with target='call'"):
        foretrace.predict(message, predictor="majority", out=out)
    manifest = json.loads((message / "manifest.json").read_text())
    manifest["settings"]["target"] = "call"
    (message / "manifest.json").write_text(json.dumps(manifest))
    for file in (message / "eval").glob("*.parquet"):
        file.write_bytes(b"no parquet")
    with pytest.raises(PredictionError, match="cannot be read"):
        foretrace.predict(message, predictor="majority", out=out)
    assert not out.exists()
