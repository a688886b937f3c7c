"""What `foretrace import` says: dropped rows, counts, and why nothing was imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.output import Output
from foretrace.core.errors import SourceError

if TYPE_CHECKING:
    from foretrace.sources.importing import ImportReport

_OUTCOMES = (("true", "success"), ("false", "failed"), ("unknown", "unknown"))


def import_facts(report: ImportReport, label: str, out: Path) -> dict[str, Any]:
    """The report as one JSON object."""
    return {
        "input": label,
        "out": str(out),
        "rows": report.rows,
        "traces": report.traces,
        "already_there": report.already,
        "drops": dict(sorted(report.drops.items())),
        "examples": report.examples,
        "success": {name: report.success[name] for name in ("true", "false", "unknown")},
    }


def show_import(output: Output, report: ImportReport, label: str, out: Path) -> None:
    """Say what an import did."""
    for reason, examples in sorted(report.examples.items()):
        for example in examples:
            output.note(f"dropped, {reason}: {example}")
    hint = report.traces and report.success["unknown"] == report.traces
    if hint:
        output.note(
            "no row says whether its attempt succeeded: `foretrace build` takes successful attempts only, "
            "unless it is given --outcomes not_failed or --outcomes all"
        )
    if output.write_json(import_facts(report, label, out)):
        return
    outcomes = report.success
    output.print_fields(
        [
            ("input", label),
            ("rows", report.rows),
            ("traces", report.traces),
            ("drops", report.drops.total()),
            *((f"  {reason}", count) for reason, count in sorted(report.drops.items())),
            ("already there", report.already),
            ("outcomes", ", ".join(f"{outcomes[k]:,} {name}" for k, name in _OUTCOMES)),
            ("traces folder", str(out)),
        ]
    )
    output.print(
        f"{report.rows:,} rows = {report.traces:,} traces + {report.drops.total():,} drops "
        f"+ {report.already:,} already there"
    )


def check_not_empty(report: ImportReport, label: str) -> None:
    """Refuse to call an import done that found nothing."""

    if report.traces or report.already > report.dropped_before:
        return
    if not report.rows:
        raise SourceError(f"{label}: holds no rows; nothing was imported")
    if not report.drops:
        raise SourceError(f"{label}: all {report.rows:,} rows were dropped before; is this the right source?")
    reason, count = report.drops.most_common(1)[0]
    example = f": {report.examples[reason][0]}" if reason in report.examples else ""
    raise SourceError(
        f"{label}: nothing was imported, all {report.rows:,} rows were dropped ({count:,} for {reason}{example}); "
        "is this the right source?"
    )
