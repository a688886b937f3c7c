"""A gate: one check of a built dataset, with its verdict and figures. Every recipe and every check makes these."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

GateVerdict = Literal["pass", "fail", "undecided", "removed"]
"""`removed`: the rows that failed are not in the dataset."""
MAX_NAMED_ROWS = 5
"""Rows that a failed gate names at most."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One check of a built dataset."""

    name: str
    verdict: GateVerdict
    figure: dict[str, Any] = {}
    detail: str = ""
    rows: tuple[str, ...] = ()
    """Rows that break it: `config/split key step`."""

    def __str__(self) -> str:
        figure = ", ".join(f"{name} {value}" for name, value in self.figure.items())
        rows = f", e.g. {', '.join(self.rows)}" if self.rows else ""
        return f"{self.name} ({'; '.join(text for text in (figure, self.detail) if text)}){rows}"
