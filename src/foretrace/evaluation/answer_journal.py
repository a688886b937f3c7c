"""The answers of a model so far, in a file beside the predictions: a run that was killed goes on from there.

The first line says what is asked (`JournalHeader`), each other line is one answer. A last line that a crash cut off is
asked again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from foretrace.core.errors import PredictionError
from foretrace.core.files import describe_write_error, open_locked


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model answered to one request."""

    key: str
    step: int
    sample: int
    """Number of the request at this step, from 0."""
    text: str = ""
    logprob: float | None = None
    """Natural logarithm of the probability of the whole reply; None where the server gives none."""
    tokens: int | None = None
    seconds: float = 0.0
    error: str = ""
    """Why there is no answer, where asking again would not help."""


class JournalHeader(msgspec.Struct, frozen=True):
    """What is asked: only the same may go on."""

    asked: dict[str, Any]


AnswerId = tuple[str, int, int]
"""Key, step and number of the sample."""


class AnswerJournal:
    """Reads what is there, and adds to it; the file is this process's alone.

    Args:
        path: The file.
        asked: Whatever the answers depend on, as plain values.

    Raises:
        PredictionError: it holds answers to something else, or is no journal.
        StoreError: another process writes it.
    """

    def __init__(self, path: Path, asked: dict[str, Any]) -> None:
        self.path = path
        self.answers: dict[AnswerId, Answer] = {}
        header = msgspec.json.encode(JournalHeader(asked), order="deterministic") + b"\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open_locked(path, f"{path}: another process is writing it; wait for it")
            whole = self._read(path.read_bytes(), header)
            self._file.truncate(whole)
            if not whole:
                self._write(header)
        except OSError as error:
            raise PredictionError(describe_write_error(path, error)) from error
        except PredictionError:
            self._file.close()
            raise

    def _read(self, data: bytes, header: bytes) -> int:
        """Take the answers that are there; returns the bytes of whole lines."""
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines(keepends=True)
        if lines and lines[0] != header:
            raise PredictionError(
                f"{self.path}: holds answers of a run with other settings, model or dataset; run that one again to "
                "finish it, or remove the file"
            )
        for line in lines[1:]:
            try:
                answer = msgspec.json.decode(line, type=Answer)
            except msgspec.MsgspecError as error:
                raise PredictionError(f"{self.path}: is no journal of answers ({error}); move it away") from None
            self.answers[answer.key, answer.step, answer.sample] = answer
        return whole

    def add(self, answer: Answer) -> None:
        """Keep an answer.

        Raises:
            PredictionError: it cannot be written.
        """
        self.answers[answer.key, answer.step, answer.sample] = answer
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
