"""Work that several commands do, with progress on stderr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli.output import Output
from foretrace.core.places import find_address, write_place

if TYPE_CHECKING:
    from foretrace.api.traces import LabelReport
    from foretrace.dataset.build import BuildReport
    from foretrace.dataset.push import PushReport
    from foretrace.dataset.settings import BuildSettings
    from foretrace.engines.engine import Engine


def label_with_progress(
    output: Output,
    traces: Path,
    out: Path | None,
    *,
    review: Path | None = None,
    lowest: int = 200,
    corrections: Path | None = None,
    engine: Engine,
) -> LabelReport:
    """Write the labels of a traces folder, its least sure steps, or both."""
    output.stay_small()
    from foretrace.api.traces import label_folder
    from foretrace.cli.display.traces import warn_unsealed

    if find_address(traces) is None:
        warn_unsealed(output, traces)
    written = out or review
    output.interrupt_message = f"interrupted; nothing was written to {written and write_place(written)}"
    with output.progress(f"labelling {write_place(traces)}") as progress:
        return label_folder(
            traces,
            out=out,
            review=review,
            lowest=lowest,
            corrections=corrections,
            engine=engine,
            progress=progress,
        )


def build_with_progress(
    output: Output,
    folders: list[Path],
    out: Path,
    settings: BuildSettings,
    *,
    engine: Engine,
    overwrite: bool,
    shown: str = "",
) -> BuildReport:
    """Build a dataset from traces folders. It is called `shown` where that is not `out`."""
    from foretrace.dataset.build import build
    from foretrace.report.view import write_dataset_report

    output.interrupt_message = f"interrupted; {shown or out} is as it was before"
    with output.progress(f"building {shown or out}") as progress:
        report = build(folders, out, settings, engine=engine, overwrite=overwrite, progress=progress)
        write_dataset_report(out)
    return report


def add_references_with_progress(output: Output, dataset: Path) -> list[str]:
    """Add references to a dataset that was just built; returns the names of the predictors."""
    from foretrace.api.scoring import add_references

    output.interrupt_message = f"interrupted; {dataset} is built, without references"
    with output.progress(f"predicting {dataset}") as progress:
        return [each.predictor for each in add_references(dataset, progress=progress).predictors]


def push_with_progress(
    output: Output,
    dataset: Path,
    org: str,
    *,
    name: str | None = None,
    private: bool,
    dry_run: bool = False,
    allow_undecided: bool,
) -> PushReport:
    """Push a built dataset."""
    from foretrace.api.datasets import push
    from foretrace.dataset.push import find_unpushed_configs

    output.interrupt_message = (
        "interrupted; repositories that were pushed are whole, the same command goes on with the others"
    )
    for config in find_unpushed_configs(dataset):
        output.warn(f"warning: config {config} belongs to no repository of ours and is not pushed", "yellow")
    with output.progress(f"pushing {dataset} to {org}") as progress:
        return push(
            dataset,
            org=org,
            name=name,
            private=private,
            dry_run=dry_run,
            allow_undecided=allow_undecided,
            progress=progress,
        )
