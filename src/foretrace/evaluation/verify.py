"""Add a verifier's scores to predictions, or to the pairs of a dataset: from a chat model, or from a file."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.digest import digest
from foretrace.core.errors import PredictionError, Setting
from foretrace.core.predictions import (
    Prediction,
    PredictionsFile,
    PredictionsHeader,
    digest_dataset,
    list_files,
    read_json_lines,
    read_number,
    read_place,
    read_predictions,
    read_rank,
    write_predictions,
    write_target,
)
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.report import Report
from foretrace.evaluation.ask_model import Answer, AnswerJournal, Question, QuestionId, ask_all
from foretrace.evaluation.dataset_rows import check_fit, read_columns, read_target
from foretrace.evaluation.pair_accuracy import PairPlace, PairScoresHeader, write_pair_scores
from foretrace.evaluation.predict import summarize_latency
from foretrace.evaluation.savings import check_number
from foretrace.models.base import ChatModel

QUESTION = "Is this the agent's next action? Answer with one word: yes or no."
"""Asked after the row's prompt and the action, which is shown as the assistant's reply."""
_WORD = re.compile(r"[^A-Za-z]*(yes|no)\b", re.IGNORECASE)
_SIDES = ("chosen", "rejected")
_SCORE_LINE = "score of a prediction"
FindScore = Callable[..., float | None]
"""Called with the parts of a question's id; None if its answer is not a score."""


class VerifyReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """The result of scoring."""

    out: str
    verifier: str
    dataset: str = ""
    what: Literal["predictions", "pairs"] = "predictions"
    rows: int
    scored: int
    """Number of scores given: one per prediction, two per pair."""
    already_done: int = 0
    """Answers, usable or not, that were taken from an earlier run of the same command."""
    no_action: int = 0
    """Predictions without an action: there is nothing to score."""
    unknown: int = 0
    """Predictions for steps that the dataset does not have: not scored."""
    unreadable: int = 0
    """Answers that are neither yes nor no: not scored."""
    without_logprobs: int = 0
    """Scores of 1 or 0, because the model's server gives no logprobs."""
    failed: dict[str, int] = {}
    """Requests that can never succeed, by kind: not scored."""
    missing: int = 0
    """Predictions without a score in the file of scores."""
    unused: int = 0
    """Scores in the file without a prediction."""
    problems: dict[str, int] = {}
    """Faulty lines of the predictions and of the file of scores, by kind."""
    latency_s: dict[str, float] = {}


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is asked: arguments of `foretrace.verify`."""

    concurrency: int = 8
    max_tokens: int = 8

    def __post_init__(self) -> None:
        for name in ("concurrency", "max_tokens"):
            check_number(name, getattr(self, name), lowest=1)


async def verify_predictions(
    predictions: Path,
    dataset: Path,
    out: Path,
    model: ChatModel,
    asking: Asking,
    *,
    allow_other_version: bool = False,
    progress: ProgressFunc = ignore_progress,
) -> VerifyReport:
    """Score each prediction with a model, and write all predictions with their scores. Answers of an earlier run of the
    same command are reused.

    Raises:
        PredictionError: predictions or a dataset that cannot be read or do not fit each other; or requests that failed
            but may succeed another time: all answers are kept, and repeating the call continues.
        ModelError: the model failed permanently.
    """
    target, file = read_target(dataset), read_predictions(predictions)
    header, steps = _check_predictions(file, dataset, target, allow_other_version)
    rows = [row for row in file.rows if row.action is not None and (row.key, row.step) in steps]
    no_action = sum(row.action is None for row in file.rows)
    guesses: dict[tuple[str, int], list[Prediction]] = {}
    for row in rows:
        guesses.setdefault((row.key, row.step), []).append(row)

    def list_questions() -> Iterator[Question]:
        for row in read_columns(dataset, header.config, "*", ("key", "step", "prompt")):
            for guess in guesses.pop((row["key"], row["step"]), ()):
                name = (guess.key, guess.step, guess.rank)
                yield _make_question(name, row["prompt"], make_guess_text(guess, target), asking)

    def write(find_score: FindScore, latency: dict[str, float]) -> None:
        scored = [msgspec.structs.replace(row, score=find_score(row.key, row.step, row.rank)) for row in file.rows]
        write_predictions(out, msgspec.structs.replace(header, verifier=model.spec, verifier_latency_s=latency), scored)

    texts = (path.read_bytes().decode("utf-8", "replace") for path in list_files(predictions))
    asked = {"dataset": header.dataset, "predictions": digest(*texts)}
    report = await _verify(out, model, asking, asked, list_questions(), len(rows), write, progress)
    return msgspec.structs.replace(
        report,
        rows=len(file.rows),
        no_action=no_action,
        unknown=len(file.rows) - len(rows) - no_action,
        problems=_drop_no_action(file.problems),
    )


async def verify_pairs(
    dataset: Path, out: Path, model: ChatModel, asking: Asking, *, progress: ProgressFunc = ignore_progress
) -> VerifyReport:
    """Score both actions of each pair in the test split of `verifier`, and write the scores; errors as above."""
    read_target(dataset)
    columns, own = PairPlace._fields, digest_dataset(dataset)
    places = [PairPlace(**row) for row in read_columns(dataset, "verifier", "test", columns)]
    if not places:
        raise PredictionError(f"{dataset}: has no test rows of the config verifier")

    def list_questions() -> Iterator[Question]:
        for row in read_columns(dataset, "verifier", "test", (*columns, "prompt", *_SIDES)):
            for side in _SIDES:
                name = (*(row[each] for each in columns), side)
                yield _make_question(name, row["prompt"], row[side][0]["content"], asking)

    def write(find_score: FindScore, latency: dict[str, float]) -> None:
        header = PairScoresHeader(
            verifier=model.spec, dataset=own, latency_s=latency, settings=_describe(model, asking)
        )
        scores = {place: (find_score(*place, "chosen"), find_score(*place, "rejected")) for place in places}
        write_pair_scores(out, header, scores)

    asked = {"dataset": own}
    report = await _verify(out, model, asking, asked, list_questions(), 2 * len(places), write, progress)
    return msgspec.structs.replace(report, rows=len(places), what="pairs")


def add_scores(
    predictions: Path, dataset: Path, out: Path, scores: Path, *, allow_other_version: bool = False
) -> VerifyReport:
    """Add the scores of a file to predictions: lines of JSON with `key`, `step`, `rank` (1 if absent) and `score`."""
    target, file = read_target(dataset), read_predictions(predictions)
    header, _ = _check_predictions(file, dataset, target, allow_other_version)
    problems = Counter(_drop_no_action(file.problems))
    given: dict[tuple[str, int, int], float | None] = {}
    for number, value in read_json_lines(scores, _SCORE_LINE, problems):
        where = f"{scores} line {number}"
        key, step = read_place(value, where, _SCORE_LINE)
        at = (key, step, read_rank(value, where, _SCORE_LINE))
        if "score" not in value:
            raise PredictionError(f"{where}: is not a {_SCORE_LINE}: it has no score")
        if at in given:
            raise PredictionError(f"{where}: a second score for {key} step {step} rank {at[2]}")
        given[at] = read_number(value, "score", problems, -math.inf, math.inf)
    if not given:
        raise PredictionError(f"{scores}: holds no scores")
    if all(score is None for score in given.values()):
        raise PredictionError(f"{scores}: none of its {len(given):,} scores is a number")
    rows = [msgspec.structs.replace(row, score=given.get((row.key, row.step, row.rank))) for row in file.rows]
    unused = len(given.keys() - {(row.key, row.step, row.rank) for row in rows})
    if 2 * unused > len(given):
        raise PredictionError(
            f"{scores}: {unused:,} of {len(given):,} scores are for predictions that are not in {predictions}; name "
            "the file whose predictions were scored"
        )
    write_predictions(out, msgspec.structs.replace(header, verifier=scores.name), rows)
    scored = sum(row.score is not None for row in rows)
    return VerifyReport(
        out=str(out),
        verifier=scores.name,
        rows=len(rows),
        scored=scored,
        missing=len(rows) - scored,
        unused=unused,
        problems=dict(sorted((+problems).items())),
    )


def _check_predictions(
    file: PredictionsFile, dataset: Path, target: str, allow_other_version: bool
) -> tuple[PredictionsHeader, set[tuple[str, int]]]:
    """The header that the scored file gets, and the steps of the rows that were predicted."""
    file.check_not_empty()
    by_step = file.by_step()
    header = file.header or PredictionsHeader(target=target, steps=len(by_step))
    steps = {(row["key"], row["step"]) for row in read_columns(dataset, header.config, "*", ("key", "step"))}
    rows = f"{header.config} rows"
    check_fit(file.path, header.dataset, dataset, by_step, steps, rows, allow_other_version=allow_other_version)
    return msgspec.structs.replace(header, dataset=header.dataset or digest_dataset(dataset)), steps


def _drop_no_action(problems: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in problems.items() if name != "no_action"}


def make_guess_text(guess: Prediction, target: str) -> str:
    """A guess in the form of the dataset's targets, which is what a verifier was trained on."""
    return msgspec.json.encode({"action": guess.action}).decode() if target == "type" else write_target(guess)


def _make_question(name: QuestionId, prompt: Sequence[dict[str, str]], action: str, asking: Asking) -> Question:
    messages = [msgspec.convert(message, ChatMessage) for message in prompt]
    messages += [ChatMessage(role="assistant", content=action), ChatMessage(role="user", content=QUESTION)]
    sampling = Sampling(temperature=0.0, max_tokens=asking.max_tokens, seed=0)
    return Question(name, lambda: Request(messages=tuple(messages), sampling=sampling, logprobs=True))


def _describe(model: ChatModel, asking: Asking) -> dict[str, Any]:
    return {"model": model.spec, "question": QUESTION, "max_tokens": asking.max_tokens}


def read_verdict(completion: Completion) -> tuple[float | None, bool]:
    """The probability of a yes, by the first word after the thinking, and whether it comes from logprobs; without those
    it is 1 or 0. None for an answer that is neither yes nor no.

    If the sampled word has probability p, the result is p for a yes and 1 - p for a no. The remainder counts for the
    other word, since servers only report the probability of what was sampled.
    """
    begin = completion.text.rpartition("</think>")[0]
    found = _WORD.match(completion.text, len(begin) + len("</think>") if begin else 0)
    if found is None:
        return None, False
    is_yes = found[1].lower() == "yes"
    logprob = _sum_logprobs(completion, found.start(1), found.end(1))
    if logprob is None:
        return float(is_yes), False
    probability = min(1.0, math.exp(logprob))
    return probability if is_yes else 1 - probability, True


def _sum_logprobs(completion: Completion, start: int, end: int) -> float | None:
    """Log-probability of the tokens that contain the text from `start` to `end`; None if these are unknown."""
    pieces, logprobs = completion.pieces, completion.logprobs
    if len(pieces) < len(logprobs) == 1:
        return logprobs[0]
    if not pieces or len(logprobs) < len(pieces):
        return None
    ends = list(accumulate(map(len, pieces)))
    inside = [at for at, (a, b) in enumerate(zip([0, *ends], ends, strict=False)) if a < end and b > start]
    return math.fsum(logprobs[at] for at in inside) if inside else None


def _make_answer(name: QuestionId, completion: Completion) -> Answer:
    score, has_logprobs = read_verdict(completion)
    return Answer(id=name, score=score, has_logprobs=has_logprobs, seconds=round(completion.seconds, 6))


async def _verify(
    out: Path,
    model: ChatModel,
    asking: Asking,
    asked: dict[str, str],
    questions: Iterator[Question],
    total: int,
    write: Callable[[FindScore, dict[str, float]], None],
    progress: ProgressFunc,
) -> VerifyReport:
    """Ask all questions, let `write` write the scores, and report on the answers. Empties the journal if no answer is a
    score."""
    with AnswerJournal(out, _describe(model, asking) | asked) as journal:
        progress("verifying", 0, total)
        await ask_all(
            model,
            questions,
            total,
            journal,
            concurrency=asking.concurrency,
            doing="verifying",
            progress=progress,
            read=_make_answer,
        )
        answers = [*journal.answers.values()]
        scores = {answer.id: round(answer.score, 6) for answer in answers if answer.score is not None}
        failed = Counter(answer.kind for answer in answers if answer.error)
        if answers and not scores:
            journal.answers.clear()
            if failed.total() == len(answers):
                raise PredictionError(f"{model.spec}: all {len(answers):,} requests failed, e.g. {answers[0].error}")
            raise PredictionError(
                f"{model.spec}: nothing could be scored: {len(answers) - failed.total():,} answers are neither yes nor "
                f"no{f'; {failed.total():,} requests failed' if failed else ''}; a model that thinks first needs a "
                "larger ",
                Setting("max_tokens"),
            )
        latency = summarize_latency([answer.seconds for answer in answers if not answer.error])
        write(lambda *name: scores.get(name), latency)
    return VerifyReport(
        out=str(out),
        verifier=model.spec,
        rows=total,
        scored=len(scores),
        already_done=journal.already_done,
        unreadable=len(answers) - len(scores) - failed.total(),
        without_logprobs=sum(answer.score is not None and not answer.has_logprobs for answer in answers),
        failed=dict(sorted(failed.items())),
        latency_s=latency,
    )
