"""Write pages that show traces and datasets in a browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.core.errors import Setting, UsageError
from foretrace.core.places import make_local_path

if TYPE_CHECKING:
    from foretrace.core.progress import ProgressFunc
    from foretrace.report.view import ViewReport


def view(
    inputs: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    single: str | Path | None = None,
    progress: ProgressFunc | None = None,
) -> ViewReport:
    """Write a page that shows traces, a dataset or predictions in a browser, without server and network (docs/cli.md).

    Args:
        inputs: Traces folder, or two; a dataset, its predictions, results of score and replay; or predictions.
        out: Folder for the page; what an earlier `view` wrote there is replaced.
        single: One file that can be mailed, in place of a folder; up to 20 MB of texts.

    Raises:
        UsageError: both of `out` and `single`, or none; inputs that do not go together.
        StoreError: the inputs cannot be read, or the page cannot be written.
        PredictionError: a file of predictions cannot be read.
    """
    from foretrace.core.progress import ignore_progress
    from foretrace.report.page import FolderPage, SinglePage
    from foretrace.report.view import write_view

    if (out is None) == (single is None):
        raise UsageError("name either ", Setting("out"), ", a folder, or ", Setting("single"), ", a file")
    folders = [make_local_path(each) for each in ([inputs] if isinstance(inputs, (str, Path)) else inputs)]
    place = make_local_path(out or single or "")
    return write_view(
        folders,
        lambda: SinglePage(place) if single is not None else FolderPage(place),
        progress or ignore_progress,
    )
