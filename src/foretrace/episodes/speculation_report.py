"""The files that speculation writes next to the traces: its figures, and the guesses and early runs of each attempt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from foretrace.core.errors import Setting, StoreError, UsageError
from foretrace.core.files import describe_write_error, replace_file
from foretrace.core.report import Report

REPORT_FILE, LAUNCHES_FILE = "speculation.json", "launches.jsonl"
"""Next to the manifest of the traces: the figures, and the early runs (shown by `view`)."""


class SpeculationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on what runs early."""

    width: int = 2
    """Most early operations at a time."""
    top: int = 2
    """Guesses for each reply that are run."""
    threshold: float | None = None
    """Least confidence of a guess to run; a guess without one is then not run."""
    max_wasted: float | None = None
    """Wasted CPU seconds after which nothing more runs early."""
    max_tokens: int | None = None
    """Tokens of guesses after which there are no more guesses; a late guess of a model counts as the most it can
    write."""

    def check(self) -> None:
        """Refuse values that are out of range, with a `UsageError`."""
        for name, lowest in (("width", 1), ("top", 1), ("threshold", 0), ("max_wasted", 0), ("max_tokens", 0)):
            value = getattr(self, name)
            if value is not None and not value >= lowest:
                raise UsageError(Setting(f"speculate_{name}", value), f": choose {lowest} or more")


class Row(msgspec.Struct):
    """Figures for the calls of one action type."""

    tools: list[str] = []
    calls: int = 0
    hits: int = 0
    """Calls that used an early result."""
    seconds: float = 0.0
    """Time that the calls would have taken without early runs."""
    saved_s: float = 0.0
    launched: int = 0
    """Operations that were started early for guesses of such calls."""
    used: int = 0
    """Those of them whose result was used."""
    wasted_s: float = 0.0
    """Seconds that the rest of them ran."""
    wasted_cpu_s: float = 0.0
    """CPU seconds of the same."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that was started early."""

    key: str
    step: int
    """Index of the message that the model was writing."""
    tool: str
    after_s: float
    """Seconds from the start of that reply to the start of the operation."""
    seconds: float
    used: bool
    saved_s: float = 0.0


class SpeculationReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """Results of speculation in one run."""

    predictor: str
    guesses: int
    late: int
    """Replies that arrived before their guesses."""
    refused: int
    """Guessed calls that could not run early: they cannot be read, the protocol has no such call, or their effect is
    unknown or is not undone by dropping a fork."""
    failed: str | None
    """Message of the first failure of the predictor, or of starting its guesses."""
    tool_s: float
    """Seconds that the model's calls would have taken without early runs; the final judging does not count."""
    saved_s: float
    """Seconds saved of these."""
    judging_saved_s: float
    wasted_s: float
    wasted_cpu_s: float
    settings: SpeculationSettings
    rows: dict[str, Row]
    """By action type of the call; the final judging counts as the call of `final_answer`."""

    @property
    def share(self) -> float | None:
        """Share of the tools' seconds that is saved; `None` if there are none."""
        return self.saved_s / self.tool_s if self.tool_s else None


def start_file(path: Path, first: bytes, again: Collection[str]) -> None:
    """Begin a file of guesses or launches: its first line, and the lines of an earlier run except those of the attempts
    that are made `again`."""
    replace_file(path, first + b"".join(line + b"\n" for key, line in _read_lines(path) if key not in again))


def append_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Append all lines, or none."""
    whole = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(path, whole)
        raise StoreError(describe_write_error(path, error)) from error


def _read_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The complete lines of a file with a key of a trace, and that key; none if there is no file."""
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError, UnicodeError, KeyError):  # the header, or a truncated line
                yield msgspec.json.decode(line)["key"], line


def read_launches(folder: Path) -> dict[str, list[Launch]]:
    """The early operations of each attempt, by key of its trace; empty if there were none."""
    found: dict[str, list[Launch]] = {}
    for key, line in _read_lines(folder / LAUNCHES_FILE):
        with contextlib.suppress(msgspec.ValidationError):
            found.setdefault(key, []).append(msgspec.json.decode(line, type=Launch))
    return found
