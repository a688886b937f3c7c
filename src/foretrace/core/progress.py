"""How work that takes long says where it stands."""

from __future__ import annotations

from collections.abc import Callable

ProgressFunc = Callable[[str, int, int | None], None]
"""Called with a text that says what is going on, how many rows, traces or jobs are done, and how many there are
(`None`: not known)."""


def ignore_progress(doing: str, done: int, total: int | None) -> None:
    """The `ProgressFunc` of a caller who wants none."""
