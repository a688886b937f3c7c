"""`foretrace export`: the traces of a folder as one file of JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from foretrace.cli.output import Cell, Output
from foretrace.core.errors import UsageError

if TYPE_CHECKING:
    from foretrace.core.trace import Trace
    from foretrace.rows.base import Drop

_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")

_Format = Annotated[
    Literal["jsonl", "chat", "inline"],
    typer.Option(
        "--format",
        help="jsonl: whole traces; chat: OpenAI messages and tools; inline: one assistant message an attempt.",
    ),
]


def export(
    say: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    kind: _Format,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File: .jsonl, or with .gz or .zst.")],
) -> None:
    """Write the traces of a folder as JSON lines."""
    import msgspec

    from foretrace.cli.unsealed import check_sealed
    from foretrace.core.files import atomic_file, check_outside, compressed
    from foretrace.core.store import TraceStore
    from foretrace.dataset.demonstration import is_demo_model

    store = TraceStore(traces)
    check_outside(out, traces)
    if not out.name.endswith(_SUFFIXES):
        raise UsageError(f"{out}: name it with one of {', '.join(_SUFFIXES)}")
    check_sealed(say, store, out)
    write = _writer(kind)
    replaced = out.is_file()
    say.kept = f"interrupted; nothing was written to {out}"
    counts: Counter[str] = Counter()
    drops: Counter[str] = Counter()
    with say.progress(f"exporting {traces}") as progress, atomic_file(out) as file, compressed(file, out.name) as to:
        for trace in store.read():
            row = write(trace)
            counts["traces"] += 1
            counts["demo"] += is_demo_model(trace.provenance.model)
            if isinstance(row, bytes):
                to.write(row)
            elif isinstance(row, dict):
                counts["with_tokens"] += row.get("token_ids") is not None
                to.write(msgspec.json.encode(row) + b"\n")
            else:
                drops[row.reason] += 1
            progress(f"exporting {traces}", counts["traces"])
    if counts["demo"] and kind != "jsonl":
        say.note(f"{counts['demo']:,} of the traces are the demo model's: they show the form, and are no training data")
    facts: dict[str, Any] = {"traces": counts["traces"], "written": counts["traces"] - drops.total()}
    if kind == "inline":
        facts["with_tokens"] = counts["with_tokens"]
    _report(say, facts, drops, {"format": kind, "out": str(out), "bytes": out.stat().st_size, "replaced": replaced})


def _report(say: Output, facts: dict[str, Any], drops: Counter[str], file: dict[str, Any]) -> None:
    from foretrace.core.files import place

    if say.emit({**facts, "dropped": dict(drops.most_common()), **file}):
        return
    rows: list[tuple[str, Cell]] = [(name.replace("_", " "), count) for name, count in facts.items()]
    rows += [(f"dropped, {reason}", count) for reason, count in drops.most_common()]
    say.facts([*rows, ("bytes", file["bytes"]), ("file", place(file["out"], file["replaced"]))])


def _writer(kind: str) -> Callable[[Trace], bytes | dict[str, Any] | Drop]:
    """What makes a line, or a row, of a trace."""
    from foretrace.core.trace import encode_trace
    from foretrace.exports.chat import make_chat_row
    from foretrace.exports.inline import make_inline_row

    if kind == "jsonl":
        return lambda trace: encode_trace(trace) + b"\n"
    return make_chat_row if kind == "chat" else make_inline_row
