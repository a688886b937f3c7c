"""`foretrace show`: the traces of a folder, or one trace as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli.output import Output
from foretrace.core.errors import UsageError

if TYPE_CHECKING:
    from foretrace.core.store import TraceStore
    from foretrace.core.trace import Trace

_ROWS = 50
_ABSENT = ("model", "protocol", "seed", "sample", "reward")
"""Columns that are left out where no trace has anything to say there."""


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
    from foretrace.cli.unsealed import warn_unsealed
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
    from foretrace.cli.display.trace import show_trace, trace_facts

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
    with say.progress(f"reading {store.folder}"):
        page, total = _page(store, every)
        rows = [_row(trace) for trace in page]
    if say.emit({"traces": total, "shown": rows}):
        return
    if not rows:
        say.line("no traces")
        return
    success = {True: "yes", False: "no", None: "unknown"}
    told = [{**row, "success": success[row["success"]]} for row in rows]
    columns = [name for name in rows[0] if name not in _ABSENT or any(row[name] is not None for row in rows)]
    say.table(columns, [[row[name] for name in columns] for row in told])
    if total > len(rows):
        say.note(f"{len(rows)} of {total:,} traces; --all lists them all")


def _page(store: TraceStore, every: bool) -> tuple[Iterator[Trace], int]:
    """The traces that are listed, by task and then by key, and the number of all; other records are not read."""
    table = store.columns("task_id", "key")
    pairs = zip(table["task_id"].to_pylist(), table["key"].to_pylist(), strict=True)
    keys = [key for _, key in sorted(pairs, key=lambda pair: (pair[0], *_in_order(pair[1])))]
    pages = (keys[at : at + _ROWS] for at in range(0, len(keys) if every else min(_ROWS, len(keys)), _ROWS))
    return (found[key] for page in pages for found in [store.get_many(page)] for key in page), len(keys)


def _in_order(key: str) -> tuple[str, str]:
    """Sorts the attempts of a run by their number, 2 before 10."""
    head, _, tail = key.rpartition("/")
    return head, tail.zfill(20) if tail.isdecimal() else tail


def _row(trace: Trace) -> dict[str, Any]:
    """What the list says of a trace."""
    origin, outcome = trace.provenance, trace.outcome
    return {
        "key": trace.key,
        "task": trace.task.id,
        "model": origin.model,
        "protocol": origin.protocol,
        "seed": origin.seed,
        "sample": origin.sample,
        "steps": sum(1 for _ in trace.steps()),
        "success": outcome.success,
        "reward": outcome.reward,
        "status": outcome.status,
    }
