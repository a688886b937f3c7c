"""`foretrace label`: what every step of every trace does, as one file of rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from foretrace.cli.output import Output
from foretrace.cli.verb import Workers

_BAR = 30


def label(
    say: Output,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="Traces folder.")],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Labels: .parquet, .jsonl or .csv.")],
    workers: Workers = 1,
) -> None:
    """Label every step of every trace.

    One row a step: which of the nine actions it is, the rule that decided, what running it would touch.
    """
    from foretrace.core.files import describe_output

    facts = label_folder(say, traces, out, workers=workers)
    if say.emit(facts):
        return
    show_actions(say, facts["actions"])
    say.facts(
        [
            ("traces", facts["traces"]),
            ("steps", facts["steps"]),
            ("not a step", facts["nonsteps"]),
            ("labels", describe_output(out, facts["replaced"])),
        ]
    )


def label_folder(say: Output, traces: Path, out: Path, *, workers: int = 1) -> dict[str, Any]:
    """Write the labels of a traces folder to `out`; returns counts, actions in the order of the nine."""
    say.stay_small()
    from foretrace.actions import ActionType
    from foretrace.actions.label_files import label_format, label_tables, write_labels
    from foretrace.cli.unsealed import check_sealed
    from foretrace.core.files import refuse_inside_folder
    from foretrace.core.store import TraceStore

    refuse_inside_folder(out, traces)
    label_format(out)
    check_sealed(say, TraceStore(traces), out)
    replaced = out.is_file()
    actions: Counter[str | None] = Counter()
    done = 0
    say.kept = f"interrupted; nothing was written to {out}"

    def watch(table: Any) -> None:
        actions.update(table["action"].to_pylist())

    with say.progress(f"labelling {traces}") as progress:

        def count(number: int) -> None:
            nonlocal done
            done = number
            progress(f"labelling {traces}", number)

        write_labels(label_tables(traces, workers=workers, traces=count), out, watch)
    nonsteps = actions.pop(None, 0)
    return {
        "traces": done,
        "steps": sum(actions.values()),
        "nonsteps": nonsteps,
        "actions": {str(a): actions[str(a)] for a in ActionType},
        "out": str(out),
        "replaced": replaced,
    }


def show_actions(say: Output, actions: dict[str, int]) -> None:
    """The distribution of the nine, in their order, with a bar for each."""
    total, most = sum(actions.values()), max(actions.values(), default=0)
    say.table(
        ("action", "steps", "share", ""),
        [
            (name, count, f"{count / total:6.1%}" if total else "-", "█" * round(_BAR * count / most) if most else "")
            for name, count in actions.items()
        ],
    )
