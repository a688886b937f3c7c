"""What a filter of whole traces is: it looks at each trace in a worker process, and decides in the parent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from foretrace.core.trace import Trace


class ExaminedTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What decisions are made by."""

    key: str
    id: str
    task: str
    group: str
    source: str
    """`source:split`, as the manifest counts traces."""
    success: bool | None
    n_messages: int
    n_steps: int
    """Messages of the agent."""
    names_tools: bool
    """Whether its source says what the agent was offered."""
    findings: dict[str, Any] = {}
    """By filter; without those that found nothing."""


class Decision(msgspec.Struct, kw_only=True):
    """What one filter decided."""

    left_out: dict[str, str] = {}
    """The reason, by key of a trace."""
    merged_groups: list[tuple[str, ...]] = []
    """Groups that become one."""
    kept_together: list[tuple[str, ...]] = []
    """Keys of traces for which they become one: rows of theirs never stand in two splits."""
    figures: dict[str, Any] = {}
    """For the manifest."""
    notes: list[str] = []
    """Sentences for the card."""


class TraceExaminer(Protocol):
    """Looks at one trace at a time."""

    name: str

    def examine(self, trace: Trace) -> Any:
        """What the decision has to know of one trace: small, and made of plain values; `None` where that is nothing.
        It runs in a worker process."""
        ...


class TraceFilter(TraceExaminer, Protocol):
    """One reason for which traces are left out, or groups are merged."""

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Decide about the traces that earlier filters left, in the order of their keys."""
        ...
