"""Let a model guess the steps of a dataset: several answers to each prompt become ranked guesses."""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.same_action import canonicalize_json
from foretrace.core.completion import ChatMessage, Request, Sampling
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import Setting, UsageError
from foretrace.core.message_columns import ChatText
from foretrace.core.predictions import PredictedCall, Prediction, PredictionId, PredictionsHeader, read_guess
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.evaluation.ask_model import Answer, AnswerJournal, Question, ask_all, make_answer
from foretrace.evaluation.dataset_rows import ACTIONS, DatasetRow, read_rows_of_kind
from foretrace.evaluation.predict import Guessed, PredictReport, PredictSettings, start_header, write_guesses
from foretrace.evaluation.savings import check_number
from foretrace.models.base import ChatModel, ConfiguredModel


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is asked: arguments of `foretrace.predict`."""

    samples: int = 5
    logprobs: bool = False
    temperature: float = 0.7
    max_tokens: int = 1024
    concurrency: int | None = None

    def check(self) -> None:
        for name in ("samples", "max_tokens", "concurrency"):
            check_number(name, getattr(self, name), lowest=1)
        if not 0 <= self.temperature < math.inf:
            raise UsageError(Setting("temperature", self.temperature), ": give a number that is not negative")


async def predict_with_model(
    dataset: Path,
    model: ChatModel,
    out: Path,
    settings: PredictSettings,
    model_settings: ModelSettings,
    progress: ProgressFunc = ignore_progress,
) -> PredictReport:
    """Ask a model what comes next at each row, and write its guesses. The answers are kept next to `out`, so repeating
    a killed call continues it and asks nothing twice.

    Raises:
        UsageError: a setting is invalid, such as logprobs from a server that gives none.
        PredictionError: no dataset, no rows, no usable answer at all, or failed requests that should be made again.
        ModelError: the server cannot be reached or refuses permanently.
    """
    settings.check()
    model_settings.check()
    rows = read_rows_of_kind(dataset, settings.rows)[: settings.limit]
    header = _make_header(dataset, model, settings, model_settings, len(rows))
    with AnswerJournal(out, _name_asked(header)) as journal:
        meter = await ask_all(
            model,
            _list_questions(rows, settings.seed, model_settings),
            len(rows) * model_settings.samples,
            journal,
            concurrency=model_settings.concurrency,
            doing=f"predicting with {model.spec}",
            progress=progress,
            needs_logprobs=model_settings.logprobs,
        )
        guessed, lost = _rank_answers(rows, journal, settings, model_settings)
        report = write_guesses(out, header, guessed, times=settings.times)
    return msgspec.structs.replace(
        report,
        requests=meter.requests,
        completion_tokens=meter.completion_tokens,
        lost_samples=dict(sorted(lost.items())),
    )


async def guess_with_model(
    model: ChatModel, at: PredictionId, prompt: Sequence[ChatText], seed: int, how: ModelSettings
) -> list[Prediction]:
    """A model's guesses at what follows one prompt, the most likely first; if no answer names an action, one guess
    without an action."""
    numbers = range(how.samples)
    requests = [_make_request(prompt, ("guess", str(seed), str(number)), how) for number in numbers]
    completions = await asyncio.gather(*map(model.complete, requests))
    answers = [make_answer((number,), each) for number, each in zip(numbers, completions, strict=True)]
    if ranked := rank_guesses(at, answers, how):
        return ranked
    text, tokens = answers[0].text, [answer.tokens or 0 for answer in answers]
    return [Prediction(key=at.key, step=at.step, action=None, completion=text, tokens=sum(tokens))]


def _make_header(
    dataset: Path, model: ChatModel, settings: PredictSettings, model_settings: ModelSettings, steps: int
) -> PredictionsHeader:
    """The header, with everything the answers depend on, but not what only affects speed."""
    asked = {name: getattr(model_settings, name) for name in ("samples", "temperature", "max_tokens")}
    own = dict(model.settings) if isinstance(model, ConfiguredModel) else {}
    confidence = "logprob" if model_settings.logprobs else "share"
    header = start_header(dataset, model.spec, settings)
    return msgspec.structs.replace(header, steps=steps, settings=asked | {"confidence": confidence} | own)


def _name_asked(header: PredictionsHeader) -> dict[str, Any]:
    """What one answer depends on; a run with more samples, rows or guesses can continue one with fewer."""
    settings = {name: value for name, value in header.settings.items() if name != "samples"}
    names = ("predictor", "dataset", "config", "split", "seed")
    return {**{name: getattr(header, name) for name in names}, "settings": settings}


def _list_questions(rows: Sequence[DatasetRow], seed: int, how: ModelSettings) -> Iterator[Question]:
    for row in rows:
        for sample in range(how.samples):
            names = ("predict", str(seed), row.key, str(row.step), str(sample))
            yield Question((row.key, row.step, sample), functools.partial(_make_request, row.prompt, names, how))


def _make_request(prompt: Sequence[ChatText], names: Sequence[str], how: ModelSettings) -> Request:
    own = int(hash_fraction(*names) * (1 << 31))
    roles: Any = {"system": "system", "assistant": "assistant"}
    messages = tuple(ChatMessage(roles.get(role, "user"), content) for role, content in prompt)
    sampling = Sampling(temperature=how.temperature, max_tokens=how.max_tokens, seed=own)
    return Request(messages=messages, sampling=sampling, logprobs=how.logprobs)


def rank_guesses(
    at: DatasetRow | PredictionId, answers: Sequence[Answer], how: ModelSettings, seconds: float | None = None
) -> list[Prediction]:
    """The distinct guesses among the answers to one prompt, the most likely first, without those that name no action.

    Equal calls are one guess. Its confidence is its share of the requested samples; with `logprobs`, the sum of the
    probabilities of its distinct texts.
    """
    found: dict[tuple[Any, ...], tuple[Any, list[Answer]]] = {}
    for answer in answers:
        if guess := _read_answer(answer):
            name = (guess[0], *((call.tool, canonicalize_json(call.arguments)) for call in guess[1]))
            found.setdefault(name, (guess, []))[1].append(answer)
    ranked = [(_find_confidence(same, how), guess, same) for guess, same in found.values()]
    ranked.sort(key=lambda rank: (-rank[0], -len(rank[2]), rank[2][0].id[-1]))
    return [
        Prediction(
            key=at.key,
            step=at.step,
            rank=number,
            action=action,
            calls=calls,
            completion=same[0].text,
            confidence=round(confidence, 6),
            seconds=seconds,
            tokens=None if any(each.tokens is None for each in same) else sum(each.tokens or 0 for each in same),
        )
        for number, (confidence, (action, calls), same) in enumerate(ranked, 1)
    ]


def _read_answer(answer: Answer) -> tuple[str, tuple[PredictedCall, ...]] | None:
    action, calls = read_guess({}, answer.text)
    return None if answer.error or action not in ACTIONS else (str(action), calls)


def _find_confidence(answers: Sequence[Answer], how: ModelSettings) -> float:
    if not how.logprobs:
        return len(answers) / how.samples
    texts = {answer.text: math.exp(min(0.0, answer.logprob)) for answer in answers if answer.logprob is not None}
    return min(1.0, sum(texts.values()))


def _rank_answers(
    rows: Sequence[DatasetRow], journal: AnswerJournal, settings: PredictSettings, how: ModelSettings
) -> tuple[Guessed, Counter[str]]:
    guessed, lost = Guessed(), Counter[str]()
    for row in rows:
        answers = [journal.answers[row.key, row.step, sample] for sample in range(how.samples)]
        good = [answer for answer in answers if not answer.error]
        took = max((answer.seconds for answer in good), default=0.0)
        ranked = rank_guesses(row, answers, how, took if settings.times else None)[: settings.k]
        guessed.seconds += [took] if good else []
        guessed.rows += ranked
        if ranked:
            lost.update("failed" if each.error else "no_action" for each in answers if _read_answer(each) is None)
        elif good:  # kept to show what the model said, though it names no action
            guessed.count("bad_guess", row, f"{good[0].text[:80]!r} names no action")
            guessed.rows.append(Prediction(key=row.key, step=row.step, action=None, completion=good[0].text))
        else:
            guessed.count("raised", row, answers[0].error)
    return guessed, lost
