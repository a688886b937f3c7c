"""Take converted rows and conversations into a traces folder, and count the outcome of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from foretrace.core.errors import Setting
from foretrace.core.manifest import Cursor
from foretrace.core.placeholders import PLACEHOLDER, USER_PLACEHOLDER
from foretrace.core.store import Added, TraceWriter, unpack_record
from foretrace.core.trace import Message, Trace
from foretrace.engines.processes import release_memory
from foretrace.rows.base import Drop
from foretrace.sources.account import MAX_EXAMPLES, Account
from foretrace.sources.converting import BEFORE_SINCE, ConvertedTrace
from foretrace.sources.report import ImportReport, SourceReport, TraceCounts, count_trace

CHECKPOINT_ROWS = 4096
CHECKPOINT_BYTES = 48 << 20
"""Rows and conversations of all inputs, or bytes of records, after which segments are sealed. These are fixed so that
an interrupted import, when continued, seals at the same rows and gives the same bytes as one without interruption."""


class Taker:
    """Adds traces to a folder through its writer, and counts them in the report."""

    def __init__(self, writer: TraceWriter, report: ImportReport) -> None:
        self.writer = writer
        self.report = report
        self._outcomes: dict[str, str] = {}
        """Outcomes of the traces taken so far, by key, needed when one replaces another."""
        self._changed: set[str] = set()
        """Sources whose cursors have changed since the last checkpoint."""
        self._unsealed = 0
        """Results taken since the last checkpoint."""

    def get_source(self, name: str) -> SourceReport:
        return self.report.sources.setdefault(name, SourceReport())

    def count_known(self, count: int, dropped: int = 0) -> None:
        """Count rows or conversations that an earlier run took, and how many of them it dropped."""
        self.report.rows += count
        self.report.already_done += count
        self.report.dropped_before += min(count, dropped)

    def take_input(
        self,
        name: str,
        start: Cursor,
        results: Iterable[tuple[str, ConvertedTrace | Drop]],
        *,
        account: Account | None = None,
        limit: int | None = None,
        since: str = "",
    ) -> Cursor:
        """Take the results of an input, seal at the fixed places, and store the cursor in the manifest; returns it.

        Args:
            name: The key of the cursor.
            start: How far the input was taken before.
            results: Each with its place.
            account: The account of a session file, which is read from its beginning; complete once all results are
                read. `None` for rows, which continue from the cursor, and each of which is a record.
            limit: Most results that are looked at.
            since: The date before which conversations are left out, as the user gave it.
        """
        own, seen, is_whole, left_out_since = self.get_source(start.source), 0, True, start.since
        drops, records, counts = Counter(start.drops), account, TraceCounts()
        if records is None:
            seen, records = start.rows, Account.from_dict(start.account)
            counts = TraceCounts.from_dict(start.counts)

        def note(*, done: bool) -> Cursor:
            cursor = msgspec.structs.replace(
                start, rows=seen, drops=dict(sorted(drops.items())), since=left_out_since, done=done,
                account=records.to_dict(), counts=counts.to_dict(),
            )  # fmt: skip
            self.note_cursor(name, cursor)
            return cursor

        for where, result in results:
            if limit is not None and seen >= limit:
                is_whole = False
                break
            seen += 1
            if isinstance(result, Drop) and result.reason == BEFORE_SINCE:
                left_out_since = since
            if seen <= start.rows:
                self.count_known(1)
                taken = None
            else:
                taken = self._take(result, where, may_grow=account is not None)
            if isinstance(taken, str):
                drops[taken] += 1
                own.drops[taken] += 1
            elif isinstance(result, ConvertedTrace):
                counts.add(result.counts)
                own.counts.replace(taken, result.counts)
            for rows in (records, own.account) if account is None else ():
                if isinstance(taken, str):
                    rows.drop(taken)
                elif isinstance(result, Drop):
                    rows.ignore(result.reason)
                else:
                    rows.use()
            if self.writer.waiting_bytes >= CHECKPOINT_BYTES or self._unsealed >= CHECKPOINT_ROWS:
                note(done=False)
                self.checkpoint()
        records.check()
        if account is not None:
            own.account.add(account)
        return note(done=is_whole)

    def _take(self, result: ConvertedTrace | Drop, where: str, *, may_grow: bool) -> str | TraceCounts | None:
        """Add a trace, or count why it was not added.

        Returns:
            Why it was dropped; or the counts of the trace that it continues or is equal to, if that one is from this
                import; else `None`.

        Args:
            where: Its place, for an example in the report.
            may_grow: A trace may continue the stored one with its key, or be its beginning.
        """
        report = self.report
        report.rows += 1
        self._unsealed += 1
        if isinstance(result, ConvertedTrace):
            is_of_this_import = result.row["key"] in self._outcomes
            added = self._add(result, may_grow=may_grow)
            if not isinstance(added, Drop):
                return added if is_of_this_import else None
            result = added
        if result.reason == BEFORE_SINCE:
            report.before_since += 1
            return None
        report.drops[result.reason] += 1
        examples = report.dropped_rows.setdefault(result.reason, [])
        if len(examples) < MAX_EXAMPLES:
            wrong = f"{where}: {result.detail or result.reason}"
            examples.append((wrong, *(("; ", *result.remedy) if result.remedy else ())))
        return result.reason

    def _add(self, converted: ConvertedTrace, *, may_grow: bool) -> TraceCounts | Drop | None:
        """Add a trace; returns the counts of the stored one that it continues or is equal to."""
        row, report, key = converted.row, self.report, converted.row["key"]
        added: Added = self.writer.add_row(row)
        if added == "conflict" and may_grow and (stored := self.writer.get(key, row["task_id"])) is not None:
            new = unpack_record(row["record"], row["tokens"])
            if goes_on_from(new, stored):
                self.writer.add_row(row, replace=True)
                report.grown += 1
                self._count_outcome(converted)
                return count_trace(stored)
            if goes_on_from(stored, new):
                added = "present"
        if added == "conflict":
            if key not in self._outcomes or may_grow:
                remedy = ("take this one with ", Setting("replace", True))
                return Drop("key_conflict", f"{key} is there with other content", remedy)
            columns = Setting("columns", {"id": "COLUMN"})
            remedy = ("rows need ids of their own; of source chat, name their column: ", columns)
            return Drop("key_conflict", f"an earlier row has the key {key} too, with other content", remedy)
        if added == "present":
            report.already_done += 1
            return converted.counts
        report.traces += added == "new"
        report.replaced += added == "replaced"
        self._count_outcome(converted)
        return None

    def _count_outcome(self, converted: ConvertedTrace) -> None:
        key, origin = converted.row["key"], converted.origin
        outcome = {True: "true", False: "false", None: "unknown"}[converted.row["success"]]
        if (before := self._outcomes.get(key)) is not None:  # of a replaced trace
            self.report.success[before] -= 1
        self._outcomes[key] = outcome
        self.report.success[outcome] += 1
        facts = {"revision": origin.revision, "split": origin.split, "license": origin.license}
        name = f"{origin.source}@{origin.revision or 'local'}/{origin.split or '-'}"
        self.writer.manifest.sources[name] = facts

    def note_cursor(self, name: str, cursor: Cursor) -> None:
        """Store the cursor of an input, with its drops, in the manifest in place of the earlier one."""
        manifest = self.writer.manifest
        self.forget_drops(name)
        manifest.drops = dict(Counter(manifest.drops) + Counter(cursor.drops))
        manifest.inputs[name] = cursor
        self._changed.add(cursor.source)

    def forget_drops(self, name: str) -> None:
        """Remove the drops of an input from the manifest's counts."""
        manifest = self.writer.manifest
        if (cursor := manifest.inputs.get(name)) is not None:
            manifest.drops = dict(Counter(manifest.drops) - Counter(cursor.drops))
            self._changed.add(cursor.source)

    def checkpoint(self) -> None:
        """Seal what was taken, and list it with the cursors."""
        manifest = self.writer.manifest
        manifest.counts["rows"] = sum(cursor.rows for cursor in manifest.inputs.values())
        summed = _sum_accounts([cursor for cursor in manifest.inputs.values() if cursor.source in self._changed])
        kept = {name: account for name, account in manifest.accounts.items() if name not in self._changed}
        manifest.accounts = dict(sorted({**kept, **summed}.items()))
        self._changed.clear()
        self._unsealed = 0
        self.writer.checkpoint()
        release_memory()  # of the rows, and of writing them

    def finish(self) -> None:
        """Seal the rest. If there is nothing to read, this makes an empty folder."""
        if self._changed or not self.writer.manifest.inputs:
            self.checkpoint()


def _sum_accounts(cursors: Iterable[Cursor]) -> dict[str, dict[str, Any]]:
    """Records, turns, calls, results and times of the inputs, by source."""
    sums: dict[str, tuple[Account, TraceCounts]] = {}
    for cursor in cursors:
        account, counts = sums.setdefault(cursor.source, (Account(), TraceCounts()))
        account.add(Account.from_dict(cursor.account))
        counts.add(TraceCounts.from_dict(cursor.counts))
    return {name: account.to_dict() | counts.to_dict() for name, (account, counts) in sorted(sums.items())}


def goes_on_from(later: Trace, earlier: Trace) -> bool:
    """Whether `later` is `earlier` with something added: everything before the agent's last turn is the same, and that
    turn begins with its earlier version.

    The earlier text may contain a secret that was only detected because of the later part of the conversation: a text
    is not compared if the later one has a placeholder.
    """
    last = max((i for i, message in enumerate(earlier.messages) if message.role == "assistant"), default=0)
    if len(later.messages) < len(earlier.messages) or len(later.messages) <= last:
        return False
    for old, new in zip(earlier.messages[:last], later.messages, strict=False):
        if _describe(old) != _describe(new) or not _fits(old.content, new.content):
            return False
    said, now = earlier.messages[last], later.messages[last]
    calls = _list_calls(said)
    is_same = said.role == now.role and calls == _list_calls(now)[: len(calls)]
    return is_same and (now.content.startswith(said.content) or _fits(said.content, now.content))


def _describe(message: Message) -> tuple[Any, ...]:
    return message.role, message.author, message.tool_call_ids, _list_calls(message)


def _list_calls(message: Message) -> list[tuple[str, str]]:
    return [(call.id, call.name) for call in message.tool_calls]


def _fits(earlier: str, later: str) -> bool:
    return earlier == later or bool(PLACEHOLDER.search(later) or USER_PLACEHOLDER.search(later))
