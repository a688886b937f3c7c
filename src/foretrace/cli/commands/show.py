"""`foretrace show`: the traces of a folder, or one trace as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrace.cli.options import corrections_option
from foretrace.cli.output import Output
from foretrace.core.errors import Setting, UsageError

if TYPE_CHECKING:
    from foretrace.core.store import TraceStore
    from foretrace.core.trace import Trace

_PAGE = 50
"""Traces that are listed without `--all`, and read at a time."""


def show(
    output: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Key or id of a trace, or how one begins.")] = None,
    *,
    step: Annotated[int | None, typer.Option("--step", metavar="N", min=0, help="Only this step, whole.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Shorten nothing.")] = False,
    corrections: Annotated[Path | None, corrections_option()] = None,
    every: Annotated[bool, typer.Option("--all", help=f"List all traces, not the first {_PAGE}.")] = False,
) -> None:
    """List traces, or show one as a person reads it.

    With KEY: its steps, calls, observations (shortened unless --full), and the label and rule of each step.
    """
    from foretrace.actions.corrections import read_corrections
    from foretrace.cli.display.traces import show_trace, trace_facts, warn_unsealed
    from foretrace.core.store import TraceStore

    store = TraceStore(traces)
    warn_unsealed(output, traces)
    if key is None:
        for setting, given in (("step", step is not None), ("full", full), ("corrections", corrections is not None)):
            if given:
                raise UsageError(Setting(setting), " needs the KEY of a trace")
        _list(output, store, every)
        return
    if every:
        raise UsageError(Setting("all"), " lists traces; leave it out together with a KEY")
    given = None if corrections is None else read_corrections(corrections)
    trace = store.get(key)
    numbers = [s.index for s in trace.steps()]
    if step is not None and step not in numbers:
        raise UsageError(
            f"{trace.key} has no step {step}; steps are numbered by their message: "
            f"{', '.join(map(str, numbers[:20]))}{', ...' if len(numbers) > 20 else ''}"
        )
    if output.write_json(trace_facts(trace, step, given) if output.json else None):
        return
    show_trace(output, trace, step=step, full=full or step is not None, corrections=given)


def _list(output: Output, store: TraceStore, every: bool) -> None:
    from foretrace.cli.display.traces import show_list, trace_summary

    with output.progress(f"reading {store.folder}") as progress:
        traces, total = _read_in_order(store, every)
        rows = []
        for number, trace in enumerate(traces, 1):
            rows.append(trace_summary(trace))
            progress(f"reading {store.folder}", number, total if every else min(total, _PAGE))
    if not output.write_json({"traces": total, "shown": rows}):
        show_list(output, rows, total)


def _read_in_order(store: TraceStore, every: bool) -> tuple[Iterator[Trace], int]:
    """The traces that are listed, by task and then by key, and the number of all; other records are not read."""
    table = store.read_columns("task_id", "key")
    pairs = zip(table["task_id"].to_pylist(), table["key"].to_pylist(), strict=True)
    keys = [key for _, key in sorted(pairs, key=lambda pair: (pair[0], *_sort_key(pair[1])))]
    pages = (keys[at : at + _PAGE] for at in range(0, len(keys) if every else min(_PAGE, len(keys)), _PAGE))
    return (traces[key] for page in pages for traces in [store.get_many(page)] for key in page), len(keys)


def _sort_key(key: str) -> tuple[str, str]:
    """Sorts the attempts of a run by their number, 2 before 10."""
    head, _, tail = key.rpartition("/")
    return head, tail.zfill(20) if tail.isdecimal() else tail
