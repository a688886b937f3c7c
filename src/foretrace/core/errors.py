"""The errors that foretrace raises: each is one clear line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Setting(NamedTuple):
    """A setting mentioned in an error, named as in Python; each front end writes it in its own style."""

    name: str
    """Name of the argument or field, e.g. `allow_weak_isolation`."""
    value: str | int | float | bool | dict[str, str] | None = None
    """The value to give, if the error suggests one; a table for a setting that takes one."""

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


Parts = tuple[str | Setting, ...]


def render_parts(parts: Parts, style: Callable[[Setting], str] = str) -> str:
    """The message with its settings written by `style`; by default as in Python."""
    return "".join(part if isinstance(part, str) else style(part) for part in parts)


class ForetraceError(Exception):
    """Base of all errors that foretrace raises on purpose; `str(error)` says what to do.

    Args:
        parts: The message. Settings are passed as `Setting`, so that the command says `--sandbox docker` where Python
            says `sandbox='docker'`: `UsageError("no container engine: give ", Setting("sandbox", "local"))`.
    """

    exit_code = 1

    def __init__(self, *parts: str | Setting) -> None:
        super().__init__(render_parts(parts))
        self.parts = parts

    def render(self, style: Callable[[Setting], str]) -> str:
        """The message with its settings written by `style`."""
        return render_parts(self.parts, style)


def find_first_line(error: BaseException) -> str:
    """The first line of another library's error, at most 300 characters; the name of its class if it has no text."""
    lines = str(error).strip().splitlines()
    return (lines[0].rstrip() if lines else type(error).__name__)[:300]


def count_things(count: int, thing: str, things: str | None = None) -> str:
    """A number and what is counted: `1 row`, `2,000 rows`, `2 guesses` (whose plural is given)."""
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


class UsageError(ForetraceError):
    """A setting that cannot be used, found before any work is done."""

    exit_code = 2


class SourceError(ForetraceError):
    """Input that cannot be opened or read as the named source."""


class StoreError(ForetraceError):
    """A traces folder that cannot be read or written."""


_FINAL = frozenset({"bad_key", "not_found", "quota", "redirect"})
"""Kinds of model server failure after which no other request would succeed either."""


class ModelError(ForetraceError):
    """A model server failed.

    Args:
        kind: A slug for counting, e.g. `refused`, `quota`, `not_found`, `bad_key`, `stream`, `overflow`.
        retryable: Whether trying the whole episode again later may help.
        retry_after_s: How long the server asked to wait, in seconds.
        final: Whether every other episode would fail too (a refused key, an unknown model, a used-up quota), so that
            the run should stop. `None` decides by the kind.
    """

    def __init__(
        self,
        *parts: str | Setting,
        kind: str = "server",
        retryable: bool = False,
        retry_after_s: float | None = None,
        final: bool | None = None,
    ) -> None:
        super().__init__(*parts)
        self.final = kind in _FINAL if final is None else final
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class SandboxError(ForetraceError):
    """The sandbox cannot run or cannot isolate."""


class ProblemError(ForetraceError):
    """A problem set that cannot be used."""


class BuildError(ForetraceError):
    """A dataset that cannot be built."""


class PredictionError(ForetraceError):
    """Predictions that cannot be made, or cannot be used."""


class WorkerError(BuildError):
    """A worker process was killed from outside, for example because memory ran out."""


class GateError(BuildError):
    """A gate failed: the dataset was not written."""

    exit_code = 3


class ForetraceWarning(UserWarning):
    """A warning from foretrace: one plain line, which the command writes to stderr unless `--quiet` is given."""


class PushError(ForetraceError):
    """A dataset that could not be pushed to the Hub."""
