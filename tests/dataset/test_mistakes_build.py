"""Building with a proposer's mistakes: rows, account, gates, the same bytes with any workers, and what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import foretrace
from dataset import little
from foretrace.core.errors import PredictionError, UsageError
from foretrace.core.files import compute_sha256
from foretrace.core.predictions import Prediction, PredictionsHeader, read_predictions, write_predictions
from foretrace.core.store import write_traces
from foretrace.dataset.build import build
from foretrace.dataset.report import BuildReport
from foretrace.dataset.settings import BuildSettings
from foretrace.engines.processes import Processes
from foretrace.evaluation.dataset_rows import DatasetRow, read_rows

Built = tuple[Path, BuildReport]
SHAPE: dict[str, Any] = {"split": (0.8, 0.2, 0.0), "recipes": ("proposer", "verifier"), "outcomes": "not_failed"}


class OneOfTwo:
    """Guesses what most agents do, in one of two orders, so that the right one is first as often as not."""

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        """Learn nothing."""

    def predict(self, prompt: Any, k: int) -> list[tuple[Any, ...]]:
        calls = [("file_read", "bash", {"command": "ls src"}), ("final_answer", None, {})]
        if random.Random("".join(message.content for message in prompt)).random() < 0.5:
            calls.reverse()
        check = ("verifier", "bash", {"command": "pytest -k nothing"}, 0.1)
        return [(*calls[0], 0.5), (*calls[1], 0.3), check]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes") / "traces"
    write_traces(little.corpus(24), folder)
    return folder


@pytest.fixture(scope="module")
def predicted(traces: Path) -> dict[str, Path]:
    """Predictions of the train rows and of the validation rows of a dataset that was built from the traces."""
    dataset = traces.with_name("dataset")
    build([traces], dataset, BuildSettings(**SHAPE))
    for rows in ("proposer", "validation"):
        out = traces.with_name(f"{rows}.jsonl")
        foretrace.predict(
            dataset, predictor=OneOfTwo, out=out, rows=rows, folds=2 if rows == "proposer" else None, times=False
        )
    return {"dataset": dataset} | {name: traces.with_name(f"{name}.jsonl") for name in ("proposer", "validation")}


@pytest.fixture(scope="module")
def built(traces: Path, predicted: dict[str, Path]) -> Built:
    out = traces.with_name("with-mistakes")
    files = (str(predicted["proposer"]), str(predicted["validation"]))
    return out, build([traces], out, BuildSettings(**SHAPE, mistakes=files))


def change(path: Path, out: Path, header: Callable[[PredictionsHeader], PredictionsHeader | None], rows: Any) -> Path:
    """Write a file of predictions again with another header or other rows."""
    found = read_predictions(path)
    assert found.header is not None
    new = header(found.header)
    write_predictions(out, new or found.header, rows(found.rows))
    if new is None:
        out.write_bytes(out.read_bytes().partition(b"\n")[2])
    return out


def same(value: Any) -> Any:
    return value


def refuse(traces: Path, mistakes: Path, **settings: Any) -> str:
    """The error of a build with these mistakes, which writes nothing."""
    out = traces.with_name("refused")
    with pytest.raises((PredictionError, UsageError)) as error:
        build([traces], out, BuildSettings(**SHAPE | settings, mistakes=(str(mistakes),)))
    assert not out.exists()
    return str(error.value)


def test_pairs_are_wrong_guesses_beside_the_right_answer(built: Built, predicted: dict[str, Path]) -> None:
    out, report = built
    pairs = [row for row in little.rows(out, "verifier") if row["family"] == "proposer"]
    assert {row["split"] for row in pairs} == {"train", "validation"}
    assert report.manifest["families"]["proposer"] == report.manifest["mistakes"]["pairs"] == len(pairs) >= 8
    guesses = {at: g for s in ("proposer", "validation") for at, g in read_predictions(predicted[s]).by_step().items()}
    golds = {(row.key, row.step): row for s in ("train", "validation") for row in read_rows(out, "proposer", s)}
    twins: dict[str, list[int]] = {}
    for row in pairs:
        rejected = json.loads(row["rejected"][0]["content"])
        at, gold = (row["key"], row["step"]), golds[row["key"], row["step"]]
        (found,) = (g for g in guesses[at] if (g.action, bool(g.calls)) == (rejected["action"], bool(rejected["tool"])))
        assert row["strength"] == "weak"
        assert json.loads(row["chosen"][0]["content"])["action"] == gold.action != found.action
        twins.setdefault(row["pair"], []).append(found.rank)
    assert all(len(ranks) == 2 and ranks[0] != ranks[1] for ranks in twins.values())
    unpaired = [row for row in little.rows(out, "verifier_unpaired") if row["family"] == "proposer"]
    assert len(unpaired) == 2 * len(pairs)


def test_the_manifest_and_the_card_say_whose_mistakes_they_are(built: Built, predicted: dict[str, Path]) -> None:
    out, report = built
    told = json.loads((out / "manifest.json").read_text())["mistakes"]
    assert [(file["predictor"], file["split"], file["folds"]) for file in told["files"]] == [
        ("OneOfTwo", "train", 2),
        ("OneOfTwo", "validation", None),
    ]
    assert told["files"][0]["sha256"] == compute_sha256(predicted["proposer"])
    assert told["steps"] == sum(file["steps"] for file in told["files"])
    assert "mistakes" not in report.manifest["settings"]
    assert "wrong guesses of OneOfTwo (" in (out / "README.md").read_text()
    gates = {gate["name"]: gate for gate in report.manifest["gates"]}
    assert {f"shortcut/proposer/{g}" for g in ("length", "format", "completion")} <= gates.keys()
    assert report.manifest["drops"]["verifier"]["proposer_right_not_guessed"] > 0


@pytest.mark.integration
def test_the_same_bytes_with_any_number_of_workers(built: Built, predicted: Any, traces: Path, tmp_path: Path) -> None:
    settings = BuildSettings(**SHAPE, mistakes=(str(predicted["proposer"]), str(predicted["validation"])))
    build([traces], tmp_path / "two", settings, engine=Processes(2))
    assert little.tree(tmp_path / "two") == little.tree(built[0])


def test_predictions_of_another_build_are_refused(traces: Path, predicted: dict[str, Path], tmp_path: Path) -> None:
    told = refuse(traces, predicted["proposer"], seed=1, max_context_tokens=4096)
    assert "proposer.jsonl: was made for rows of another build: max_context_tokens 8192 (here 4096), seed 0" in told
    write_traces(little.corpus(10), tmp_path / "others")
    assert "another build: other traces" in refuse(tmp_path / "others", predicted["proposer"])


def test_train_rows_not_predicted_in_folds_are_refused(traces: Path, predicted: Any, tmp_path: Path) -> None:
    bare = change(predicted["proposer"], tmp_path / "bare.jsonl", lambda header: None, same)
    assert "has no header" in refuse(traces, bare)
    unfolded = change(predicted["proposer"], tmp_path / "unfolded.jsonl", lambda h: replace(h, settings={}), same)
    told = refuse(traces, unfolded)
    assert "not predicted in folds" in told and told.endswith("say so by allow_unchecked=True")
    trusted = BuildSettings(**SHAPE, mistakes=(str(unfolded),), allow_unchecked=True)
    report = build([traces], tmp_path / "trusted", trusted)
    assert report.manifest["families"]["proposer"] and report.manifest["settings"]["allow_unchecked"] is True


def test_predictions_that_cannot_be_used_are_refused(traces: Path, predicted: dict[str, Path], tmp_path: Path) -> None:
    types = change(predicted["proposer"], tmp_path / "types.jsonl", lambda h: replace(h, target="type"), same)
    assert "guesses types and no whole calls" in refuse(traces, types)
    assert "cannot read" in refuse(traces, tmp_path / "none.jsonl")
    empty = change(predicted["proposer"], tmp_path / "empty.jsonl", same, lambda rows: ())
    assert "holds no predictions" in refuse(traces, empty)
    assert "needs whole calls" in refuse(traces, predicted["proposer"], target="type")
    assert "pairs=0 allows none" in refuse(traces, predicted["proposer"], pairs=0)
    assert "recipe verifier" in refuse(traces, predicted["proposer"], recipes=("proposer",))
    twice = (str(predicted["proposer"]), str(predicted["proposer"]))
    with pytest.raises(PredictionError, match="as another of the files does"):
        build([traces], tmp_path / "twice", BuildSettings(**SHAPE, mistakes=twice))
    with pytest.raises(UsageError, match="allow_unchecked is for mistakes"):
        BuildSettings(allow_unchecked=True).check()


def test_without_a_pair_a_warning_says_so(traces: Path, predicted: dict[str, Path], tmp_path: Path) -> None:
    few = change(predicted["proposer"], tmp_path / "few.jsonl", same, lambda rows: rows[:6])
    manifest = build([traces], tmp_path / "out", BuildSettings(**SHAPE, mistakes=(str(few),))).manifest
    steps = manifest["mistakes"]["steps"]
    assert manifest["mistakes"]["pairs"] == 0 and "proposer" not in manifest["families"] and steps
    assert any(f"no pair could be made from {steps} predicted steps" in warning for warning in manifest["warnings"])


def test_predictions_for_rows_that_are_not_there(traces: Path, predicted: dict[str, Path], tmp_path: Path) -> None:
    def rename(every: int) -> Callable[[Sequence[Prediction]], list[Prediction]]:
        gone = {*sorted(read_predictions(predicted["proposer"]).by_step())[::every]}
        return lambda rows: [replace(r, key=f"nowhere/{r.key}") if (r.key, r.step) in gone else r for r in rows]

    some = change(predicted["proposer"], tmp_path / "some.jsonl", same, rename(10))
    some.write_bytes(some.read_bytes() + b'{"key": "torn')
    report = build([traces], tmp_path / "out", BuildSettings(**SHAPE, mistakes=(str(some),)))
    warnings = report.manifest["warnings"]
    steps = report.manifest["mistakes"]["files"][0]["steps"]
    assert f"mistakes: {-(-steps // 10)} of {steps} predicted steps are not rows of this dataset" in warnings
    assert "mistakes: lines of the predictions with torn_last_line: 1" in warnings
    most = change(predicted["proposer"], tmp_path / "most.jsonl", same, rename(1))
    assert "predicted steps are not rows of this dataset; name predictions" in refuse(traces, most)
