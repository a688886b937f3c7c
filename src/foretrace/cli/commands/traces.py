"""What is done with traces folders: `import`, `scrub`, `label`, `show`, `view`, `export`; and what is read: `sources`,
`schema`."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foretrace.cli.display import show_plugins, show_report
from foretrace.cli.output import Output
from foretrace.core.errors import Setting, UsageError
from foretrace.core.places import find_address, write_place

if TYPE_CHECKING:
    from foretrace.core.store import TraceStore

_PAGE = 50
"""Traces that are listed without `--all`, and read at a time."""


def import_(output: Output, source: str, paths: Sequence[str] = (), *, out: Path, **settings: Any) -> None:
    """Convert agent logs to traces, and add them to a traces folder.

    Without a source, folders are searched, and each file goes to the source that knows its format. Every row or
    conversation becomes a trace, is dropped and counted with the reason, or was already there. The same command again
    continues where an interrupted one stopped, and adds what was written since. Files that no source knows are listed;
    those that several know are listed too, and then the exit code is 1.

    Args:
        paths: Files, folders, patterns, - for JSON lines on stdin, or hf://datasets/OWNER/NAME. Without one, a source
            of rows is read from its place on the Hugging Face Hub.
        workers: Processes that convert, or tasks of the cluster (default: all cores).
    """
    from foretrace.api.traces import run_import
    from foretrace.cli.display.imports import show_import
    from foretrace.engines.processes import usable_cores
    from foretrace.registry import is_own_source, split_input
    from foretrace.sources.report import check_import

    source, given = split_input(source, paths)
    output.interrupt_message = f"interrupted; nothing was imported into {write_place(out)}"
    if settings["engine"] == "processes":
        settings["workers"] = settings["workers"] or usable_cores()
    if given and is_own_source(source) and not any("://" in path for path in given):
        output.stay_small()
    with _keep_stdin(given) as files, output.progress("opening the input") as progress:
        settings |= {"source": source, "inputs": files, "out": out, "progress": progress}
        report, label = run_import(settings)
    output.interrupt_message = f"interrupted; the import into {write_place(out)} is done"
    show_import(output, report, label, out)
    check_import(report, label, out)


@contextlib.contextmanager
def _keep_stdin(paths: Sequence[str]) -> Generator[list[str | Path]]:
    """The paths, with a file that holds what comes on stdin in the place of `-`."""
    if "-" not in paths:
        yield list(paths)
        return
    with tempfile.TemporaryDirectory(prefix="foretrace-") as folder:
        file = Path(folder, "stdin.jsonl")
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield [file if path == "-" else path for path in paths]


def scrub(output: Output, traces: Path, *, out: Path, **settings: Any) -> None:
    """Copy a traces folder without the secrets and user names in its traces.

    For folders that were written before foretrace looked for them, or with --no-redact. The folder stays as it is.
    """
    from foretrace.api.traces import scrub

    output.warn_unsealed(traces)
    output.interrupt_message = (
        f"interrupted; what was sealed so far is kept in {out}, the same command goes on from there"
    )
    show_report(output, output.work(f"scrubbing {traces}", scrub, traces, out=out, **settings))


def label(output: Output, traces: Path, **settings: Any) -> None:
    """Label every step of every trace with the kind of action it takes.

    One row a step: which of the nine actions it is, the rule that decided, how sure that is, what running
    it would touch. --review lists unsure steps; fill in its last column and give it back to --corrections.
    """
    from foretrace.api.traces import label_folder

    out, review = settings["out"], settings["review"]
    output.stay_small()
    if find_address(traces) is None:
        output.warn_unsealed(traces)
    output.interrupt_message = f"interrupted; nothing was written to {write_place(out or review)}"
    show_report(output, output.work(f"labeling {write_place(traces)}", label_folder, traces, **settings))


def show(
    output: Output,
    traces: Path,
    key: str | None = None,
    *,
    step: int | None = None,
    full: bool = False,
    corrections: Path | None = None,
    every: bool = False,
) -> None:
    """List traces, or show one in readable form.

    With KEY: its steps, calls, observations (shortened unless --full), and the label and rule of each step.

    Args:
        traces: Traces folder.
        key: Key or id of a trace, or how one begins.
        step: Only this step, whole, with what its rule means.
        full: Shorten nothing.
        corrections: Corrected actions, which take precedence: an edited review of `label`.
        every: List all traces, not the first 50.
    """
    from foretrace.actions.corrections import read_corrections
    from foretrace.cli.display.traces import show_trace, trace_facts
    from foretrace.core.store import TraceStore

    store = TraceStore(traces)
    output.warn_unsealed(traces)
    if key is None:
        for setting, is_given in (("step", step is not None), ("full", full), ("corrections", corrections is not None)):
            if is_given:
                raise UsageError(Setting(setting), " needs the KEY of a trace")
        _list(output, store, every)
        return
    if every:
        raise UsageError(Setting("every"), " lists traces; leave it out together with a KEY")
    given = None if corrections is None else read_corrections(corrections)
    trace = store.get(key)
    numbers = [s.index for s in trace.steps()]
    if step is not None and step not in numbers:
        listed = f"{', '.join(map(str, numbers[:20]))}{', ...' if len(numbers) > 20 else ''}"
        raise UsageError(f"{trace.key} has no step {step}; steps are numbered by their message: {listed}")
    if output.json:
        output.write_json(trace_facts(trace, step, given))
    else:
        show_trace(output, trace, step=step, full=full or step is not None, corrections=given)


def _list(output: Output, store: TraceStore, every: bool) -> None:
    """List traces by date, then by task and key. Which ones are listed goes by task and key: other records, which hold
    the dates, are not read."""
    from foretrace.cli.display.traces import show_list, trace_summary

    def order(pair: tuple[str, str]) -> tuple[str, str, str]:
        task, key = pair
        head, _, number = key.rpartition("/")  # the attempts of a run by their number, 2 before 10
        return task, head, number.zfill(20) if number.isdecimal() else number

    with output.progress(f"reading {store.folder}") as progress:
        table = store.read_columns("task_id", "key")
        pairs = zip(table["task_id"].to_pylist(), table["key"].to_pylist(), strict=True)
        keys = [key for _, key in sorted(pairs, key=order)]
        total, rows = len(keys), list[dict[str, Any]]()
        for at in range(0, total if every else min(_PAGE, total), _PAGE):
            page = keys[at : at + _PAGE]
            traces = store.get_many(page)
            rows += [trace_summary(traces[key]) for key in page]
            progress(f"reading {store.folder}", len(rows), total if every else min(total, _PAGE))
    rows.sort(key=lambda row: row["date"] or "")
    if not output.write_json({"traces": total, "shown": rows}):
        show_list(output, rows, total)


def view(
    output: Output,
    inputs: Sequence[Path],
    *,
    out: Path | None = None,
    single: Path | None = None,
    tokenizer: Path | None = None,
    open_page: bool = False,
) -> None:
    """Write a page that shows traces or a dataset in a browser: no server, no network.

    Traces: a list with search and filters, and each step by step. Datasets: gates, figures, rows, predictions beside
    the eval rows, and what score and replay wrote with --out.

    Args:
        out: Folder for the page (view).
        tokenizer: Folder of a tokenizer: rows of a dataset are also shown as its chat template renders them, and what
            bears the loss is marked.
        open_page: Open the page in the browser.
    """
    output.stay_small()
    from foretrace.api.traces import view

    if out is not None and single is not None:
        raise UsageError(Setting("single"), " writes one file, and ", Setting("out"), " a folder: leave one out")
    for path in inputs:
        if path.is_dir():
            output.warn_unsealed(path)
    if single is None:
        out = out or Path("view")
    output.interrupt_message = f"interrupted; nothing was written to {single or out}"
    report = output.work(f"reading {inputs[0]}", view, inputs, out=out, single=single, tokenizer=tokenizer)
    if open_page:
        import webbrowser

        webbrowser.open(Path(report.page).resolve().as_uri())
    show_report(output, report, {"inputs": [str(path) for path in inputs]})


def export(
    output: Output,
    traces: str,
    *,
    format: str,
    out: Path,
    calls: Literal["verbatim", "native", "xml"] | None = None,
) -> None:
    """Export the traces of a folder in another format, and say what that format could not hold."""
    from foretrace.api.traces import export

    output.warn_unsealed(Path(traces))
    output.interrupt_message = f"interrupted; nothing was written to {out}"
    report = output.work(f"exporting {traces}", export, traces, format=format, out=out, calls=calls)
    if report.from_demo_model and format != "jsonl":
        output.note(
            f"{report.from_demo_model:,} of the traces are the demo model's: they show the form, "
            "and are not training data"
        )
    show_report(output, report)


def sources(output: Output) -> None:
    """List what `import` and `build` can read."""
    from foretrace.registry import describe_plugins

    found = describe_plugins("source")
    if not output.write_json({"sources": found}):
        show_plugins(output, found, "module:Class (docs/sources.md)")


def schema(output: Output, name: str = "Trace") -> None:
    """Print the JSON Schema of a record.

    Args:
        name: A record, e.g. Trace or Message.
    """
    import msgspec

    from foretrace.actions.taxonomy import StepLabel
    from foretrace.core import trace

    found: list[Any] = [trace.Trace, trace.Message, trace.ToolCall, trace.ToolSpec, trace.Task, trace.Outcome]
    records = {record.__name__: record for record in (*found, trace.Provenance, StepLabel)}
    record = next((each for own, each in records.items() if own.lower() == name.lower().replace("_", "")), None)
    if record is None:
        raise UsageError(f"no record {name!r}: choose one of {', '.join(records)}")
    shown = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(record)}
    if not output.write_json(shown):
        output.write(msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n")
