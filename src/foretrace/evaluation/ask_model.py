"""Ask a model many questions, several at a time, and keep each answer: a run that was killed goes on from there."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, PredictionError, Setting, UsageError
from foretrace.core.files import describe_write_error, open_locked
from foretrace.models.base import ChatModel
from foretrace.models.limiter import AdaptiveLimiter
from foretrace.models.throttle import MAX_CONCURRENCY, TRANSIENT_KINDS, ThrottledModel, make_limiter
from foretrace.models.token_meter import TokenMeter

QuestionId = tuple[str | int, ...]
"""What tells a question from all others of the run, such as key, step and rank."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model answered to one question."""

    id: QuestionId
    text: str = ""
    logprob: float | None = None
    """Natural logarithm of the probability of the whole reply; None where the server gives none."""
    score: float | None = None
    """Probability of a yes, where that was asked and answered."""
    has_logprobs: bool = False
    """Whether the score is by logprobs; else it is 1 or 0."""
    tokens: int | None = None
    seconds: float = 0.0
    error: str = ""
    """Why there is no answer, where asking again would not help."""
    kind: str = ""
    """Of that failure."""


class Question(NamedTuple):
    """What is asked, made when it is asked: prompts are long."""

    id: QuestionId
    make_request: Callable[[], Request]


class AnswerJournal:
    """The answers so far, in a file beside the output, which is this process's own. The first line says what is asked,
    each other line is one answer; a last line that a crash cut off is asked again.

    Args:
        out: The output.
        asked: Whatever the answers depend on, as plain values.

    Raises:
        PredictionError: it holds answers to something else, or is not a journal.
        StoreError: another process writes it.
    """

    def __init__(self, out: Path, asked: dict[str, Any]) -> None:
        self.path = out.with_name(f"{out.name}.journal")
        self.answers: dict[QuestionId, Answer] = {}
        header = msgspec.json.encode({"asked": asked}, order="deterministic") + b"\n"
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open_locked(self.path, f"{self.path}: another process is writing it; wait for it")
            whole = self._read(self.path.read_bytes(), header)
            self._file.truncate(whole)
            if not whole:
                self._write(header)
        except OSError as error:
            raise PredictionError(describe_write_error(self.path, error)) from error
        except PredictionError:
            self._file.close()
            raise
        self.already_done = len(self.answers)

    def _read(self, data: bytes, header: bytes) -> int:
        """Take the answers that are there; returns the bytes of whole lines."""
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines(keepends=True)
        if lines and lines[0] != header:
            raise PredictionError(
                f"{self.path}: holds answers of a run with other settings, model, predictions or dataset; run that one "
                "again to finish it, or remove the file"
            )
        for line in lines[1:]:
            try:
                answer = msgspec.json.decode(line, type=Answer)
            except msgspec.MsgspecError as error:
                raise PredictionError(f"{self.path}: is not a journal of answers ({error}); move it away") from None
            self.answers[answer.id] = answer
        return whole

    def add(self, answer: Answer) -> None:
        """Keep an answer.

        Raises:
            PredictionError: it cannot be written.
        """
        self.answers[answer.id] = answer
        try:
            self._write(msgspec.json.encode(answer) + b"\n")
        except OSError as error:
            raise PredictionError(describe_write_error(self.path, error)) from error

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()

    def close(self) -> None:
        """Let go of the file, which stays where it holds answers."""
        if not self.answers:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def remove(self) -> None:
        """Remove the file: what it holds stands elsewhere now."""
        self.path.unlink(missing_ok=True)
        self._file.close()


def make_answer(question: QuestionId, completion: Completion) -> Answer:
    """The answer of a completion."""
    return Answer(
        id=question,
        text=completion.text,
        logprob=sum(completion.logprobs) if completion.logprobs else None,
        tokens=completion.usage.completion_tokens if completion.usage else None,
        seconds=round(completion.seconds, 6),
    )


class _Asking:
    """Asks questions one at a time, and counts what failed."""

    def __init__(
        self, model: ChatModel, limiter: AdaptiveLimiter, journal: AnswerJournal, read: Callable[..., Answer]
    ) -> None:
        self.meter = TokenMeter()
        self.failures: Counter[str] = Counter()
        self.example = ""
        self._spec = model.spec
        self._model, self._journal, self._read = ThrottledModel(model, limiter, self.meter), journal, read

    async def ask(self, question: Question) -> None:
        """One answer; what failed and may pass is asked a second time, and then left to the next run."""
        for second_try in (False, True):
            try:
                completion = await self._model.complete(question.make_request())
            except ModelError as error:
                if error.final:
                    raise
                if error.kind in TRANSIENT_KINDS and not second_try:
                    continue
                if error.retryable:
                    self.failures[error.kind] += 1
                    self.example = self.example or str(error)
                else:
                    self._journal.add(Answer(id=question.id, error=str(error), kind=error.kind))
            else:
                self._journal.add(self._read(question.id, completion))
            return

    def check(self, total: int) -> None:
        """Refuse to go on where requests failed that are to be made again."""
        if self.failures:
            raise PredictionError(
                f"{self._spec}: {self.failures.total():,} of {total:,} requests failed, e.g. {self.example}; what was "
                f"answered is kept in {self._journal.path}; run it again to ask for the rest"
            )


async def ask_all(
    model: ChatModel,
    questions: Iterator[Question],
    total: int,
    journal: AnswerJournal,
    *,
    concurrency: int | None,
    needs_logprobs: bool = False,
    read: Callable[[QuestionId, Completion], Answer] = make_answer,
    report_answers: Callable[[int, int], None] = lambda done, total: None,
) -> TokenMeter:
    """Ask all that has no answer yet.

    Args:
        total: Number of the questions.
        concurrency: Requests at a time; None finds out what the server can do.
        needs_logprobs: Refuse a server that gives none.
        read: Makes an answer of a completion.
        report_answers: Called with the answers that are there and their number.

    Returns:
        The requests and tokens of this run.

    Raises:
        UsageError: the server gives no logprobs, and they are needed.
        PredictionError: requests failed and are to be made again; what was answered is kept.
        ModelError: no other request would fare better; what was answered is kept.
    """
    limiter = make_limiter(model, concurrency)
    asking = _Asking(model, limiter, journal, read)
    missing = (question for question in questions if question.id not in journal.answers)
    first = next(missing, None)
    if first is None:
        return asking.meter
    found = await model.probe()
    if needs_logprobs and not found.logprobs:
        why = found.reasons.get("logprobs", "the server gives none")
        raise UsageError(f"{model.spec}: no logprobs: {why}; leave out ", Setting("logprobs"))
    todo = itertools.chain([first], missing)
    running: set[asyncio.Task[None]] = set()
    try:
        while True:
            # More than there are slots, so that no slot waits for this loop; few enough to keep memory small.
            window = concurrency or min(MAX_CONCURRENCY, 2 * limiter.limit)
            for each in itertools.islice(todo, max(0, window - len(running))):
                running.add(asyncio.create_task(asking.ask(each)))
            if not running:
                break
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            report_answers(len(journal.answers), total)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    asking.check(total)
    return asking.meter
