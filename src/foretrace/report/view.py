"""From inputs to a page: determine what they are, and write the page that shows them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.core.errors import ForetraceWarning, Setting, StoreError, UsageError
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.report import Report
from foretrace.core.store import TraceStore
from foretrace.dataset.report import is_dataset
from foretrace.dataset.tokenize import load_tokenizer
from foretrace.report.dataset_page import RowLimits, write_dataset_page
from foretrace.report.page import Page, SinglePage
from foretrace.report.traces_page import name_folders, write_traces_page

MAX_RUNS = 2
REPORT = "report.html"
"""Written by `build` next to the card; the manifest does not list it, and `push` does not upload it."""
_REPORT_LIMITS = RowLimits(of_split=15, eval=30)


class ViewReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    page: str
    kind: Literal["traces", "dataset"]
    listed: int
    """Traces, or rows of a dataset, in the lists."""
    left_out: int
    """Those shown only as a line in the list, because a single file has no room for more."""
    unreadable: int = 0
    """Traces whose records cannot be read; the page says why."""


def write_view(
    inputs: Sequence[Path], make_page: Callable[[], Page], progress: ProgressFunc, tokenizer: Any = None
) -> ViewReport:
    """Write a page that shows one or two traces folders; or a dataset with files of predictions, and results of `score`
    and `replay`. `make_page` returns an empty page; with a tokenizer, rows are also shown as its template renders
    them."""
    datasets = [path for path in inputs if is_dataset(path)]
    results = [path for path in inputs if path.suffix.lower() == ".json" and path.is_file()]
    predictions = [path for path in inputs if path not in (*datasets, *results)]
    for number, path in enumerate(inputs):
        if path.resolve() in {earlier.resolve() for earlier in inputs[:number]}:
            raise UsageError(f"{path}: is named twice")
        if not path.exists():
            raise StoreError(f"{path}: no such file or folder")
    if tokenizer is not None and not datasets:
        raise UsageError(Setting("tokenizer"), " is for the rows of a dataset: name one")
    if datasets or any(path.is_file() for path in inputs):
        if len(datasets) != 1 or len(predictions) > MAX_RUNS:
            raise UsageError(
                f"view shows one dataset, with up to {MAX_RUNS} files of predictions and results of `score` and "
                "`replay` behind it: name the folder that `build` wrote, then the files"
            )
        title = datasets[0].resolve().name
    elif 1 <= len(inputs) <= MAX_RUNS:
        title = " · ".join(name_folders(inputs))
    else:
        raise UsageError(f"view shows one traces folder, or {MAX_RUNS} side by side")
    if isinstance(tokenizer, Path):
        tokenizer = load_tokenizer(tokenizer)
    page = make_page()
    try:
        if datasets:
            counts = write_dataset_page(
                page, datasets[0], predictions, RowLimits(), progress, results=results, tokenizer=tokenizer
            )
        else:
            counts = write_traces_page(page, [TraceStore(folder) for folder in inputs], progress)
        path = page.finish(title)
    except BaseException:
        page.discard()
        raise
    return ViewReport(page=str(path), kind="dataset" if datasets else "traces", **counts._asdict())


def write_dataset_report(dataset: Path) -> Path | None:
    """Write `report.html` next to the card of a dataset that was just built: small, with a few rows of each config.

    The same dataset gives the same bytes, wherever it is. The dataset is complete without it: if it cannot be written,
    this only warns and returns `None`.
    """
    try:
        page = SinglePage(dataset / REPORT, limit=1_000_000)
        write_dataset_page(page, dataset, (), _REPORT_LIMITS, ignore_progress, title="Dataset")
        return page.finish("Dataset")
    except StoreError as error:
        warnings.warn(ForetraceWarning(f"the dataset is built, its report is not: {error}"), stacklevel=2)
        return None
