"""Scores of predictions: perfect is 1, missing is wrong, intervals hold their values, nothing is left to luck."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dataset.little import corpus, rows, runs, says, seen, trace, user
from foretrace.actions.taxonomy import ActionType
from foretrace.api.datasets import build
from foretrace.core.errors import PredictionError, UsageError
from foretrace.core.store import write_traces
from foretrace.evaluation.score import score
from foretrace.evaluation.score_report import ScoreReport

ACTIONS = [str(a) for a in ActionType]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About eighty eval rows of twenty tasks."""
    folder = tmp_path_factory.mktemp("score")
    other = [
        trace(f"x{n}", user(f"Ask {n}"), runs("./ask"), seen("?"), says("Which one?"), task=f"x{n}", group=f"x{n}")
        for n in range(8)
    ]
    write_traces([*corpus(24), *other], folder / "traces")
    build(folder / "traces", out=folder / "dataset", split=(0.4, 0.0, 0.6), statistical_gates=False)
    return folder / "dataset"


@pytest.fixture(scope="module")
def gold(dataset: Path) -> list[Row]:
    return list(rows(dataset, "eval"))


@pytest.fixture
def scored(dataset: Path, tmp_path: Path) -> Callable[..., ScoreReport]:
    def run(predictions: list[Row] | str, **more: Any) -> ScoreReport:
        text = predictions if isinstance(predictions, str) else "".join(f"{json.dumps(p)}\n" for p in predictions)
        (tmp_path / "p.jsonl").write_text(text, encoding="utf-8")
        return score(tmp_path / "p.jsonl", dataset, **more)

    return run


def at(row: Row) -> Row:
    return {"key": row["key"], "step": row["step"]}


def right(row: Row) -> Row:
    return at(row) | {"completion": row["completion"][0]["content"]}


def figures(report: ScoreReport, name: str = "natural") -> dict[str, float]:
    return {s.metric: s.value for s in report.scores if s.slice == name}


def test_perfect_predictions_score_one(scored: Any, gold: list[Row]) -> None:
    report = scored([right(r) for r in gold])
    assert len(gold) > 60 and report.rows == len(gold)
    assert (report.missing, report.unreadable, report.unknown) == (0, 0, 0)
    assert {s.slice for s in report.scores} == {"natural", "balanced", "eligible"}
    assert all((s.value, s.low, s.high) == (1, 1, 1) for s in report.scores)
    present = {f"f1/{ACTIONS[r['action']]}" for r in gold}
    metrics = {"type_accuracy", "macro_f1", "tool", "exact_call", "normalized_call", "right"}
    assert set(figures(report)) == metrics | present, "one guess a step has no top-3"


@pytest.mark.parametrize("form", ["fields", "text", "messages", "spaced", "chatty"])
def test_a_prediction_may_be_fields_a_text_or_messages(scored: Any, gold: list[Row], form: str) -> None:
    """JSON in any spacing, with what a model says behind it."""

    def predict(row: Row) -> Row:
        text = row["completion"][0]["content"]
        value = json.loads(text)
        return (
            at(row)
            | {
                "fields": value,
                "text": {"completion": text},
                "messages": {"completion": [{"role": "assistant", "content": text}]},
                "spaced": {"completion": " \n" + json.dumps(value, indent=1)},
                "chatty": {"completion": text + "\nI hope this helps. {}"},
            }[form]
        )

    assert set(figures(scored([predict(r) for r in gold])).values()) == {1.0}


def test_a_folder_of_files_that_another_program_wrote_scores_as_one_file(
    scored: Any, gold: list[Row], dataset: Path, tmp_path: Path
) -> None:
    """Parquet and JSON lines: each row once, whichever file it is in; text, messages or fields."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    expected = scored([right(r) for r in gold])
    folder = tmp_path / "mine"
    folder.mkdir()
    messages = [at(r) | {"completion": r["completion"], "confidence": None} for r in gold[0::3]]
    pq.write_table(pa.Table.from_pylist(messages), folder / "one.parquet")
    pq.write_table(pa.Table.from_pylist([right(r) for r in gold[1::3]]), folder / "two.parquet")
    (folder / "three.jsonl").write_text("".join(json.dumps(right(r)) + "\n" for r in gold[2::3]))
    (folder / "notes.txt").write_text("mine")
    report = score(folder, dataset)
    assert (report.scores, report.missing) == (expected.scores, 0)
    assert report.rows == len(gold) > score(folder / "one.parquet", dataset).missing > 0
    shutil.copy(folder / "two.parquet", folder / "four.parquet")
    with pytest.raises(PredictionError, match=r"two.parquet line 1: a second prediction for"):
        score(folder, dataset)


def test_predictions_that_cannot_be_matched_or_read_name_the_reason(gold: list[Row], dataset: Path, tmp_path: Path):
    (tmp_path / "p.jsonl").write_text(json.dumps(right(gold[0]) | {"key": "row-17"}))
    with pytest.raises(PredictionError, match=r"not among the eval rows of .*, e\.g\. key 'row-17' step \d+: copy key"):
        score(tmp_path / "p.jsonl", dataset)
    (tmp_path / "p.parquet").write_bytes(b"PAR1")
    with pytest.raises(PredictionError, match=r"p\.parquet: cannot be read as Parquet: "):
        score(tmp_path / "p.parquet", dataset)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PredictionError, match=r"empty: holds no predictions; they are read from files NAME\.jsonl and"):
        score(tmp_path / "empty", dataset)


def test_majority_baseline(scored: Any, gold: list[Row]) -> None:
    counts = Counter(r["action"] for r in gold if r["natural"])
    action, count = counts.most_common(1)[0]
    found = figures(scored([at(r) | {"action": ACTIONS[action]} for r in gold]))
    share = count / counts.total()
    assert found["type_accuracy"] == round(share, 4)
    assert found["macro_f1"] == round(2 * share / (1 + share) / len(counts), 4)
    assert found[f"f1/{ACTIONS[action]}"] == round(2 * share / (1 + share), 4)


def noisy(gold: list[Row], seed: int) -> list[Row]:
    rng = random.Random(seed)
    return [at(r) | {"action": ACTIONS[r["action"]] if rng.random() < 0.5 else rng.choice(ACTIONS)} for r in gold]


@pytest.mark.parametrize("seed", [0])
def test_f1_is_that_of_scikit_learn(scored: Any, gold: list[Row], seed: int) -> None:
    from sklearn.metrics import accuracy_score, f1_score

    guesses = noisy(gold, seed)
    for name in ("natural", "balanced"):
        pairs = [(ACTIONS[r["action"]], g["action"]) for r, g in zip(gold, guesses, strict=True) if r[name]]
        wanted, guessed = zip(*pairs, strict=True)
        present = sorted(set(wanted))
        found = figures(scored(guesses), name)
        assert found["type_accuracy"] == round(accuracy_score(wanted, guessed), 4)
        macro = f1_score(wanted, guessed, labels=present, average="macro", zero_division=0)
        assert found["macro_f1"] == pytest.approx(macro, abs=1e-4)
        each = f1_score(wanted, guessed, labels=present, average=None, zero_division=0)
        for label, value in zip(present, each, strict=True):
            assert found[f"f1/{label}"] == pytest.approx(value, abs=1e-4)


def width(report: ScoreReport) -> float:
    return next(s.high - s.low for s in report.scores if s.metric == "type_accuracy")


def test_intervals_are_over_groups_not_tasks(tmp_path: Path) -> None:
    """Twelve groups of eight tasks each, all of a group right or wrong: twelve facts, not ninety-six."""
    for groups in (12, 96):
        every = [
            trace(f"k{n}", user(f"Ask {n}"), says("Yes."), task=f"t{n}", group=f"g{n % groups}") for n in range(96)
        ]
        write_traces(every, tmp_path / f"t{groups}")
        build(tmp_path / f"t{groups}", out=tmp_path / str(groups), split=(0.02, 0, 0.98), statistical_gates=False)
    widths = {}
    for groups in (12, 96):
        rows_of = list(rows(tmp_path / str(groups), "eval"))
        predictions = [right(r) for r in rows_of if int(r["key"][1:]) % 12 < 6]
        (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(p)}\n" for p in predictions))
        widths[groups] = width(score(tmp_path / "p.jsonl", tmp_path / str(groups)))
    assert widths[12] > 1.8 * widths[96]


def test_predictions_for_another_dataset_are_refused(scored: Any, gold: list[Row]) -> None:
    """A score of none of what was predicted is not a score: it needs to be asked for."""
    others = [{"key": f"other{n}", "step": 1, "action": "repair"} for n in range(11)]
    with pytest.raises(PredictionError, match=r"11 of 21 steps are not among the eval rows .* allow_partial=True"):
        scored([*others, *map(right, gold[:10])])
    report = scored([*others, *map(right, gold[:10])], allow_partial=True)
    assert (report.unknown, report.missing) == (11, len(gold) - 10)
    assert scored([*others[1:], *map(right, gold[:10])]).unknown == 10


def test_missing_unreadable_and_unknown_predictions_are_counted(scored: Any, gold: list[Row]) -> None:
    """Missing and unreadable ones are wrong; unknown ones are ignored."""
    bad: list[Any] = ["no JSON", "[1]", '{"action": "fly"}', "", None, 7, ["x"], [], '{"action": ["file_read"]}']
    predictions = [at(r) | {"completion": b} for r, b in zip(gold, bad, strict=False)]
    predictions[4] = at(gold[4])
    rest = gold[len(bad) :]
    predictions += [right(r) for r in rest[3:]]
    predictions += [{"key": "nobody", "step": step, "action": "repair"} for step in (1, 3)]
    report = scored(predictions)
    assert (report.missing, report.unreadable, report.unknown) == (3, len(bad), 2)
    natural = [r for r in gold if r["natural"]]
    lost = sum(r in natural for r in [*gold[: len(bad)], *rest[:3]])
    assert figures(report)["type_accuracy"] == round(1 - lost / len(natural), 4)


WILD = [
    '{"action":"repair","tool":"x","arguments":{"a":"\\ud800"}}',
    '{"action":"repair","tool":"\\ud800","arguments":{}}',
    '{"action":"repair","tool":7,"arguments":[1]}',
    '{"action":"repair","arguments":{"n":NaN,"m":1e999,"k":123456789012345678901234567890}}',
    '{"action":"repair","arguments":' + "[" * 500 + "]" * 500 + "}",
    '{"action":' + "[" * 5000,
    '{"action":"repair","arguments":"no json"}',
    '{"action":"repair","n":' + "9" * 5000 + "}",
    "{" * 3000,
]


UNREADABLE = (5, 7, 8)
"""Those that are not JSON lines when they are the prediction itself."""


@pytest.mark.parametrize("number", range(len(WILD)))
def test_what_a_model_makes_up_never_breaks_the_score(scored: Any, gold: list[Row], number: int) -> None:
    text = WILD[number]
    report = scored([at(gold[0]) | {"completion": text}, *(right(r) for r in gold[1:])])
    assert report.missing == 0 and figures(report)["exact_call"] < 1
    predictions = [json.dumps(right(r)) for r in gold[1:]]
    as_fields = "\n".join([f'{{"key":{json.dumps(gold[0]["key"])},"step":{gold[0]["step"]},{text[1:]}', *predictions])
    if number in UNREADABLE:
        with pytest.raises(PredictionError, match="line 1: is not a prediction"):
            scored(as_fields)
    else:
        assert figures(scored(as_fields))["exact_call"] < 1


def test_a_file_that_is_not_there_and_a_dataset_without_eval(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(PredictionError, match="cannot read"):
        score(tmp_path / "none.jsonl", dataset)
    with pytest.raises(PredictionError, match="is not a foretrace dataset"):
        score(tmp_path / "none.jsonl", tmp_path)


def test_exact_and_normalized_calls_differ_in_how_a_call_is_written(scored: Any, gold: list[Row]) -> None:
    """Key order and spaces of the JSON never count; spaces and quotes of the command count for exact alone."""

    def written(change: Callable[[str], str]) -> dict[str, float]:
        predictions = []
        for row in gold:
            value = json.loads(row["completion"][0]["content"])
            if "command" in value["arguments"]:
                value["arguments"]["command"] = change(value["arguments"]["command"])
            predictions.append(at(row) | {"completion": json.dumps(dict(reversed(value.items())))})
        return figures(scored(predictions))

    assert written(str)["exact_call"] == 1
    loose = written(lambda c: c.replace(" ", "  "))
    assert loose["normalized_call"] == 1 and loose["exact_call"] < 0.5
    wrong = written(lambda c: f"{c}x")
    assert wrong["normalized_call"] == wrong["exact_call"] < 0.5 and wrong["type_accuracy"] == 1


def test_the_type_does_not_count_for_the_call(scored: Any, gold: list[Row]) -> None:
    predictions = []
    for row in gold:
        value = json.loads(row["completion"][0]["content"])
        predictions.append(at(row) | value | {"action": ACTIONS[(row["action"] + 1) % 9]})
    found = figures(scored(predictions))
    assert found["type_accuracy"] == 0 and found["exact_call"] == found["tool"] == 1


@pytest.mark.parametrize("wrong", [{"cascade": "x"}, {"cascade": -1.0}, {"seed": float("nan")}])
def test_a_setting_that_is_not_a_number_is_named(scored: Any, gold: list[Row], wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))}=.*: give 0 or more"):
        scored([right(gold[0])], **wrong)
