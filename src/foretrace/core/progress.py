"""How long-running work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

ProgressFunc = Callable[[str, int, int | None], None]
"""Called with what is going on, how many rows, traces or jobs are done, and how many there are (`None` if unknown)."""


def ignore_progress(doing: str, done: int, total: int | None) -> None:
    """The `ProgressFunc` of a caller who does not want any."""
