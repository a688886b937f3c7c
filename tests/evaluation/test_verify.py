"""Verifying: what a model is asked, what its answers are worth, files of scores and of pairs, and runs that go on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.little import corpus, rows
from evaluation.planted import build_dataset, guess_at, write_lines
from foretrace.api.evaluation import verify, verify_pairs
from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, PredictionError, UsageError
from foretrace.core.predictions import digest_dataset, read_predictions
from foretrace.evaluation.pair_accuracy import (
    PairPlace,
    PairScores,
    PairScoresHeader,
    is_pair_scores,
    read_pair_scores,
    score_pairs,
    write_pair_scores,
)
from foretrace.evaluation.score import score
from foretrace.evaluation.verify import QUESTION, VerifyReport, read_verdict
from foretrace.models.servers.scripted import Scripted

Row = dict[str, Any]
REPAIR: Row = {"rank": 2, "prediction": {"action": "repair", "tool": None}}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_dataset(tmp_path_factory.mktemp("verify"), corpus(24))


@pytest.fixture(scope="module")
def gold(dataset: Path) -> list[Row]:
    return list(rows(dataset, "eval"))[:20]


@pytest.fixture
def predictions(gold: list[Row], tmp_path: Path) -> Path:
    """Two guesses a step: the right one, and a repair without a call."""
    return write_lines(tmp_path / "p.jsonl", *(guess_at(row, **which) for row in gold for which in ({}, REPAIR)))


def says(yes_to: str, logprob: float = -0.1) -> Scripted:
    """A model that says yes to actions with this text, as sure as `logprob`."""

    def respond(request: Request) -> Completion:
        word = "Yes" if yes_to in request.messages[-2].content else "no"
        return Completion(text=f"{word}.", pieces=(word, "."), logprobs=(logprob, -9.0), seconds=0.25)

    return Scripted("judge", scripts=respond)


def test_what_is_asked(dataset: Path, predictions: Path, gold: list[Row], tmp_path: Path) -> None:
    """The prompt of the row, the action in the form of the dataset's targets, and the question."""
    seen: list[Request] = []

    def respond(request: Request) -> str:
        seen.append(request)
        return "yes"

    verify(predictions, dataset, out=tmp_path / "s.jsonl", model=Scripted("judge", scripts=respond))
    prompts = {tuple((m["role"], m["content"]) for m in row["prompt"]): row for row in gold}
    assert len(seen) == 40
    for request in seen:
        *prompt, action, question = ((message.role, message.content) for message in request.messages)
        row = prompts[tuple(prompt)]
        assert action in (
            ("assistant", row["completion"][0]["content"]),
            ("assistant", '{"action":"repair","tool":null,"arguments":{}}'),
        )
        assert question == ("user", QUESTION)
        assert request.sampling.temperature == 0 and request.logprobs


def test_scores_are_added_and_all_else_stays(dataset: Path, predictions: Path, gold: list[Row], tmp_path: Path) -> None:
    report = verify(predictions, dataset, out=tmp_path / "s.jsonl", model=says('"tool":"bash"'))
    assert (report.rows, report.scored, report.unreadable, report.without_logprobs) == (40, 40, 0, 0)
    assert report.latency_s == {"p50": 0.25, "p95": 0.25, "mean": 0.25}
    before, after = read_predictions(predictions), read_predictions(tmp_path / "s.jsonl")
    assert after.header is not None and after.header.verifier == "scripted:judge"
    assert after.header.dataset == digest_dataset(dataset) and after.header.verifier_latency_s["p50"] == 0.25
    tools = {(row["key"], row["step"]): row["tool"] for row in gold}
    for old, new in zip(before.rows, after.rows, strict=True):
        assert (new.key, new.step, new.rank, new.action, new.calls) == (
            old.key, old.step, old.rank, old.action, old.calls,
        )  # fmt: skip
        yes = new.rank == 1 and tools[new.key, new.step] == "bash"
        assert new.score == pytest.approx(math.exp(-0.1) if yes else 1 - math.exp(-0.1), abs=1e-6)
    found = score(tmp_path / "s.jsonl", dataset).verifier
    assert found is not None and found.verifier == "scripted:judge" and found.auroc.n == 40
    assert [path.name for path in tmp_path.iterdir() if "journal" in path.name] == []


@pytest.mark.parametrize(
    ("completion", "score_of_it", "has_logprobs"),
    [
        (Completion(text="Yes", pieces=("Y", "es"), logprobs=(-0.1, -0.2)), math.exp(-0.3), True),
        (Completion(text="**no**, it", pieces=("**", "no", "**", ", it"), logprobs=(-5, -0.5, -5, -5)),
         1 - math.exp(-0.5), True),
        (Completion(text="<think>yes? no.</think>\nYES"), 1.0, False),
        (Completion(text="No."), 0.0, False),
        (Completion(text="yes", logprobs=(-0.25,), token_ids=(9,), exact="token"), math.exp(-0.25), True),
        (Completion(text="Yesterday"), None, False),
        (Completion(text="I think yes"), None, False),
        (Completion(text="<think>so long that no answer"), None, False),
        (Completion(text=""), None, False),
        (Completion(text="yes", pieces=("yes",), logprobs=(0.001,)), 1.0, True),
    ],
)  # fmt: skip
def test_the_verdict_of_an_answer(completion: Completion, score_of_it: float | None, has_logprobs: bool) -> None:
    assert read_verdict(completion) == (None if score_of_it is None else pytest.approx(score_of_it), has_logprobs)


def test_answers_that_say_nothing_are_counted(dataset: Path, predictions: Path, tmp_path: Path) -> None:
    model = Scripted("judge", scripts=lambda request: "Maybe" if "repair" in request.messages[-2].content else "yes")
    report = verify(predictions, dataset, out=tmp_path / "s.jsonl", model=model)
    scored = [row.score for row in read_predictions(tmp_path / "s.jsonl").rows]
    assert (report.scored, report.unreadable, report.without_logprobs) == (scored.count(1.0), scored.count(None), 20)
    assert report.unreadable == 20
    with pytest.raises(PredictionError, match=r"40 answers are neither yes nor no; .* max_tokens"):
        verify(
            predictions,
            dataset,
            out=tmp_path / "n.jsonl",
            model=Scripted("judge", scripts=lambda request: "Well"),
        )
    assert not (tmp_path / "n.jsonl").exists() and [*tmp_path.glob("n*")] == []


@pytest.mark.parametrize("pairs", [False, True])
def test_requests_that_may_succeed_later_are_asked_again_and_no_others(
    dataset: Path, predictions: Path, tmp_path: Path, pairs: bool
) -> None:
    """A request that failed in passing leaves no file of half the scores: the same call asks for the rest."""
    out, asked, failing, is_broken = tmp_path / "s.jsonl", 0, set[str](), True

    def respond(request: Request) -> str:
        nonlocal asked
        asked += 1
        if len(failing) < 2:
            failing.add(str(request))
        if str(request) in failing and is_broken:
            raise ModelError("no reply came", kind="empty", retryable=True)
        return "no"

    def judge() -> VerifyReport:
        model = Scripted("judge", scripts=respond)
        return (
            verify_pairs(dataset, out=out, model=model) if pairs else verify(predictions, dataset, out=out, model=model)
        )

    total = 2 * len(list(rows(dataset, "verifier", "test"))) if pairs else 40
    with pytest.raises(PredictionError, match=rf": 2 of {total} requests failed, .*no reply.* kept in .* run it again"):
        judge()
    journal = tmp_path / "s.jsonl.journal"
    answered = journal.read_bytes().count(b"\n") - 1
    assert not out.exists()
    asked, is_broken = 10, False
    report = judge()
    assert (report.already_done, asked) == (answered, 10 + report.scored - answered)
    assert not journal.exists()
    before, again = out.read_bytes(), judge()
    assert (asked, out.read_bytes()) == (10 + report.scored - answered, before), "a finished file is not asked for"
    assert (again.scored, again.already_done, again.without_logprobs) == (report.scored,) * 3


def test_a_file_of_another_model_or_other_predictions_is_not_taken_for_done(
    dataset: Path, predictions: Path, gold: list[Row], tmp_path: Path
) -> None:
    out = tmp_path / "s.jsonl"
    verify(predictions, dataset, out=out, model=says("bash"))
    other = verify(predictions, dataset, out=out, model=Scripted("other", scripts=lambda request: "yes"))
    assert (other.already_done, other.scored) == (0, 40)
    fewer = write_lines(tmp_path / "p.jsonl", *(guess_at(row) for row in gold))
    found = verify(fewer, dataset, out=out, model=Scripted("other", scripts=lambda request: "yes"))
    assert (found.already_done, found.scored) == (0, 20)


def test_requests_that_can_never_succeed_are_counted(dataset: Path, predictions: Path, tmp_path: Path) -> None:
    def respond(request: Request) -> str:
        if "repair" in request.messages[-2].content:
            raise ModelError("too long", kind="overflow")
        return "yes"

    def fail(request: Request) -> str:
        raise ModelError("too long", kind="overflow")

    model = Scripted("judge", scripts=respond)
    report = verify(predictions, dataset, out=tmp_path / "s.jsonl", model=model, concurrency=1)
    assert (report.scored, report.failed) == (20, {"overflow": 20})
    with pytest.raises(PredictionError, match=r"all 40 requests failed, e\.g\. .*too long"):
        verify(predictions, dataset, out=tmp_path / "t.jsonl", model=Scripted("judge", scripts=fail))


def test_scores_of_a_reward_model(dataset: Path, predictions: Path, gold: list[Row], tmp_path: Path) -> None:
    """In any order and range; what is not there stays without a score, and what is none is counted."""
    lines: list[Row] = [{"key": r["key"], "step": r["step"], "score": -7.5 + n} for n, r in enumerate(gold)]
    lines += [{"key": r["key"], "step": r["step"], "rank": 2, "score": -100} for r in gold[:10]]
    lines[3]["score"] = float("nan")
    extra = {"key": "nobody", "step": 1, "score": 1}
    report = verify(
        predictions,
        dataset,
        out=tmp_path / "s.jsonl",
        scores=write_lines(tmp_path / "reward.jsonl", extra, *reversed(lines)),
    )
    assert (report.scored, report.missing, report.unused, report.problems) == (29, 11, 1, {"bad_score": 1})
    found_by_score = score(tmp_path / "s.jsonl", dataset).verifier
    assert found_by_score is not None and found_by_score.without_score == 1
    back = read_predictions(tmp_path / "s.jsonl")
    found = {(row.key, row.step, row.rank): row.score for row in back.rows}
    assert back.header is not None and back.header.verifier == "reward.jsonl"
    for number, row in enumerate(gold):
        assert found[row["key"], row["step"], 1] == (None if number == 3 else -7.5 + number)
        assert found[row["key"], row["step"], 2] == (-100 if number < 10 else None)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([{"key": "k", "step": 1, "score": 1}] * 2, "line 2: a second score for k step 1 rank 1"),
        ([{"key": "k", "step": 1}], "line 1: is not a score of a prediction: it has no score"),
        ([{"step": 1}], "line 1: is not a score of a prediction: it has no key"),
        ([], "r.jsonl: holds no scores"),
        ([{"key": "k", "step": 1, "rank": 0, "score": 1}], "its rank is not a number from 1 on"),
        ([{"key": "k", "step": 1, "score": 1}], "1 of 1 scores are for predictions that are not in"),
        ([{"key": "k", "step": 1, "score": 10**400}], "none of its 1 scores is a number"),
        ([{"key": "k", "step": 10**400, "score": 1}], "its step is not a number"),
    ],
)
def test_bad_scores_are_one_line(dataset: Path, predictions: Path, tmp_path: Path, lines: list[Row], said: str) -> None:
    with pytest.raises(PredictionError, match=said):
        verify(predictions, dataset, out=tmp_path / "s.jsonl", scores=write_lines(tmp_path / "r.jsonl", *lines))
    assert not (tmp_path / "s.jsonl").exists()


def test_predictions_that_do_not_fit(dataset: Path, gold: list[Row], tmp_path: Path) -> None:
    model = says("bash")
    good = [guess_at(row) for row in gold]
    out = tmp_path / "s.jsonl"
    with pytest.raises(PredictionError, match="or allow_other_version=True takes what fits"):
        verify(
            write_lines(tmp_path / "p.jsonl", {"predictions": 1, "dataset": "00"}, *good),
            dataset,
            out=out,
            model=model,
        )
    foreign = [{"key": "other", "step": n, "prediction": {"action": "repair"}} for n in range(30)]
    with pytest.raises(PredictionError, match="30 of 50 steps are not among the eval rows"):
        verify(write_lines(tmp_path / "p.jsonl", *good, *foreign), dataset, out=out, model=model)
    report = verify(write_lines(tmp_path / "p.jsonl", *good, *foreign[:9]), dataset, out=out, model=model)
    assert (report.unknown, report.scored, report.rows) == (9, 20, 29)
    bad = [{"key": r["key"], "step": r["step"], "completion": "nonsense"} for r in gold[:5]]
    report = verify(write_lines(tmp_path / "p.jsonl", *bad, *good[5:]), dataset, out=out, model=model)
    assert (report.no_action, report.scored, report.problems) == (5, 15, {})
    with pytest.raises(PredictionError, match="holds no predictions"):
        verify(write_lines(tmp_path / "p.jsonl"), dataset, out=out, model=model)
    for both in ({}, {"model": model, "scores": "x"}):
        with pytest.raises(UsageError, match="verify takes either model or scores"):
            verify(tmp_path / "p.jsonl", dataset, out=out, **both)
    with pytest.raises(UsageError, match="concurrency=0: give 1 or more"):
        verify(tmp_path / "p.jsonl", dataset, out=out, model=model, concurrency=0)


def test_pairs(dataset: Path, tmp_path: Path) -> None:
    """A model that knows the right answers prefers all of them; one that always says the same gets one half."""
    pairs = list(rows(dataset, "verifier", "test"))
    right = {(json.dumps(row["prompt"]), row["chosen"][0]["content"]) for row in pairs}

    def know(request: Request) -> str:
        prompt = [{"role": m.role, "content": m.content} for m in request.messages[:-2]]
        return "yes" if (json.dumps(prompt), request.messages[-2].content) in right else "no"

    report = verify_pairs(dataset, out=tmp_path / "know.jsonl", model=Scripted("judge", scripts=know))
    assert (report.rows, report.scored) == (len(pairs), 2 * len(pairs)) and len(pairs) > 20
    found = score_pairs(tmp_path / "know.jsonl", dataset)
    assert {row.accuracy.value for row in found.families} == {1.0} and found.verifier == "scripted:judge"
    assert [row.name for row in found.families] == ["", *sorted({row["family"] for row in pairs})]
    assert found.families[0].accuracy.n == len(pairs) == sum(row.accuracy.n for row in found.families[1:])
    verify_pairs(dataset, out=tmp_path / "same.jsonl", model=says("", -0.5))
    assert {row.accuracy.value for row in score_pairs(tmp_path / "same.jsonl", dataset).families} == {0.5}


def test_pair_scores_of_a_reward_model(dataset: Path, tmp_path: Path) -> None:
    """Half preferred rightly; what is missing is wrong, and counted."""
    pairs = list(rows(dataset, "verifier", "test"))
    places = [{name: row[name] for name in ("key", "step", "family", "pair")} for row in pairs]
    lines = [place | {"chosen": n % 2, "rejected": 0.5} for n, place in enumerate(places)]
    report = score_pairs(write_lines(tmp_path / "r.jsonl", *lines), dataset)
    assert report.families[0].accuracy.value == round((len(pairs) // 2) / len(pairs), 4)
    assert (report.missing, report.unknown, report.problems) == (0, 0, {})
    lines[1]["chosen"] = float("inf")
    report = score_pairs(write_lines(tmp_path / "r.jsonl", *lines[1:]), dataset)
    assert (report.missing, report.problems) == (2, {"bad_chosen": 1})
    assert report.families[0].accuracy.value == round((len(pairs) // 2 - 1) / len(pairs), 4)
    foreign = [line | {"key": "other"} for line in lines]
    with pytest.raises(PredictionError, match="steps are not among the test pairs"):
        score_pairs(write_lines(tmp_path / "r.jsonl", *foreign), dataset)
    header = {"pair_scores": 1, "dataset": "00"}
    with pytest.raises(PredictionError, match="another version of"):
        score_pairs(write_lines(tmp_path / "r.jsonl", header, *lines), dataset)
    assert (
        score_pairs(write_lines(tmp_path / "r.jsonl", header, *lines), dataset, allow_other_version=True).unknown == 0
    )


_NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
_PLACES = st.builds(PairPlace, st.text("k/", max_size=3), st.integers(0, 9), st.text("f"), st.text("p"))
_SCORES = st.dictionaries(_PLACES, st.tuples(_NUMBERS, _NUMBERS), min_size=1, max_size=5)
LINE = {"key": "k", "step": 3, "family": "argument", "pair": "p", "chosen": 1, "rejected": -2.5}


@given(scores=_SCORES)
def test_what_is_written_reads_back(scores: PairScores, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "pairs.jsonl"
    header = PairScoresHeader(verifier="m", dataset="d", latency_s={"p50": 0.1})
    write_pair_scores(path, header, scores)
    assert read_pair_scores(path) == (header, scores, {})
    assert is_pair_scores(path)


def test_a_file_of_someone_else(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", LINE)
    assert is_pair_scores(path)
    assert read_pair_scores(path) == (PairScoresHeader(), {PairPlace("k", 3, "argument", "p"): (1, -2.5)}, {})
    assert not is_pair_scores(write_lines(tmp_path / "o.jsonl", {"key": "k", "step": 3, "prediction": {}}))
    assert not is_pair_scores(write_lines(tmp_path / "o.jsonl", "nonsense\n")) and not is_pair_scores(tmp_path / "none")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([LINE, LINE], "line 2: a second score of the argument pair p at k step 3"),
        ([{"key": "k", "step": 3, "chosen": 1, "rejected": 2}], "line 1: is not a score of a pair: it has no family"),
        ([{"step": 3}], "line 1: is not a score of a pair: it has no key"),
        ([LINE | {"step": "x"}], "line 1: is not a score of a pair: its step is not a number"),
        (["nonsense\n"], "line 1: is not a score of a pair"),
        ([{"pair_scores": 2}], "format 2 of pair scores is not known"),
        ([{"pair_scores": 1, "verifier": 7}], "is not a header of pair scores"),
    ],
)
def test_a_line_that_is_no_score_is_named(tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(PredictionError, match=said):
        read_pair_scores(write_lines(tmp_path / "p.jsonl", *lines))
