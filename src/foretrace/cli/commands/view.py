"""`foretrace view`: traces and datasets as a page in the browser, from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrace.cli.options import out_option, parse_file
from foretrace.cli.output import Output
from foretrace.core.errors import Setting, UsageError

_DEFAULT = Path("view")


def view(
    output: Output,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACES|DATASET|PREDICTIONS ...",
            help="Traces folder, or two; a dataset, its predictions, results of score and replay; or predictions.",
        ),
    ],
    *,
    out: Annotated[Path | None, out_option("DIR", f"Folder for the page ({_DEFAULT}).")] = None,
    single: Annotated[
        Path | None,
        typer.Option(
            "--single", metavar="FILE", help="One file that can be mailed, in place of a folder.", parser=parse_file
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write a page that shows traces or a dataset in a browser: no server, no network.

    Traces: a list with search and filters, and each step by step. Datasets: gates, figures, rows, predictions beside
    the eval rows, and what score and replay wrote with --out. Predictions alone: what was guessed at each step.
    """
    output.stay_small()
    import msgspec

    from foretrace.api.reports import view
    from foretrace.cli.display.traces import show_view, warn_unsealed

    if out is not None and single is not None:
        raise UsageError(Setting("single"), " writes one file, and ", Setting("out"), " a folder: leave one out")
    for path in inputs:
        if path.is_dir():
            warn_unsealed(output, path)
    place = {"single": single} if single is not None else {"out": out or _DEFAULT}
    output.interrupt_message = f"interrupted; nothing was written to {single or out or _DEFAULT}"
    with output.progress(f"reading {inputs[0]}") as progress:
        report = view(list(inputs), **place, progress=progress)
    if open_page:
        import webbrowser

        webbrowser.open(Path(report.page).resolve().as_uri())
    if not output.write_json({"inputs": [str(path) for path in inputs], **msgspec.to_builtins(report)}):
        show_view(output, report)
