"""Print the result of `foretrace import`: what each source read, what was left out, and counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.options import write_flag
from foretrace.cli.output import Output, name_folder
from foretrace.core.errors import Setting, count_things
from foretrace.core.places import write_place

if TYPE_CHECKING:
    from foretrace.sources.recognizing import FoundFiles
    from foretrace.sources.report import ImportReport, SourceReport, TraceCounts

_OUTCOMES = (("true", "success"), ("false", "failed"), ("unknown", "unknown"))
_MAX_FILES = 5
_NO_DATA = ("text", "empty", "binary")
"""How the description of a file begins that is hardly an agent's; such files are shown last."""
_MAX_TYPES = 12


def import_facts(report: ImportReport, label: str, out: Path) -> dict[str, Any]:
    counts, found = report.total.counts, report.found
    facts = {
        "input": label,
        "out": write_place(out),
        "rows": report.rows,
        "traces": report.traces,
        "replaced": report.replaced,
        "grown": report.grown,
        "already_there": report.already_done - report.dropped_before,
        "dropped_before": report.dropped_before,
        "before_since": report.before_since,
        "drops": dict(sorted(report.drops.items())),
        "examples": report.render_examples(write_flag),
        "unclear": dict(sorted(counts.unclear.items())),
        "unclear_examples": counts.unclear_rows,
        "unread_calls": dict(sorted(report.unread.items())),
        "unread_examples": report.unread_rows,
        "success": {name: report.success[name] for name, _ in _OUTCOMES},
        "tool_times": counts.timed_calls.total(),
        "tool_times_that_may_hold_waits": counts.timed_calls["stamps"],
        "sources": {name: _source_facts(own) for name, own in sorted(report.sources.items())},
        "total": _source_facts(report.total),
    }
    if found is None:
        return facts
    return facts | {
        "found": {
            "files": [{"path": str(f.path), "source": f.source, "reason": f.reason} for f in found.files],
            "not_recognized": found.unknown_count,
            "not_recognized_files": [{"path": str(f.path), "size": f.size, "seen": f.seen} for f in found.unknown],
            "ambiguous_files": [{"path": str(f.path), "may_be": f.claims} for f in found.ambiguous],
            "read_with_others": found.companions,
            "before_since": found.too_old,
        }
    }


def _source_facts(report: SourceReport) -> dict[str, Any]:
    files = {"files": report.files, "files_done_before": report.files_done}
    drops = dict(sorted(report.drops.items()))
    return {**files, "drops": drops, "account": report.account.to_dict(), "counts": report.counts.to_dict()}


def show_import(output: Output, report: ImportReport, label: str = "", out: Path | None = None) -> None:
    _note_gaps(output, report)
    counts = report.total.counts
    note_redactions(output, counts)
    if out is not None and output.json:
        output.write_json(import_facts(report, label, out))
        return
    if stamped := counts.timed_calls["stamps"]:
        output.note(
            f"{stamped:,} of {counts.timed_calls.total():,} times of tools are differences of time stamps and may hold "
            "a person's wait for a permission; waits that the source tells apart have no time (`foretrace ceiling` "
            "names the longest)"
        )
    if report.found is not None:
        _show_sources(output, report, report.found)
    outcomes, has_read = report.success, report.total.files > 0
    calls, results = count_things(counts.calls, "call"), count_things(counts.results, "result")
    optional = (("replaced", report.replaced), ("grown", report.grown), ("too old", report.before_since))
    output.print_fields(
        [
            *([("input", label)] * bool(label)),
            ("rows" if report.found is None else "conversations", report.rows),
            ("traces", report.traces),
            *((name, count) for name, count in optional if count),
            ("drops", report.drops.total()),
            *((f"  {reason}", count) for reason, count in sorted(report.drops.items())),
            ("already there", report.already_done - report.dropped_before),
            *([("dropped before", report.dropped_before)] * bool(report.dropped_before)),
            *((f"unread calls, {source}", count) for source, count in sorted(report.unread.items())),
            ("outcomes", ", ".join(f"{outcomes[k]:,} {name}" for k, name in _OUTCOMES)),
            *([("turns", f"{counts.turns:,}, with {calls} and {results}")] * has_read),
            *(name_folder(out) if out and (report.traces or report.grown or report.already_done) else []),
        ]
    )
    if report.found is not None and has_read:
        output.print()
        for name, own in sorted(report.sources.items()):
            unread = own.account.dropped - own.drops
            for types, what in (
                (own.account.unknown, "record types that its reader does not know"),
                (unread, "records that cannot be read"),
            ):
                if types:
                    output.print(f"{name}: {what}: {_list_types(types)}")
    output.print(sum_import(report))


def _note_gaps(output: Output, report: ImportReport) -> None:
    for reason, examples in sorted(report.render_examples(write_flag).items()):
        for example in examples if report.found is None else examples[:1]:
            output.note(f"dropped, {reason}: {example}")
    counts = report.total.counts
    if counts.unclear:
        found = ", ".join(f"{field} {count:,}" for field, count in sorted(counts.unclear.items()))
        output.note(f"left unknown: {found}, e.g. {counts.unclear_rows[0]}")
    unknown = report.success["unknown"]
    if 2 * unknown > report.traces:
        which = "no trace says" if unknown == report.traces else f"{unknown:,} of {report.traces:,} traces do not say"
        flag = write_flag(Setting("columns", {"success": "COLUMN"}))
        can_name = "chat" in report.sources and "success" not in counts.unclear
        how = f": if a column does, name it ({flag})" if can_name else ""
        output.note(
            f"{which} whether the attempt succeeded{how}; `foretrace build` takes successful attempts only, unless it "
            "is given --outcomes not_failed or --outcomes all"
        )
    for example in report.unread_rows:
        output.note(f"unread call: {example}")
    if report.unread:
        output.note(
            f"calls were not read in {count_things(counts.unread, 'message')} of the agent, though tool output "
            "seems to follow (`foretrace build` refuses many of them): name the source of their format, or say how "
            f"calls are written with {write_flag(Setting('call_pattern', 'REGEX'))}"
        )
    if counts.broken_calls:
        output.note(
            f"{count_things(counts.broken_calls, 'call')} of {counts.calls:,} could not be read completely: the "
            "arguments are cut off or broken (`foretrace build` leaves these steps out as unreadable_call)"
        )
    if counts.without_task:
        output.note(
            f"no task in {count_things(counts.without_task, 'trace')}: no message says what the agent was asked to do"
        )


def note_redactions(output: Output, counts: TraceCounts) -> None:
    if counts.redacted:
        found = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.redacted.items()))
        output.note(f"taken out of the traces: {found}")
    if counts.unredacted:
        output.warn(
            f"warning: {count_things(counts.unredacted, 'trace')} not looked through for secrets and user names "
            "(`foretrace scrub` takes them out)"
        )


def _show_sources(output: Output, report: ImportReport, found: FoundFiles) -> None:
    reasons = {file.source: file.reason for file in reversed(found.files)}
    rows = [(name, *_list_result(own), reasons.get(name, "")) for name, own in sorted(report.sources.items())]
    if len(rows) > 1:
        rows.append(("all", *_list_result(report.total), ""))
    output.print_table(("source", "files", "traces", "drops", "turns", "calls", "because, e.g."), rows)
    for count, what in ((found.companions, "read with another one"), (found.too_old, "too old")):
        if count:
            output.print(f"{what}: {count_things(count, 'file')}")
    output.print()
    if found.unknown_count:
        output.print(f"not recognized: {count_things(found.unknown_count, 'file')}")
        shown = sorted(found.unknown, key=lambda file: file.seen.startswith(_NO_DATA))[:_MAX_FILES]
        output.print_table(("file", "bytes", "what is in it"), [(str(f.path), f.size, f.seen) for f in shown])
        _print_rest(output, found.unknown_count - len(shown))
    if found.ambiguous:
        output.print(f"left out, since several sources know them: {count_things(len(found.ambiguous), 'file')}")
        claims = [
            (str(file.path), ", or ".join(f"{name}: {reason}" for name, reason in file.claims.items()))
            for file in found.ambiguous[:_MAX_FILES]
        ]
        output.print_table(("file", "may be"), claims)
        _print_rest(output, len(found.ambiguous) - len(claims))


def _list_result(report: SourceReport) -> tuple[int, int, int, int, int]:
    counts = report.counts
    return report.files + report.files_done, counts.traces, report.drops.total(), counts.turns, counts.calls


def _print_rest(output: Output, rest: int) -> None:
    if rest:
        output.print(f"... and {rest:,} more (all of them: --json)")
    output.print()


def _list_types(found: Counter[str]) -> str:
    shown = ", ".join(f"{kind} {count:,}" for kind, count in found.most_common(_MAX_TYPES))
    return shown + (f", and {len(found) - _MAX_TYPES} more" if len(found) > _MAX_TYPES else "")


def sum_import(report: ImportReport) -> str:
    optional = ((report.replaced, "replaced"), (report.grown, "grown"), (report.before_since, "too old"))
    more = "".join(f" + {count:,} {what}" for count, what in optional if count)
    before = f" + {report.dropped_before:,} dropped before" if report.dropped_before else ""
    return (
        f"{count_things(report.rows, 'row')} = {count_things(report.traces, 'trace')}{more} "
        f"+ {count_things(report.drops.total(), 'drop')} "
        f"+ {report.already_done - report.dropped_before:,} already there{before}"
    )
