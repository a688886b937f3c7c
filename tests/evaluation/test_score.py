"""Scores of predictions: planted predictors are measured as what they are, and what is wrong with a file is said."""

from __future__ import annotations

import gzip
import json
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.little import corpus, rows, says, trace, user
from evaluation.planted import build_dataset, guess_at, write_lines
from foretrace.core.errors import PredictionError, UsageError
from foretrace.core.predictions import PredictedCall, Prediction, digest_dataset
from foretrace.evaluation.dataset_rows import ACTIONS, GoldStep
from foretrace.evaluation.figures import ASPECTS, is_eligible, judge_completion, judge_guesses
from foretrace.evaluation.score import score
from foretrace.evaluation.score_report import ScoreReport

Row = dict[str, Any]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_dataset(tmp_path_factory.mktemp("score"), corpus(24))


@pytest.fixture(scope="module")
def gold(dataset: Path) -> list[Row]:
    return sorted(rows(dataset, "eval"), key=lambda row: (row["key"], row["step"]))


@pytest.fixture
def scored(dataset: Path, tmp_path: Path) -> Callable[..., ScoreReport]:
    return lambda *lines, **more: score(write_lines(tmp_path / "p.jsonl", *lines), dataset, **more)


def at(row: Row) -> Row:
    return {"key": row["key"], "step": row["step"]}


def right(row: Row) -> Row:
    return at(row) | {"completion": row["completion"][0]["content"]}


def figures(report: ScoreReport, name: str = "natural") -> dict[str, float]:
    return {row.metric: row.value for row in report.scores if row.slice == name}


def test_top_k_looks_at_the_first_k_guesses(scored: Any, gold: list[Row]) -> None:
    """The right guess stands at rank 1 + number modulo 7; rank 7 is not there."""
    gold = [row for row in gold if row["natural"]]
    lines = [
        guess_at(row, right=rank == 1 + number % 7, rank=rank)
        for number, row in enumerate(gold)
        for rank in range(1, 7)
    ]
    found = figures(scored(*lines))
    for k, name in ((1, "type_accuracy"), (3, "type_accuracy@3"), (5, "type_accuracy@5")):
        assert found[name] == round(sum(number % 7 < k for number in range(len(gold))) / len(gold), 4)
    assert found["exact_call"] < found["exact_call@3"] < found["exact_call@5"] < 1


def test_eligible_steps_read_and_were_answered(scored: Any, gold: list[Row]) -> None:
    """In these traces: `ls` and two `cat`; with `sandbox_exec` also pytest. Nothing that ends the attempt."""
    of_natural = [row for row in gold if row["natural"]]
    reads = [row for row in of_natural if row["effect"] == "pure_read" and row["tool"]]
    runs = [row for row in of_natural if row["effect"] == "sandbox_exec"]
    report = scored(*(guess_at(row, right=row["effect"] == "pure_read") for row in gold))
    assert report.eligible == len(reads) > 20 and runs
    assert figures(report, "eligible") == dict.fromkeys(ASPECTS, 1)
    wider = scored(*(guess_at(row, right=row["effect"] == "pure_read") for row in gold), allow=["sandbox_exec"])
    assert figures(wider, "eligible")["exact_call"] == round(len(reads) / (len(reads) + len(runs)), 4)
    assert figures(wider) == figures(report)
    with pytest.raises(UsageError, match="is not safe to run early"):
        scored(guess_at(gold[0]), allow=["local_write"])


def step(number: int = 0, *calls: PredictedCall, action: str = "file_read", **more: Any) -> GoldStep:
    values: Row = {
        "key": "k", "step": number, "task": "t", "group": "g", "source": "s", "action": action,
        "tool": calls[0].tool if calls else "", "calls": calls, "effect": "pure_read",
        "next_actions": ("file_read",) * 5, "slices": ("natural",),
    }  # fmt: skip
    return GoldStep(**values | more)


def test_a_call_that_nobody_waited_for_is_not_eligible() -> None:
    call = PredictedCall("view")
    assert is_eligible(step(0, call), {"pure_read"})
    assert not is_eligible(step(0), {"pure_read"}), "no call"
    assert not is_eligible(step(0, call, next_actions=("file_read",)), {"pure_read"}), "the last step"
    assert not is_eligible(step(0, call, effect="unknown"), {"pure_read", "sandbox_exec"})


def test_a_planted_difference_is_found(scored: Any, gold: list[Row], tmp_path: Path) -> None:
    """Right at 7 of 10 rows and at 4 of 10 of the same rows: 30 points, whichever file comes first."""
    rng = random.Random(0)
    drawn = [rng.random() for _ in gold]
    good, bad = ([guess_at(r, right=d < p) for r, d in zip(gold, drawn, strict=True)] for p in (0.7, 0.4))
    report = scored(*good, against=write_lines(tmp_path / "o.jsonl", *bad))
    assert report.against is not None
    first = {(d.slice, d.metric): d for d in report.against.differences}
    for each in first.values():
        assert each.low <= each.value <= each.high
    exact = first["natural", "type_accuracy"]
    assert exact.low > 0.1 and exact.value == pytest.approx(0.3, abs=0.1)
    back = scored(*bad, against=write_lines(tmp_path / "o.jsonl", *good)).against
    assert back is not None
    assert {(d.slice, d.metric): d.value for d in back.differences} == {at: -d.value for at, d in first.items()}


def test_differences_are_over_tasks(tmp_path: Path) -> None:
    """Twelve groups of eight tasks, right on half of the groups, against nothing right: the difference is the figure
    itself, and its interval is that of 96 tasks where the figure's is that of 12 groups."""
    every = [trace(f"k{n}", user(f"Ask {n}"), says("Yes."), task=f"t{n}", group=f"g{n % 12}") for n in range(96)]
    dataset = build_dataset(tmp_path, every, split=(0.02, 0, 0.98))
    gold = list(rows(dataset, "eval"))
    ours = write_lines(tmp_path / "p.jsonl", *(guess_at(row, right=int(row["group"][1:]) % 2 == 0) for row in gold))
    theirs = write_lines(tmp_path / "o.jsonl", *(guess_at(row, right=False) for row in gold))
    report = score(ours, dataset, against=theirs)
    assert report.against is not None
    own = next(row for row in report.scores if (row.slice, row.metric) == ("natural", "type_accuracy"))
    each = next(row for row in report.against.differences if (row.slice, row.metric) == ("natural", "type_accuracy"))
    assert each.value == own.value and own.high - own.low > 1.8 * (each.high - each.low) > 0.2


def test_predictions_of_another_version_are_refused(scored: Any, dataset: Path, gold: list[Row]) -> None:
    """By the digest in the header; and predictions of other rows by its config."""
    header = {"predictions": 1, "predictor": "mine", "dataset": digest_dataset(dataset)}
    lines = [guess_at(row) for row in gold]
    assert scored(header, *lines).predictor == "mine"
    with pytest.raises(PredictionError, match=r"another version of .* or allow_other_version=True takes what fits"):
        scored(header | {"dataset": "00"}, *lines)
    assert scored(header | {"dataset": "00"}, *lines, allow_other_version=True).missing == 0
    others = [{"key": f"other{n}", "step": 1, "action": "repair"} for n in range(11)]
    with pytest.raises(PredictionError, match=r"11 of 21 steps are not among the eval rows .* allow_partial=True"):
        scored(*others, *lines[:10])
    report = scored(*others, *lines[:10], allow_partial=True)
    assert (report.unknown, report.missing) == (11, len(gold) - 10)
    with pytest.raises(PredictionError, match="predicts rows of the config proposer"):
        scored(header | {"config": "proposer"}, *lines)


def test_what_is_wrong_with_lines_is_counted(scored: Any, gold: list[Row]) -> None:
    """A confidence that is none counts as not given, a torn last line as not there."""
    good = [guess_at(row, confidence=0.5) for row in gold[3:]]
    bad = [guess_at(gold[0], confidence=2), json.dumps(guess_at(gold[1], confidence=float("nan"))) + "\n"]
    report = scored(*good, *bad, json.dumps(guess_at(gold[2]))[:-5])
    assert report.problems == {"bad_confidence": 2, "torn_last_line": 1}
    assert (report.missing, report.unreadable) == (1, 0)
    call = next(each for each in report.calibration or () if each.of == "guess")
    assert (call.n, call.without_confidence) == (len(good), 3)
    assert scored(*(guess_at(row) for row in gold)).calibration is None


def test_types_alone(tmp_path: Path) -> None:
    """A dataset of types asks nothing of calls, and what is said of them does no harm."""
    dataset = build_dataset(tmp_path, corpus(12), target="type")
    gold = list(rows(dataset, "eval"))
    lines = [guess_at(row, confidence=1.0) for row in gold]
    lines[0]["prediction"] |= {"tool": "bash", "arguments": {}}
    report = score(write_lines(tmp_path / "p.jsonl", *lines), dataset)
    assert set(figures(report)) >= {"type_accuracy"} and "exact_call" not in figures(report)
    assert [(each.of, each.ece) for each in report.calibration or ()] == [("type", 0)]
    assert figures(report)["right"] == 1


@given(
    data=st.data(),
    gold=st.lists(st.sampled_from(["file_read", "verifier"]), min_size=1, max_size=6),
    k=st.integers(1, 5),
)
def test_more_guesses_never_do_worse(data: st.DataObject, gold: list[str], k: int) -> None:
    steps = [step(number, action=action) for number, action in enumerate(gold)]
    guesses = {
        ("k", number): [
            Prediction(key="k", step=number, rank=rank, action=data.draw(st.sampled_from([*ACTIONS, "fly", None])))
            for rank in range(1, 6)
        ]
        for number in range(len(gold))
    }
    judged = judge_guesses(steps, guesses, "call")
    for aspect in judged.first_right:
        few, many = judged.is_right(aspect, k), judged.is_right(aspect, k + 1)
        assert not (few & ~many).any()
    assert not (judged.is_right("exact_call") & ~judged.is_right("normalized_call")).any()
    assert not (judged.is_right("exact_call") & ~judged.is_right("tool")).any()
    assert not (judged.is_right() & ~judged.is_right("exact_call")).any()


def test_a_file_without_predictions_is_no_score_of_0(dataset: Path, tmp_path: Path) -> None:
    for path in (write_lines(tmp_path / "empty.jsonl"), write_lines(tmp_path / "head.jsonl", {"predictions": 1})):
        with pytest.raises(PredictionError, match="holds no predictions"):
            score(path, dataset)
    packed = tmp_path / "p.jsonl.gz"
    packed.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(PredictionError, match=r"p\.jsonl\.gz: is compressed, or is not text"):
        score(packed, dataset)


READ = '{"action": "file_read", "tool": "bash", "arguments": {"command": "cat a.py"}}'


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        (f"<think>so</think>```json\n{READ}\n``` and more", (1, 1, 1, 1, 1)),
        (READ.replace("a.py", "./a.py"), (1, 1, 0, 1, 0)),
        (READ.replace("file_read", "verifier").replace("a.py", "b.py"), (0, 1, 0, 0, 0)),
        (READ.replace("file_read", "reading"), (0, 0, 0, 0, 0)),
        ("cat a.py", (0, 0, 0, 0, 0)),
    ],
)
def test_one_completion_is_judged_like_a_file_of_them(completion: str, right: tuple[int, ...]) -> None:
    assert tuple(judge_completion(completion, READ).values()) == right


def test_a_step_without_calls_has_no_figures_of_calls() -> None:
    of_type, *of_calls, right = judge_completion('{"action": "final_answer"}', '{"action": "final_answer"}').values()
    assert of_type == right == 1 and all(map(math.isnan, of_calls))


def test_perfect_predictions_score_one(scored: Any, gold: list[Row]) -> None:
    report = scored(*map(right, gold))
    assert len(gold) > 60 and report.rows == len(gold)
    assert (report.missing, report.unreadable, report.unknown) == (0, 0, 0)
    assert {s.slice for s in report.scores} == {"natural", "balanced", "eligible"}
    assert all((s.value, s.low, s.high) == (1, 1, 1) for s in report.scores)
    present = {f"f1/{ACTIONS[r['action']]}" for r in gold}
    metrics = {"type_accuracy", "macro_f1", "tool", "exact_call", "normalized_call", "right"}
    assert set(figures(report)) == metrics | present, "one guess a step has no top-3"


def test_a_folder_of_files_that_another_program_wrote_scores_as_one_file(
    scored: Any, gold: list[Row], dataset: Path, tmp_path: Path
) -> None:
    """Parquet and JSON lines: each row once, whichever file it is in; text, messages or fields."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    expected = scored(*map(right, gold))
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


def test_f1_is_that_of_scikit_learn(scored: Any, gold: list[Row]) -> None:
    from sklearn.metrics import accuracy_score, f1_score

    rng = random.Random(0)
    guesses = [at(r) | {"action": ACTIONS[r["action"]] if rng.random() < 0.5 else rng.choice(ACTIONS)} for r in gold]
    for name in ("natural", "balanced"):
        pairs = [(ACTIONS[r["action"]], g["action"]) for r, g in zip(gold, guesses, strict=True) if r[name]]
        wanted, guessed = zip(*pairs, strict=True)
        present = sorted(set(wanted))
        found = figures(scored(*guesses), name)
        assert found["type_accuracy"] == round(accuracy_score(wanted, guessed), 4)
        macro = f1_score(wanted, guessed, labels=present, average="macro", zero_division=0)
        assert found["macro_f1"] == pytest.approx(macro, abs=1e-4)
        each = f1_score(wanted, guessed, labels=present, average=None, zero_division=0)
        for label, value in zip(present, each, strict=True):
            assert found[f"f1/{label}"] == pytest.approx(value, abs=1e-4)


def test_missing_unreadable_and_unknown_predictions_are_counted(scored: Any, gold: list[Row]) -> None:
    """Missing and unreadable ones are wrong; unknown ones are ignored."""
    bad: list[Any] = ["no JSON", "[1]", '{"action": "fly"}', "", None, 7, ["x"], [], '{"action": ["file_read"]}']
    predictions = [at(r) | {"completion": b} for r, b in zip(gold, bad, strict=False)]
    predictions[4] = at(gold[4])
    rest = gold[len(bad) :]
    predictions += [right(r) for r in rest[3:]]
    predictions += [{"key": "nobody", "step": step, "action": "repair"} for step in (1, 3)]
    report = scored(*predictions)
    assert (report.missing, report.unreadable, report.unknown) == (3, len(bad), 2)
    natural = [r for r in gold if r["natural"]]
    lost = sum(r in natural for r in [*gold[: len(bad)], *rest[:3]])
    assert figures(report)["type_accuracy"] == round(1 - lost / len(natural), 4)


WILD = [
    '{"action":"repair","tool":"\\ud800","arguments":{"a":"\\ud800"}}',
    '{"action":"repair","tool":7,"arguments":[1]}',
    '{"action":"repair","arguments":{"n":NaN,"m":1e999,"k":123456789012345678901234567890}}',
    '{"action":' + "[" * 5000,
    '{"action":"repair","arguments":"no json"}',
    '{"action":"repair","n":' + "9" * 5000 + "}",
]


@pytest.mark.parametrize("text", WILD)
def test_what_a_model_makes_up_never_breaks_the_score(scored: Any, gold: list[Row], text: str) -> None:
    report = scored(at(gold[0]) | {"completion": text}, *map(right, gold[1:]))
    assert report.missing == 0 and figures(report)["exact_call"] < 1


@pytest.mark.parametrize("wrong", [{"cascade": "x"}, {"cascade": -1.0}, {"seed": float("nan")}])
def test_a_setting_that_is_not_a_number_is_named(scored: Any, gold: list[Row], wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))}=.*: give 0 or more"):
        scored(right(gold[0]), **wrong)
