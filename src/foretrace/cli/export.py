"""`foretrace export`: the traces of a folder as one file of JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from foretrace.cli._output import Output
from foretrace.core.errors import UsageError

if TYPE_CHECKING:
    from foretrace.core.trace import Trace

_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")

_Format = Annotated[
    Literal["jsonl", "chat"],
    typer.Option(
        "--format", help="jsonl: whole traces; chat: OpenAI messages and tools. `foretrace import` reads both back."
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
    from foretrace.cli._files import atomic_file, check_outside, compressed
    from foretrace.core.store import TraceStore

    if not out.name.endswith(_SUFFIXES):
        raise UsageError(f"{out}: name it with one of {', '.join(_SUFFIXES)}")
    store = TraceStore(traces)
    check_outside(out, traces)
    write = _writer(kind)
    say.kept = f"interrupted; nothing was written to {out}"
    count = 0
    with say.progress(f"exporting {traces}") as progress, atomic_file(out) as file, compressed(file, out.name) as to:
        for trace in store.read():
            to.write(write(trace))
            count += 1
            progress(f"exporting {traces}", count)
    if not say.emit({"traces": count, "format": kind, "out": str(out), "bytes": out.stat().st_size}):
        say.facts([("traces", count), ("bytes", out.stat().st_size), ("file", str(out))])


def _writer(kind: str) -> Callable[[Trace], bytes]:
    import msgspec

    from foretrace.cli._chat_rows import chat_row
    from foretrace.core.trace import encode_trace

    if kind == "jsonl":
        return lambda trace: encode_trace(trace) + b"\n"
    return lambda trace: msgspec.json.encode(chat_row(trace)) + b"\n"
