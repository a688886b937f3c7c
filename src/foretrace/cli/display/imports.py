"""What `foretrace import` says: what was found, dropped rows, counts, and the account of every record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.options import write_flag
from foretrace.cli.output import Output
from foretrace.core.errors import Setting

if TYPE_CHECKING:
    from foretrace.sources.recognizing import FoundFiles
    from foretrace.sources.report import ImportReport, SourceReport, TraceCounts

_OUTCOMES = (("true", "success"), ("false", "failed"), ("unknown", "unknown"))
_MAX_UNKNOWN_FILES = 20
_MAX_TYPES = 12


def import_facts(report: ImportReport, label: str, out: Path) -> dict[str, Any]:
    """The report as one JSON object."""
    facts = {
        "input": label,
        "out": str(out),
        "rows": report.rows,
        "traces": report.traces,
        "replaced": report.replaced,
        "grown": report.grown,
        "already_there": report.already_done,
        "before_since": report.before_since,
        "drops": dict(sorted(report.drops.items())),
        "examples": report.render_examples(write_flag),
        "unread_calls": dict(sorted(report.unread.items())),
        "unread_examples": report.unread_rows,
        "success": {name: report.success[name] for name in ("true", "false", "unknown")},
        "sources": {name: source_facts(own) for name, own in sorted(report.sources.items())},
        "total": source_facts(report.total),
    }
    return facts if report.found is None else facts | {"found": found_facts(report.found)}


def source_facts(report: SourceReport) -> dict[str, Any]:
    """What was read as one source."""
    files = {"files": report.files, "files_done_before": report.files_done}
    return {**files, "account": report.account.to_dict(), "counts": report.counts.to_dict()}


def found_facts(found: FoundFiles) -> dict[str, Any]:
    """What a search of folders found."""
    return {
        "files": [{"path": str(f.path), "source": f.source, "reason": f.reason} for f in found.files],
        "not_recognized": found.unknown_count,
        "not_recognized_files": [{"path": str(f.path), "size": f.size, "seen": f.seen} for f in found.unknown],
        "read_with_others": found.companions,
        "before_since": found.too_old,
    }


def show_found(output: Output, found: FoundFiles | None) -> None:
    """Say which source takes which files, and which files none knows."""
    if found is None or output.json:
        return
    counts = Counter(file.source for file in found.files)
    reasons = {file.source: file.reason for file in reversed(found.files)}
    output.print_table(("source", "files", "because, e.g."), [(n, counts[n], reasons[n]) for n in sorted(counts)])
    for count, what in ((found.companions, "are read with another one"), (found.too_old, "are too old")):
        if count:
            output.print(f"{count:,} files {what}")
    if found.unknown_count:
        output.print()
        output.print(f"not recognised: {found.unknown_count:,} files")
        shown = found.unknown[:_MAX_UNKNOWN_FILES]
        output.print_table(("file", "bytes", "what is in it"), [(str(f.path), f.size, f.seen) for f in shown])
        if found.unknown_count > len(shown):
            output.print("... (all of them: --json)")
    output.print()


def show_import(output: Output, report: ImportReport, label: str, out: Path) -> None:
    """Say what an import did."""
    for reason, examples in sorted(report.render_examples(write_flag).items()):
        for example in examples:
            output.note(f"dropped, {reason}: {example}")
    if report.traces and report.success["unknown"] == report.traces:
        output.note(
            "no row says whether its attempt succeeded: `foretrace build` takes successful attempts only, "
            "unless it is given --outcomes not_failed or --outcomes all"
        )
    for example in report.unread_rows:
        output.note(f"unread call: {example}")
    if report.unread:
        output.note(
            "the environment answers messages in which no call was read: name the source of their format, or say how "
            f"calls are written with {write_flag(Setting('call_pattern', 'REGEX'))}"
        )
    note_redactions(output, report.total.counts)
    if output.write_json(import_facts(report, label, out)):
        return
    outcomes, counts, has_read = report.success, report.total.counts, report.total.files > 0
    optional = (("replaced", report.replaced), ("grown", report.grown), ("too old", report.before_since))
    output.print_fields(
        [
            ("input", label),
            ("rows" if report.found is None else "conversations", report.rows),
            ("traces", report.traces),
            *((name, count) for name, count in optional if count),
            ("drops", report.drops.total()),
            *((f"  {reason}", count) for reason, count in sorted(report.drops.items())),
            ("already there", report.already_done),
            *((f"unread calls, {source}", count) for source, count in sorted(report.unread.items())),
            ("outcomes", ", ".join(f"{outcomes[k]:,} {name}" for k, name in _OUTCOMES)),
            *([("turns", f"{counts.turns:,}, with {counts.calls:,} calls and {counts.results:,} results")] * has_read),
            *([("traces folder", str(out))] if report.traces or report.grown or report.already_done else []),
        ]
    )
    if report.found is not None and has_read:
        _show_account(output, report)
    output.print(sum_import(report))


def note_redactions(output: Output, counts: TraceCounts) -> None:
    """Say what was taken out of traces, by type, or that nothing was."""
    if counts.redacted:
        found = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.redacted.items()))
        output.note(f"taken out of the traces: {found}")
    if counts.unredacted:
        output.warn(
            f"warning: {counts.unredacted:,} traces were written as they are: secrets and user names in them were not "
            "looked for (`foretrace scrub` takes them out)"
        )


def _show_account(output: Output, report: ImportReport) -> None:
    """The tables of records and of what is in the traces, and the types of records that no reader knows."""
    reports = sorted(report.sources.items()) + ([("all", report.total)] if len(report.sources) > 1 else [])
    output.print()
    output.print_table(
        ("source", "files", "records", "used", "extra", "ignored", "unknown", "dropped", "waiting"),
        [_list_records(name, own) for name, own in reports],
    )
    output.print()
    output.print_table(
        ("source", "traces", "turns", "timed", "by", "calls", "timed", "by", "results"),
        [_list_counts(name, own) for name, own in reports],
    )
    output.print()
    for name, own in sorted(report.sources.items()):
        account = own.account
        for found, what in (
            (account.unknown, "record types that its reader does not know"),
            (account.ignored, "ignored as no part of the conversation"),
            (account.extra, "kept in extra"),
            (account.dropped, "dropped"),
            (account.notes, "noted"),
        ):
            if found:
                output.print(f"{name}: {what}: {_list_types(found)}")


def _list_records(name: str, report: SourceReport) -> tuple[str | int, ...]:
    account = report.account
    fates = (account.extra, account.ignored, account.unknown, account.dropped)
    return (name, report.files, account.records, account.used, *(fate.total() for fate in fates), account.waiting)


def _list_counts(name: str, report: SourceReport) -> tuple[str | int, ...]:
    counts = report.counts
    turns, calls = counts.timed_turns, counts.timed_calls
    return (
        name, counts.traces, counts.turns, turns.total(), _name_clocks(turns), counts.calls, calls.total(),
        _name_clocks(calls), counts.results,
    )  # fmt: skip


def _name_clocks(found: Mapping[str, int]) -> str:
    """Who measured times: `stamps`, or with counts `runner 3, stamps 9`."""
    if len(found) < 2:
        return "".join(found)
    return ", ".join(f"{name} {count:,}" for name, count in sorted(found.items()))


def _list_types(found: Counter[str]) -> str:
    shown = ", ".join(f"{kind} {count:,}" for kind, count in found.most_common(_MAX_TYPES))
    return shown + (f", and {len(found) - _MAX_TYPES} more" if len(found) > _MAX_TYPES else "")


def sum_import(report: ImportReport) -> str:
    """What became of the rows, as a sum."""
    optional = ((report.replaced, "replaced"), (report.grown, "grown"), (report.before_since, "too old"))
    more = "".join(f" + {count:,} {what}" for count, what in optional if count)
    return (
        f"{report.rows:,} rows = {report.traces:,} traces{more} + {report.drops.total():,} drops "
        f"+ {report.already_done:,} already there"
    )
