"""`foretrace demo`: the whole way on the samples that ship with the package."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from foretrace.cli._output import Output
from foretrace.cli._verb import Workers
from foretrace.core.errors import StoreError

_MARK = ".foretrace-demo"
"""File that says that the folder's contents are the demo's own, to be replaced by the next run."""
_OWN = ("traces", "labels.parquet", "dataset")


def demo(
    say: Output,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where everything goes.")] = Path("demo-out"),
    workers: Workers = 1,
) -> None:
    """Import, label and build the shipped samples.

    Takes a few seconds and no network.
    """
    from foretrace.cli.build import build_dataset
    from foretrace.cli.label import label_folder, show_actions
    from foretrace.dataset.settings import BuildSettings

    _clear(out)
    traces, labels, dataset = (out / name for name in _OWN)
    counts = _import_samples(say, traces)
    labelled = label_folder(say, traces, labels, workers=workers)
    manifest = build_dataset(say, [traces], dataset, BuildSettings(), workers=workers, overwrite=True)
    say.kept = "interrupted"
    if say.emit({"out": str(out), "import": counts, "labels": labelled, "manifest": manifest}):
        return
    total = sum(counts.values(), Counter[str]())
    say.line(
        ("1. import", "bold"),
        f"  {total['rows']} raw rows in {len(counts)} formats -> {total['traces']} traces, {total['drops']} drops",
    )
    say.table(
        ("input", "rows", "traces", "drops"), [(n, c["rows"], c["traces"], c["drops"]) for n, c in counts.items()]
    )
    say.line()
    say.line(("2. label", "bold"), f"   {labelled['steps']} steps, {labelled['nonsteps']} messages that are no step")
    show_actions(say, labelled["actions"])
    say.line()
    say.line(("3. build", "bold"))
    _show_build(say, manifest)
    say.line()
    say.facts(
        [
            ("traces", str(traces)),
            ("labels", str(labels)),
            ("dataset", str(dataset)),
            ("card", str(dataset / "README.md")),
        ]
    )
    say.line()
    say.line("look at one:  ", (f"foretrace show {traces}", "bold"))
    say.line("load it:      ", (f'datasets.load_dataset("{dataset}", "proposer")', "bold"))


def _clear(out: Path) -> None:
    """Take away what an earlier run made, and nothing else."""
    mine = (out / _MARK).is_file()
    for name in _OWN:
        path = out / name
        if path.exists() and not mine:
            raise StoreError(f"{path}: is there and was not made by the demo; choose another --out")
    try:
        for path in (out / name for name in _OWN):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARK).write_text("The contents of this folder are made anew by every `foretrace demo`.\n")
    except OSError as error:
        raise StoreError(f"{out}: cannot write: {error.strerror or error}") from error


def _import_samples(say: Output, traces: Path) -> dict[str, Counter[str]]:
    from foretrace.cli._inputs import file_inputs, make_source
    from foretrace.samples import sample_files
    from foretrace.sources._importing import import_source

    counts: dict[str, Counter[str]] = {}
    with say.progress("importing the samples") as progress:
        for name, path in sample_files().items():
            source = make_source(name.partition(":")[0])
            report = import_source(source, file_inputs([path]), traces, progress=progress)
            counts[name] = Counter(rows=report.rows, traces=report.traces, drops=report.drops.total())
    return counts


def _show_build(say: Output, manifest: dict[str, Any]) -> None:
    configs: dict[str, dict[str, Any]] = manifest.get("configs", {})
    splits = list(dict.fromkeys(split for by_split in configs.values() for split in by_split))
    say.table(
        ("rows", *splits),
        [(name, *((by_split.get(s) or {}).get("rows", 0) for s in splits)) for name, by_split in configs.items()],
    )
    verdicts = Counter(str(gate.get("verdict")) for gate in manifest.get("gates", []))
    undecided = " (a demo has too few rows for the statistical ones)" if verdicts["undecided"] else ""
    say.line(f"gates: {', '.join(f'{count} {name}' for name, count in sorted(verdicts.items()))}{undecided}")
    for warning in manifest.get("warnings", []):
        say.warn(f"warning: {warning}", "yellow")
