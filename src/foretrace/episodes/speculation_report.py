"""What speculation leaves beside the traces: its figures, and by attempt what was guessed and what was begun early."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from foretrace.core.errors import Setting, StoreError, UsageError
from foretrace.core.files import describe_write_error, replace_file
from foretrace.core.predictions import GUESSES_FILE, Prediction, PredictionsHeader, encode_prediction
from foretrace.core.report import Report

REPORT_FILE, LAUNCHES_FILE = "speculation.json", "launches.jsonl"
"""Beside the manifest of the traces: what speculation gave, what was guessed, as `replay` reads it, and what was begun
early, as `view` draws it."""


class SpeculationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is run early."""

    width: int = 2
    """Operations that run early at one time."""
    top: int = 2
    """Guesses at each reply that are run."""
    threshold: float | None = None
    """Confidence that a guess needs; one without is then not run."""
    max_wasted: float | None = None
    """CPU seconds run for nothing after which no more is run early."""
    max_tokens: int | None = None
    """Tokens of guesses after which no more is guessed."""

    def check(self) -> None:
        """Refuse what cannot be served.

        Raises:
            UsageError: names the setting.
        """
        for name, lowest in (("width", 1), ("top", 1), ("threshold", 0), ("max_wasted", 0), ("max_tokens", 0)):
            value = getattr(self, name)
            if value is not None and not value >= lowest:
                raise UsageError(Setting(f"speculate_{name}", value), f": choose {lowest} or more")


class Row(msgspec.Struct):
    """What was done for the calls of one action type."""

    tools: list[str] = []
    """Names of these calls."""
    calls: int = 0
    hits: int = 0
    """Calls for which something was handed over that had been begun early."""
    seconds: float = 0.0
    """That the calls would have taken."""
    saved_s: float = 0.0
    launched: int = 0
    """Operations that were begun early for a guess at such a call."""
    used: int = 0
    """Of those, the ones that were handed over."""
    wasted_s: float = 0.0
    """Seconds that the others ran."""
    wasted_cpu_s: float = 0.0
    """CPU seconds that they took."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that was begun early."""

    key: str
    """Of the trace."""
    step: int
    """Index of the message that the model was writing."""
    tool: str
    after_s: float
    """Seconds of that reply before it began."""
    seconds: float
    """That it ran."""
    used: bool
    saved_s: float = 0.0


class SpeculationReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """What speculation gave in one run."""

    predictor: str
    guesses: int
    late: int
    """Replies that were there before the guesses at them."""
    refused: int
    """Guessed calls that could not be run early: they cannot be read, the protocol has no such call, or their effect is
    not known or not undone by dropping a fork."""
    failed: str | None
    """The first failure of the predictor, or of what began its guesses, in words."""
    tokens: int
    """That the predictor wrote, where it says so; for a late guess of a model, the most that it can have written."""
    guess_s: float
    """Mean seconds of the predictor for one reply."""
    tool_s: float
    """Seconds that the calls of the model would have taken, without the final judging."""
    saved_s: float
    """Of these."""
    judging_saved_s: float
    wasted_s: float
    wasted_cpu_s: float
    settings: SpeculationSettings
    rows: dict[str, Row]
    """By action type of the call; the final judging is the call of `final_answer`."""

    @property
    def share(self) -> float | None:
        """Share of the tools' seconds that is saved; `None` where there are none."""
        return self.saved_s / self.tool_s if self.tool_s else None


class _Line(msgspec.Struct):
    """What is read of a guess or a launch to know whether it stays."""

    key: str


class SpeculationFiles:
    """Adds the guesses at an attempt, and what was begun early in it, before its trace is there: whatever ends the run
    then, those of each trace that is kept are there.

    Args:
        again: Attempts whose lines of an earlier run go, since they are made now.

    Raises:
        StoreError: a file cannot be written.
    """

    def __init__(self, folder: Path, header: PredictionsHeader, again: Collection[str]) -> None:
        self._paths = folder / GUESSES_FILE, folder / LAUNCHES_FILE
        for path, first in zip(self._paths, ([msgspec.json.encode(header)], []), strict=True):
            replace_file(path, b"".join(line + b"\n" for line in (*first, *_read_lines(path, again))))

    def add(self, guesses: Iterable[Prediction], launches: Iterable[Launch]) -> None:
        """Add what belongs to one attempt.

        Raises:
            StoreError: a file cannot be written.
        """
        for path, lines in zip(
            self._paths, (map(encode_prediction, guesses), map(msgspec.json.encode, launches)), strict=True
        ):
            whole = path.stat().st_size if path.exists() else 0
            try:
                with path.open("ab") as file:
                    file.write(b"".join(line + b"\n" for line in lines))
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.truncate(path, whole)
                raise StoreError(describe_write_error(path, error)) from error


def _read_lines(path: Path, again: Collection[str]) -> Iterator[bytes]:
    """The whole lines of a file, without its header and those of some attempts; none where there is no file."""
    lines = list[bytes]()
    with contextlib.suppress(OSError):
        lines = path.read_bytes().splitlines()
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeError):  # the header, or a line that was cut
            if msgspec.json.decode(line, type=_Line).key not in again:
                yield line


def read_launches(folder: Path) -> dict[str, list[Launch]]:
    """By key of the trace: what was begun early while it was made; nothing where nothing was."""
    found: dict[str, list[Launch]] = {}
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        for line in (folder / LAUNCHES_FILE).read_bytes().splitlines():
            launch = msgspec.json.decode(line, type=Launch)
            found.setdefault(launch.key, []).append(launch)
    return found
