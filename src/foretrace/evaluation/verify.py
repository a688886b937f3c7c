"""Add a verifier's scores to predictions, or to the pairs of a dataset: from a chat model, or from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.core.completion import ChatMessage
from foretrace.core.digest import digest
from foretrace.core.errors import PredictionError, Setting
from foretrace.core.pair_scores import PairPlace, PairScore, PairScoresHeader, read_pair_scores, write_pair_scores
from foretrace.core.predictions import (
    Prediction,
    PredictionsFile,
    PredictionsHeader,
    digest_dataset,
    read_json_lines,
    read_number,
    read_place,
    read_predictions,
    read_rank,
    write_predictions,
)
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.report import Report
from foretrace.evaluation.ask_verifier import Answers, Question, ask_all
from foretrace.evaluation.gold_steps import read_columns, read_target
from foretrace.evaluation.yes_or_no import QUESTION
from foretrace.models.base import ChatModel

_SIDES = ("chosen", "rejected")
_SCORE_LINE = "score of a prediction"
_encoder = msgspec.json.Encoder(order="sorted")


class VerifyReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """What was scored."""

    out: str
    verifier: str
    dataset: str = ""
    what: Literal["predictions", "pairs"] = "predictions"
    rows: int
    scored: int
    """Scores that were given: one a prediction, two a pair."""
    already_done: int = 0
    """Of them, and of the answers that were neither yes nor no, those of an earlier run of the same command."""
    no_action: int = 0
    """Predictions that hold no action: there is nothing to score."""
    unknown: int = 0
    """Predictions for steps that the dataset does not have: without a score."""
    unreadable: int = 0
    """Answers that are neither yes nor no: without a score."""
    without_logprobs: int = 0
    """Scores that are 1 or 0, since the model's server tells no logprobs."""
    failed: dict[str, int] = {}
    """Requests that can never succeed, by kind: without a score."""
    missing: int = 0
    """Predictions for which a file of scores has none."""
    unused: int = 0
    """Scores of a file for predictions that are not there."""
    problems: dict[str, int] = {}
    """Lines with a fault, of the predictions and of the file of scores."""
    latency_s: dict[str, float] = {}


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is asked."""

    concurrency: int = 8
    """Requests at one time."""
    max_tokens: int = 8
    """Of an answer."""


async def verify_predictions(
    predictions: Path,
    dataset: Path,
    out: Path,
    model: ChatModel,
    asking: Asking,
    *,
    allow_other_version: bool = False,
    progress: ProgressFunc | None = None,
) -> VerifyReport:
    """Score each prediction with a model, and write them all with their scores. A file that the same call has written,
    with a score of every guess, is left as it is.

    Raises:
        PredictionError: predictions or a dataset that cannot be read, or that do not fit; or requests that failed and
            may succeed another time: what was answered is kept, and the same call goes on.
        ModelError: the model failed for good; what was answered is kept, and the same call goes on.
        StoreError: another process writes the same file.
    """
    target = read_target(dataset)
    file = read_predictions(predictions)
    header, steps = _check_fit(file, dataset, target, allow_other_version)
    if (done := _find_scored(out, model.spec, header, file, steps)) is not None:
        return done
    guesses = {at: [row for row in rows if row.action is not None] for at, rows in file.by_step().items()}
    found: set[tuple[str, int]] = set()

    def list_questions() -> Iterator[Question]:
        for row in read_columns(dataset, header.config, "*", ("key", "step", "prompt")):
            at = (row["key"], row["step"])
            if at in guesses and at not in found:
                found.add(at)
                for guess in guesses[at]:
                    yield Question(_name(guess), _make_messages(row["prompt"]), make_guess_text(guess, target))

    total = sum(map(len, guesses.values()))
    run = {"dataset": header.dataset, "predictions": digest(predictions.read_bytes().decode("utf-8", "replace"))}
    answers = await _ask(model, list_questions(), out, run, asking, total, progress)
    unknown = sum(len(rows) for at, rows in guesses.items() if at not in found)
    rows = [msgspec.structs.replace(row, score=answers.find_score(_name(row))) for row in file.rows]
    latency = answers.measure_latency()
    header = msgspec.structs.replace(header, verifier=model.spec, verifier_latency_s=latency)
    write_predictions(out, header, rows)
    answers.remove()
    return _make_report(
        out,
        model,
        answers,
        rows=len(rows),
        no_action=sum(row.action is None for row in file.rows),
        unknown=unknown,
        problems=_drop_no_action(file.problems),
    )


async def verify_pairs(
    dataset: Path, out: Path, model: ChatModel, asking: Asking, *, progress: ProgressFunc | None = None
) -> VerifyReport:
    """Score both actions of each pair in the test split of `verifier`, and write the scores.

    Raises:
        PredictionError: a dataset without pairs.
        ModelError: as in `verify_predictions`.
    """
    read_target(dataset)
    places: list[PairPlace] = []
    columns = ("key", "step", "family", "pair")

    def list_questions() -> Iterator[Question]:
        for row in read_columns(dataset, "verifier", "test", (*columns, "prompt", *_SIDES)):
            place = PairPlace(*(row[name] for name in columns))
            places.append(place)
            prompt = _make_messages(row["prompt"])
            for side in _SIDES:
                yield Question(_name_side(place, side), prompt, row[side][0]["content"])

    own = digest_dataset(dataset)
    settings = {"question": QUESTION, "max_tokens": asking.max_tokens}
    if (done := _find_scored_pairs(out, model.spec, own, settings)) is not None:
        return done
    total = 2 * sum(1 for _ in read_columns(dataset, "verifier", "test", ("key",)))
    if not total:
        raise PredictionError(f"{dataset}: has no test rows of the config verifier")
    answers = await _ask(model, list_questions(), out, {"dataset": own}, asking, total, progress)
    scores = [
        PairScore(place=place, **{side: answers.find_score(_name_side(place, side)) for side in _SIDES})
        for place in places
    ]
    header = PairScoresHeader(
        verifier=model.spec,
        dataset=own,
        latency_s=answers.measure_latency(),
        settings=settings,
    )
    write_pair_scores(out, header, scores)
    answers.remove()
    return _make_report(out, model, answers, rows=len(scores))


def add_scores(
    predictions: Path, dataset: Path, out: Path, scores: Path, *, allow_other_version: bool = False
) -> VerifyReport:
    """Add the scores of a file to predictions: lines of JSON with `key`, `step`, `rank` (1 where it is absent) and
    `score`.

    Raises:
        PredictionError: a file that cannot be read, or without a score that is a number; scores that are there twice,
            or most of which fit no prediction.
    """
    target = read_target(dataset)
    file = read_predictions(predictions)
    header, _ = _check_fit(file, dataset, target, allow_other_version)
    problems: Counter[str] = Counter(_drop_no_action(file.problems))
    found: dict[tuple[str, int, int], float | None] = {}
    lines = 0
    for number, value in read_json_lines(scores, _SCORE_LINE, problems):
        where = f"{scores} line {number}"
        key, step = read_place(value, where, _SCORE_LINE)
        at = (key, step, read_rank(value, where, _SCORE_LINE))
        if "score" not in value:
            raise PredictionError(f"{where}: is no {_SCORE_LINE}: it has no score")
        if at in found:
            raise PredictionError(f"{where}: a second score for {key} step {step} rank {at[2]}")
        found[at] = read_number(value, "score", problems, float("-inf"), float("inf"))
        lines += 1
    if not lines:
        raise PredictionError(f"{scores}: holds no scores")
    if all(score is None for score in found.values()):
        raise PredictionError(f"{scores}: none of its {lines:,} scores is a number")
    rows = [msgspec.structs.replace(row, score=found.pop((row.key, row.step, row.rank), None)) for row in file.rows]
    if len(found) > lines - len(found):
        raise PredictionError(
            f"{scores}: {len(found):,} of {lines:,} scores are for predictions that are not in {predictions}; name the "
            "file whose predictions were scored"
        )
    write_predictions(out, msgspec.structs.replace(header, verifier=scores.name), rows)
    return VerifyReport(
        out=str(out),
        verifier=scores.name,
        rows=len(rows),
        scored=sum(row.score is not None for row in rows),
        missing=sum(row.score is None for row in rows),
        unused=len(found),
        problems=dict(sorted((+problems).items())),
    )


def make_guess_text(guess: Prediction, target: str) -> str:
    """A guess as the dataset writes targets: what a verifier is shown is in the form of what it was trained on."""
    text = f'{{"action":{_encode(guess.action)}'
    if target == "type":
        return text + "}"
    if not guess.calls:
        return text + ',"tool":null,"arguments":{}}'
    first, *more = (f'"tool":{_encode(call.tool)},"arguments":{_canonicalise(call.arguments)}' for call in guess.calls)
    listed = ",".join(f"{{{call}}}" for call in more)
    return f'{text},{first},"more":[{listed}]}}' if more else f"{text},{first}}}"


def _encode(value: Any) -> str:
    return _encoder.encode(value).decode()


def _canonicalise(arguments: str) -> str:
    try:
        return _encode(msgspec.json.decode(arguments))
    except (msgspec.DecodeError, RecursionError):
        return _encode(arguments)


def _check_fit(
    file: PredictionsFile, dataset: Path, target: str, allow_other_version: bool
) -> tuple[PredictionsHeader, set[tuple[str, int]]]:
    """The header that the scored file gets, and the steps of the rows that were predicted.

    Raises:
        PredictionError: there is nothing to score, or the predictions are for another version of the dataset.
    """
    own = digest_dataset(dataset)
    header = file.header or PredictionsHeader(target=target, steps=len(file.by_step()))
    file.check_not_empty()
    if header.dataset and header.dataset != own and not allow_other_version:
        raise PredictionError(
            f"{file.path}: was made for another dataset, or another version of {dataset}: predict again, or ",
            Setting("allow_other_version", True),
            " verifies what fits",
        )
    steps = {(row["key"], row["step"]) for row in read_columns(dataset, header.config, "*", ("key", "step"))}
    unknown = sum((row.key, row.step) not in steps for row in file.rows)
    if 2 * unknown > len(file.rows):
        raise PredictionError(
            f"{file.path}: {unknown:,} of {len(file.rows):,} predictions are for rows that are not among the "
            f"{header.config} rows of {dataset}: name the dataset whose prompts were answered"
        )
    return (header if header.dataset else msgspec.structs.replace(header, dataset=own)), steps


def _find_scored(
    out: Path, verifier: str, header: PredictionsHeader, file: PredictionsFile, steps: set[tuple[str, int]]
) -> VerifyReport | None:
    """The report on a file that an earlier run of the same has finished; None where there is none, or where a guess is
    without a score."""
    try:
        found = read_predictions(out)
    except PredictionError:
        return None
    old = found.header
    if old is None or old.verifier != verifier:
        return None
    expected = msgspec.structs.replace(header, verifier=verifier, verifier_latency_s=old.verifier_latency_s)
    if old != expected or _drop_scores(found.rows) != _drop_scores(file.rows):
        return None
    asked = [row.score for row in found.rows if row.action is not None and (row.key, row.step) in steps]
    if None in asked or not asked:
        return None
    without_action = sum(row.action is None for row in found.rows)
    return VerifyReport(
        out=str(out),
        verifier=verifier,
        rows=len(found.rows),
        scored=len(asked),
        already_done=len(asked),
        no_action=without_action,
        unknown=len(found.rows) - len(asked) - without_action,
        without_logprobs=len(asked) if {*asked} <= {0.0, 1.0} else 0,
        problems=_drop_no_action(file.problems),
        latency_s=old.verifier_latency_s,
    )


def _drop_scores(rows: Sequence[Prediction]) -> list[Prediction]:
    return [msgspec.structs.replace(row, score=None) for row in rows]


def _find_scored_pairs(out: Path, verifier: str, dataset: str, settings: dict[str, Any]) -> VerifyReport | None:
    """The report on scores of pairs that an earlier run of the same has finished; None where there are none, or where
    one is missing."""
    try:
        found = read_pair_scores(out)
    except PredictionError:
        return None
    header = PairScoresHeader(verifier=verifier, dataset=dataset, settings=settings)
    if found.header is None or msgspec.structs.replace(found.header, latency_s={}) != header:
        return None
    scores = [score for pair in found.scores.values() for score in (pair.chosen, pair.rejected)]
    if None in scores or not scores:
        return None
    return VerifyReport(
        out=str(out),
        verifier=verifier,
        rows=len(found.scores),
        scored=len(scores),
        already_done=len(scores),
        without_logprobs=len(scores) if {*scores} <= {0.0, 1.0} else 0,
        latency_s=found.header.latency_s,
    )


def _drop_no_action(problems: dict[str, int]) -> dict[str, int]:
    """The faults, without what is counted by itself."""
    return {name: count for name, count in problems.items() if name != "no_action"}


def _make_messages(prompt: Sequence[dict[str, str]]) -> tuple[ChatMessage, ...]:
    return tuple(msgspec.convert(message, ChatMessage) for message in prompt)


def _name(guess: Prediction) -> str:
    return _encode([guess.key, guess.step, guess.rank])


def _name_side(place: PairPlace, side: str) -> str:
    return _encode([*place, side])


async def _ask(
    model: ChatModel,
    questions: Iterator[Question],
    out: Path,
    run: dict[str, Any],
    asking: Asking,
    total: int,
    progress: ProgressFunc | None,
) -> Answers:
    """The answers, of which the journal is still there."""
    about = {"model": model.spec, "question": QUESTION, "max_tokens": asking.max_tokens, **run}
    answers = Answers(out, about)
    report = progress or ignore_progress
    report("verifying", 0, total)
    try:
        await model.probe()
        await ask_all(
            model,
            questions,
            answers,
            concurrency=asking.concurrency,
            max_tokens=asking.max_tokens,
            report_done=lambda done: report("verifying", done, total),
        )
    except BaseException:
        answers.close()
        raise
    if answers.to_ask_again:
        answers.close()
        raise PredictionError(
            f"{model.spec}: {answers.to_ask_again.total():,} of {total:,} requests failed, e.g. {answers.example}; "
            f"what was answered is kept in {answers.path}; run it again to ask for the rest"
        )
    scored, unreadable, _ = answers.count()
    if not scored and (unreadable or answers.failed):
        answers.remove()
        failed = ", ".join(f"{kind} {count}" for kind, count in sorted(answers.failed.items()))
        raise PredictionError(
            f"{model.spec}: nothing could be scored: {unreadable:,} answers are neither yes nor no"
            f"{f'; requests failed: {failed}' if failed else ''}; a model that thinks first needs a larger ",
            Setting("max_tokens"),
        )
    return answers


def _make_report(out: Path, model: ChatModel, answers: Answers, **more: Any) -> VerifyReport:
    scored, unreadable, without_logprobs = answers.count()
    return VerifyReport(
        out=str(out),
        verifier=model.spec,
        scored=scored,
        already_done=answers.already_done,
        unreadable=unreadable,
        without_logprobs=without_logprobs,
        failed=dict(sorted(answers.failed.items())),
        latency_s=answers.measure_latency(),
        **more,
    )
