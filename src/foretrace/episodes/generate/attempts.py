"""Attempts at problems: planned, and finished, with their line for the journal."""

from __future__ import annotations

from typing import NamedTuple

from foretrace.core.journal import JournalEntry, encode_entry
from foretrace.core.problem import Problem
from foretrace.core.trace import Trace
from foretrace.episodes.generate.settings import Keep
from foretrace.episodes.rollout import ENCODING_ERRORS, mark_unwritable


class PlannedAttempt(NamedTuple):
    problem: Problem
    sample: int
    key: str


class FinishedAttempt(NamedTuple):
    trace: Trace
    line: bytes | None
    """The journal line: the trace, or why it is left out; `None` for an attempt that is not kept but made again."""
    left_out: str
    """Why the trace is not kept; empty if it is kept, or if the attempt ended in an error."""
    is_retried: bool
    """Whether it was started a second time after a transient failure."""

    @property
    def stored(self) -> bool:
        """Whether the line contains the trace."""
        return self.line is not None and not self.left_out


def finish_attempt(trace: Trace, keep: Keep, *, is_retried: bool) -> FinishedAttempt:
    """The attempt with its line; if its trace cannot be written, it is an error."""
    left_out = _explain_left_out(trace, keep)
    try:
        line = _make_line(trace, keep, left_out)
    except ENCODING_ERRORS as error:
        trace = mark_unwritable(trace, error)
        line = _make_line(trace, keep, left_out)
    return FinishedAttempt(trace, line, left_out, is_retried)


def _make_line(trace: Trace, keep: Keep, left_out: str) -> bytes | None:
    if left_out:
        return encode_entry(JournalEntry(key=trace.key, left_out=left_out))
    if trace.outcome.error is not None and keep != "all":
        return None
    return encode_entry(JournalEntry(key=trace.key, trace=trace))


def _explain_left_out(trace: Trace, keep: Keep) -> str:
    """Why `keep` leaves the trace out; empty if it is kept, or if it ended in an error, since it is then made again."""
    if trace.outcome.error is not None:
        return ""
    if keep != "all" and not trace.outcome.success:
        return "not_success"
    return "not_ideal" if keep == "ideal" and not trace.outcome.metrics.get("is_ideal") else ""
