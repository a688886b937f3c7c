"""`foretrace show`: the traces of a folder, or one trace as a person reads it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli._output import Output
from foretrace.core.errors import UsageError

if TYPE_CHECKING:
    from foretrace.core.store import TraceStore

_ROWS = 50


def show(
    say: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Key or id of a trace, or how one begins.")] = None,
    *,
    step: Annotated[int | None, typer.Option("--step", metavar="N", min=0, help="Only this step, whole.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Shorten nothing.")] = False,
    every: Annotated[bool, typer.Option("--all", help=f"List all traces, not the first {_ROWS}.")] = False,
) -> None:
    """List traces, or show one as a person reads it.

    With KEY: its steps, calls, observations (shortened unless --full), and the label and rule of each step.
    """
    from foretrace.cli._unsealed import warn_unsealed
    from foretrace.core.store import TraceStore

    say.kept = "interrupted"
    store = TraceStore(traces)
    warn_unsealed(say, traces)
    if key is None:
        for flag, value in (("--step", step is not None), ("--full", full)):
            if value:
                raise UsageError(f"{flag} needs the KEY of a trace")
        _list(say, store, every)
        return
    if every:
        raise UsageError("--all lists traces; leave it out together with a KEY")
    from foretrace.cli._reading import show_trace, trace_facts

    trace = store.get(key)
    numbers = [s.index for s in trace.steps()]
    if step is not None and step not in numbers:
        raise UsageError(
            f"{trace.key} has no step {step}; steps are numbered by their message: "
            f"{', '.join(map(str, numbers[:20]))}{', ...' if len(numbers) > 20 else ''}"
        )
    if say.emit(trace_facts(trace, step) if say.json else None):
        return
    show_trace(say, trace, step=step, full=full or step is not None)


def _list(say: Output, store: TraceStore, every: bool) -> None:
    total = sum(s.rows for s in store.manifest.segments)
    with say.progress(f"reading {store.folder}"):
        rows: list[dict[str, Any]] = [
            {
                "key": t.key,
                "task": t.task.id,
                "steps": sum(1 for _ in t.steps()),
                "success": t.outcome.success,
                "status": t.outcome.status,
            }
            for t in islice(store.read(), None if every else _ROWS)
        ]
    if say.emit({"traces": total, "shown": rows}):
        return
    if not rows:
        say.line("no traces")
        return
    success = {True: "yes", False: "no", None: "unknown"}
    say.table(
        ("key", "task", "steps", "success", "status"),
        [(r["key"], r["task"], r["steps"], success[r["success"]], r["status"]) for r in rows],
    )
    if total > len(rows):
        say.note(f"{len(rows)} of {total:,} traces; --all lists them all")
