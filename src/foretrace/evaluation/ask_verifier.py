"""Ask a model for many verdicts: some at a time, each kept in a journal as it comes, so that a run can go on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.core.completion import ChatMessage
from foretrace.core.errors import ModelError, PredictionError
from foretrace.core.files import describe_write_error, open_locked
from foretrace.evaluation.yes_or_no import Verdict, make_question, read_verdict
from foretrace.models.base import ChatModel
from foretrace.models.throttle import TRANSIENT_KINDS

_MAX_FAILURES = 10
"""Requests that may fail one after another before the run gives up."""
_FORMAT = 1


class Question(NamedTuple):
    """An action to be verified."""

    name: str
    """Tells it apart from all others of the run."""
    prompt: tuple[ChatMessage, ...]
    action: str


class _Answer(msgspec.Struct, frozen=True):
    name: str
    score: float | None
    has_logprobs: bool
    seconds: float


class Answers:
    """The answers of a run, kept in a journal beside its output until that is written."""

    def __init__(self, out: Path, run: dict[str, Any]) -> None:
        """
        Args:
            out: What the run writes in the end.
            run: What the answers depend on: a journal of another run is refused.

        Raises:
            PredictionError: the journal is of another run, or cannot be read or written.
            StoreError: another process writes it.
        """
        self.path = out.with_name(f".{out.name}.answers")
        self.failed: Counter[str] = Counter()
        """Questions that no model will answer, such as a prompt that is too long, by the kind of the failure."""
        self.to_ask_again: Counter[str] = Counter()
        """Questions whose request failed and may succeed another time, by the kind of the failure."""
        self.example = ""
        """The message of one of these failures."""
        self._answers: dict[str, _Answer] = {}
        self._run = {"answers": _FORMAT, **run}
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_locked(self.path, f"{self.path}: another process is writing it; wait for it")
            lines = self.path.read_bytes().splitlines()
            self._load(lines)
            self._file.write(b"\n" if lines else msgspec.json.encode(self._run) + b"\n")
            self._file.flush()
        except OSError as error:
            raise PredictionError(describe_write_error(self.path, error)) from None
        except PredictionError:
            self._file.close()
            raise
        self.already_done = len(self._answers)

    def _load(self, lines: list[bytes]) -> None:
        if lines and msgspec.json.encode(self._run) != lines[0]:
            raise PredictionError(
                f"{self.path}: is of a run with another model, other predictions or another dataset: end that one, or "
                "remove this file to begin anew"
            )
        for line in lines[1:]:
            with contextlib.suppress(msgspec.DecodeError):  # a line that was not written to its end is asked again
                answer = msgspec.json.decode(line, type=_Answer)
                self._answers[answer.name] = answer

    def __contains__(self, name: str) -> bool:
        return name in self._answers

    def add(self, name: str, verdict: Verdict, seconds: float) -> None:
        """Take an answer."""
        answer = _Answer(name, verdict.score, verdict.has_logprobs, round(seconds, 6))
        self._answers[name] = answer
        self._file.write(msgspec.json.encode(answer) + b"\n")
        self._file.flush()

    def find_score(self, name: str) -> float | None:
        """The score of a question; None where it has none."""
        answer = self._answers.get(name)
        return None if answer is None or answer.score is None else round(answer.score, 6)

    def count(self) -> tuple[int, int, int]:
        """Answers with a score, answers that are neither yes nor no, and scores without logprobs."""
        answers = self._answers.values()
        scored = sum(answer.score is not None for answer in answers)
        return scored, len(answers) - scored, sum(a.score is not None and not a.has_logprobs for a in answers)

    def measure_latency(self) -> dict[str, float]:
        """Seconds an answer: `p50`, `p95`, `mean`; empty without one."""
        import numpy as np

        seconds = [answer.seconds for answer in self._answers.values()]
        if not seconds:
            return {}
        p50, p95 = np.quantile(seconds, (0.5, 0.95))
        figures = {"p50": p50, "p95": p95, "mean": np.mean(seconds)}
        return {name: round(float(value), 6) for name, value in figures.items()}

    def close(self) -> None:
        """Keep the journal for a later run, where it holds an answer."""
        if not self._answers:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def remove(self) -> None:
        """Remove the journal: what was asked is written."""
        self.path.unlink(missing_ok=True)
        self._file.close()


async def ask_all(
    model: ChatModel,
    questions: Iterator[Question],
    answers: Answers,
    *,
    concurrency: int,
    max_tokens: int,
    report_done: Callable[[int], None],
) -> None:
    """Ask all that has no answer yet, `concurrency` at a time; a question that fails stays without one
    (`Answers.failed`, `Answers.to_ask_again`).

    Raises:
        ModelError: no other request would fare better, or too many failed one after another. What was answered is kept.
    """
    failures = 0
    asked = 0

    async def work() -> None:
        nonlocal failures, asked
        for question in questions:  # shared: each worker takes the next one
            if question.name not in answers:
                begun = time.monotonic()
                try:
                    completion = await model.complete(make_question(question.prompt, question.action, max_tokens))
                except ModelError as error:
                    failures += 1
                    if error.retryable or error.kind in TRANSIENT_KINDS:
                        answers.to_ask_again[error.kind] += 1
                        answers.example = answers.example or str(error)
                    else:
                        answers.failed[error.kind] += 1
                    if error.final or failures >= _MAX_FAILURES:
                        raise
                else:
                    failures = 0
                    answers.add(question.name, read_verdict(completion), completion.seconds or time.monotonic() - begun)
            asked += 1
            report_done(asked)

    tasks = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
