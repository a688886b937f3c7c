"""Ask a model many questions, several at a time, and keep each answer so that a killed run can be resumed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import msgspec

from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, PredictionError, Setting, UsageError
from foretrace.core.files import describe_write_error, open_locked
from foretrace.core.progress import ProgressFunc
from foretrace.models.base import ChatModel
from foretrace.models.throttle import MAX_CONCURRENCY, TRANSIENT_KINDS, ThrottledModel, make_limiter
from foretrace.models.token_meter import TokenMeter

QuestionId = tuple[str | int, ...]
"""Identifies a question within its run, such as key, step and rank."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model answered to one question."""

    id: QuestionId
    text: str = ""
    logprob: float | None = None
    """Natural logarithm of the probability of the whole reply; None if the server gives none."""
    score: float | None = None
    """Probability of a yes, if that was asked and answered."""
    has_logprobs: bool = False
    """Whether the score comes from logprobs; otherwise it is 1 or 0."""
    tokens: int | None = None
    seconds: float = 0.0
    error: str = ""
    """Why there is no answer, if asking again would not help."""
    kind: str = ""
    """Error kind of that failure."""


class Question(NamedTuple):
    """A question, whose request is only made when it is asked because prompts are long."""

    id: QuestionId
    make_request: Callable[[], Request]


class AnswerJournal:
    """The answers so far, in a file `OUT.journal` locked by this process: a line that says what is asked, then one for
    each answer. If a crash cut off the last line, its question is asked again.

    Used in a `with` block. On success the file is renamed to `OUT.answers`, from which a later run that asks the same
    (`asked`: all that answers depend on) continues; after an error it stays as it is.

    Raises:
        PredictionError: the file holds answers to something else, or is not a journal.
        StoreError: another process is writing it.
    """

    def __init__(self, out: Path, asked: dict[str, Any]) -> None:
        self.path, self._finished = (out.with_name(f"{out.name}.{ending}") for ending in ("journal", "answers"))
        self.answers: dict[QuestionId, Answer] = {}
        header = msgspec.json.encode({"asked": asked}, order="deterministic") + b"\n"
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            if self._finished.exists() and not self.path.exists() and self._finished.read_bytes().startswith(header):
                self._finished.rename(self.path)
            self._file: BinaryIO = open_locked(self.path, f"{self.path}: another process is writing it; wait for it")
            data = self.path.read_bytes()
            whole = data.rfind(b"\n") + 1
            self._read(data[:whole].splitlines(keepends=True), header)
            self._file.truncate(whole)
            if not whole:
                self._write(header)
        except OSError as error:
            raise PredictionError(describe_write_error(self.path, error)) from error
        except PredictionError:
            self._file.close()
            raise
        self.already_done = len(self.answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.path.replace(self._finished)
        elif not self.answers:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _read(self, lines: list[bytes], header: bytes) -> None:
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

    def add(self, answer: Answer) -> None:
        """Record an answer; raises a PredictionError if it cannot be written."""
        self.answers[answer.id] = answer
        try:
            self._write(msgspec.json.encode(answer) + b"\n")
        except OSError as error:
            raise PredictionError(describe_write_error(self.path, error)) from error

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()


def make_answer(question: QuestionId, completion: Completion) -> Answer:
    return Answer(
        id=question,
        text=completion.text,
        logprob=sum(completion.logprobs) if completion.logprobs else None,
        tokens=completion.usage.completion_tokens if completion.usage else None,
        seconds=round(completion.seconds, 6),
    )


async def ask_all(
    model: ChatModel,
    questions: Iterator[Question],
    total: int,
    journal: AnswerJournal,
    *,
    concurrency: int | None,
    doing: str,
    progress: ProgressFunc,
    needs_logprobs: bool = False,
    read: Callable[[QuestionId, Completion], Answer] = make_answer,
) -> TokenMeter:
    """Ask all `total` questions that have no answer yet, and return the number of requests and tokens of this run.

    Args:
        concurrency: Requests at a time; None finds out how many the server can take.
        doing: What is going on, for `progress`, which is called with the number of answers so far.
        read: Turns a completion into an answer.

    Raises:
        UsageError: the server gives no logprobs, and they are needed.
        PredictionError: some requests failed and should be made again; all answers are kept.
        ModelError: no other request could succeed; all answers are kept.
    """
    limiter, meter, failed = make_limiter(model, concurrency), TokenMeter(), list[ModelError]()
    missing = (question for question in questions if question.id not in journal.answers)
    first = next(missing, None)
    if first is None:
        return meter
    found = await model.probe()
    if needs_logprobs and not found.logprobs:
        why = found.reasons.get("logprobs", "the server gives none")
        raise UsageError(f"{model.spec}: no logprobs: {why}; leave out ", Setting("logprobs"))
    throttled = ThrottledModel(model, limiter, meter)

    async def ask(question: Question, *, again: bool = True) -> None:
        """Ask one question; retry a transient failure once, then leave it to the next run."""
        try:
            completion = await throttled.complete(question.make_request())
        except ModelError as error:
            if error.final:
                raise
            if error.kind in TRANSIENT_KINDS and again:
                await ask(question, again=False)
            elif error.retryable:
                failed.append(error)
            else:
                journal.add(Answer(id=question.id, error=str(error), kind=error.kind))
        else:
            journal.add(read(question.id, completion))

    todo = itertools.chain([first], missing)
    running: set[asyncio.Task[None]] = set()
    try:
        while True:
            # More than the slots, so that no slot waits for this loop; few enough to keep memory small.
            window = concurrency or min(MAX_CONCURRENCY, 2 * limiter.limit)
            for each in itertools.islice(todo, max(0, window - len(running))):
                running.add(asyncio.create_task(ask(each)))
            if not running:
                break
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            progress(doing, len(journal.answers), total)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    if failed:
        raise PredictionError(
            f"{model.spec}: {len(failed):,} of {total:,} requests failed, e.g. {failed[0]}; what was answered is kept "
            f"in {journal.path}; run it again to ask for the rest"
        )
    return meter
