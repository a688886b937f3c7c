"""The report of an import: rows and conversations by outcome, records, turns, calls and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from foretrace.core.errors import ForetraceError, Parts, Setting, SourceError, count_things, render_parts
from foretrace.core.redactions import is_redacted, read_redactions
from foretrace.core.report import Report
from foretrace.core.store import remove_if_empty
from foretrace.core.trace import Trace
from foretrace.encodings.unread_calls import find_unread_calls
from foretrace.rows.files import TRUNCATED
from foretrace.sources.account import MAX_EXAMPLES, Account, Counts
from foretrace.sources.base import UNCLEAR
from foretrace.sources.recognizing import FoundFiles


class TraceCounts(Counts, kw_only=True):
    """Counts over traces. A turn is a message that the model wrote; a result answers one or more calls."""

    traces: int = 0
    turns: int = 0
    calls: int = 0
    results: int = 0
    unread: int = 0
    """Messages of the agent with a call that was not read."""
    unread_rows: list[str] = msgspec.field(default_factory=list[str])
    """Up to three of these messages."""
    broken_calls: int = 0
    """Calls whose arguments could not be read."""
    unclear: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Traces with an unreadable field, by field: a success other than yes or no, a missing column."""
    unclear_rows: list[str] = msgspec.field(default_factory=list[str])
    """Up to three of these."""
    without_task: int = 0
    """Traces without a request."""
    redacted: Counter[str] = msgspec.field(default_factory=Counter[str])
    """What was redacted, by type: secrets, user names."""
    unredacted: int = 0
    """Traces that were not redacted."""
    timed_turns: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Turns with a known duration, by who measured it (`core.trace.TimeSource`)."""
    timed_calls: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Calls with a known duration, by who measured it."""

    def replace(self, old: Self | None, new: Self) -> None:
        """Count a trace in place of another one, if there was one."""
        for name in self.__struct_fields__ if old is not None else ():
            own, gone = getattr(self, name), getattr(old, name)
            setattr(self, name, [row for row in own if row not in gone] if isinstance(own, list) else own - gone)
        self.add(new)


def count_trace(trace: Trace) -> TraceCounts:
    unread = find_unread_calls(trace)
    counts = TraceCounts(traces=1, unread=len(unread), unread_rows=[_describe(trace, n) for n in unread[:MAX_EXAMPLES]])
    unclear: dict[str, str] = trace.extra.get(UNCLEAR, {})
    counts.unclear = Counter(unclear.keys())
    counts.unclear_rows = [f"{trace.key} has no {field}: {why}" for field, why in unclear.items()][:MAX_EXAMPLES]
    asked = (m.content.strip() or m.parts for m in trace.messages if m.role == "user" and m.author == "user")
    counts.without_task = int(not (trace.task.statement or any(asked)))
    counts.redacted = Counter(read_redactions(trace))
    counts.unredacted = int(not is_redacted(trace))
    for message in trace.messages:
        if message.role == "assistant" and message.author == "model":
            counts.turns += 1
            counts.calls += len(message.tool_calls)
            counts.broken_calls += sum(call.error is not None for call in message.tool_calls)
            if message.model_s is not None:
                counts.timed_turns[message.model_s_source or "unknown"] += 1
        elif message.role == "tool":
            counts.results += 1
            if message.tool_s is not None:
                counts.timed_calls[message.tool_s_source or "unknown"] += max(1, len(message.tool_call_ids))
    return counts


def _describe(trace: Trace, index: int) -> str:
    text = " ".join(trace.messages[index].content[-200:].split())
    return f"{trace.key} message {index}: {text!r}"


class SourceReport(Counts, kw_only=True):
    """The part of the report for one source."""

    files: int = 0
    """Files, or folders that are read as one, that this run read."""
    files_done: int = 0
    """Unchanged files that an earlier run had read."""
    account: Account = msgspec.field(default_factory=Account)
    """The records that this run read, by outcome."""
    counts: TraceCounts = msgspec.field(default_factory=TraceCounts)
    """The contents of the traces that this run read."""
    drops: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows or conversations that this run dropped, by reason."""


class ImportReport(Report, msgspec.Struct, kw_only=True):
    """The report of an import. A row is a row, or a conversation of a session file.

    `rows == traces + replaced + grown + sum(drops) + before_since + already_done` always holds.
    """

    rows: int = 0
    traces: int = 0
    """Traces added to the folder."""
    replaced: int = 0
    """Rows whose trace replaced another one with the same key, from an earlier run or an earlier row."""
    grown: int = 0
    """Conversations that continue a stored one and replaced it."""
    already_done: int = 0
    """Rows that an earlier run had taken or dropped, or whose trace is already there with the same key and id;
    conversations that are the beginning of a stored one."""
    dropped_before: int = 0
    """The part of `already_done` that an earlier run had dropped."""
    before_since: int = 0
    """Conversations that ended before the given date."""
    drops: Counter[str] = msgspec.field(default_factory=Counter[str])
    dropped_rows: dict[str, list[Parts]] = msgspec.field(default_factory=dict[str, list[Parts]])
    """Up to three rows for each reason: where they are, what is wrong and what helps."""
    success: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Outcomes of the imported traces that are now in the folder: `true`, `false`, `unknown`."""
    sources: dict[str, SourceReport] = msgspec.field(default_factory=dict[str, SourceReport])
    """Files, records, and contents of the traces, by source."""
    found: FoundFiles | None = None
    """The result of searching folders, if sources had to recognize files; includes unrecognized files."""
    made_folder: bool = False
    """Whether this import created the folder."""

    @property
    def examples(self) -> dict[str, list[str]]:
        """Up to three rows for each reason: where they are, what is wrong and what helps."""
        return self.render_examples()

    @property
    def unread(self) -> Counter[str]:
        """Messages of the agent with a call that was not read, by source."""
        return Counter({name: own.counts.unread for name, own in self.sources.items() if own.counts.unread})

    @property
    def unread_rows(self) -> list[str]:
        """Up to three of these messages."""
        return self.total.counts.unread_rows

    @property
    def total(self) -> SourceReport:
        """The sum of all sources."""
        total = SourceReport()
        for report in self.sources.values():
            total.add(report)
        return total

    def render_examples(self, style: Callable[[Setting], str] = str) -> dict[str, list[str]]:
        """The examples, with their settings formatted by `style`."""
        return {reason: [render_parts(row, style) for row in rows] for reason, rows in self.dropped_rows.items()}

    def check(self) -> None:
        """Refuse to report counts that do not add up."""
        taken = self.traces + self.replaced + self.grown
        if self.rows != taken + self.drops.total() + self.before_since + self.already_done:
            raise ForetraceError(
                f"counts do not add up: {self.rows} rows, {self.traces} traces, {self.replaced} replaced, "
                f"{self.grown} grown, {self.drops.total()} drops, {self.before_since} too old, "
                f"{self.already_done} already there"
            )
        for report in self.sources.values():
            report.account.check()


def check_import(report: ImportReport, label: str, out: Path) -> None:
    """Refuse to finish an import that found nothing, or not all; a folder that it created for nothing is removed.

    Raises:
        SourceError: no row became a trace, now or before; a file is cut short; several sources recognize a file.
    """
    _check_not_empty(report, label, out)
    if report.found is not None:
        report.found.check_not_ambiguous()
    total = report.total
    if cut := max(total.drops[TRUNCATED], total.account.dropped[TRUNCATED]):
        files = "1 file was" if cut == 1 else f"{cut:,} files were"
        raise SourceError(f"{label}: {files} cut short or damaged; what could be read is imported: get the rest again")


def _check_not_empty(report: ImportReport, label: str, out: Path) -> None:
    if report.traces or report.replaced or report.grown or report.already_done > report.dropped_before:
        return
    if report.made_folder:
        remove_if_empty(out)
    if not report.rows:
        raise SourceError(f"{label}: holds no rows; nothing was imported")
    rows = f"{label}: nothing was imported: {count_things(report.rows, 'row')}"
    if report.before_since:
        raise SourceError(f"{rows}, of which {report.before_since:,} ended before the date of ", Setting("since"))
    if not report.drops:
        raise SourceError(f"{rows}, all dropped before; is this the right source?")
    reason, count = report.drops.most_common(1)[0]
    example = (": ", *report.dropped_rows[reason][0]) if reason in report.dropped_rows else ()
    raise SourceError(f"{rows}, all dropped ({count:,} for {reason}", *example, "); is this the right source?")
