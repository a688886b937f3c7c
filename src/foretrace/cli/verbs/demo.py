"""`foretrace demo`: the whole way, on attempts of the demo model and on the samples that ship with the package."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli.output import Output
from foretrace.cli.verb import Workers
from foretrace.core.errors import SandboxError, StoreError

if TYPE_CHECKING:
    from foretrace.episodes.generate.engine import GenerateReport

PROBLEMS, PROTOCOL, SAMPLES, TEMPERATURE = 10, "interleaved_tools", 2, 1.0
"""The first ten problems of the built-in set are those that the demo model knows. At this temperature it makes
mistakes, and mends most of them."""
_AT_ONCE = 4
_MARK = ".foretrace-demo"
"""File that says that the folder's contents are the demo's own, to be replaced by the next run."""
_OWN = ("traces", "labels.parquet", "dataset")


def demo(
    say: Output,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where everything goes.")] = Path("demo-out"),
    workers: Workers = 1,
) -> None:
    """Generate, import, label and build, with the demo model and the shipped samples.

    Takes about half a minute and no network. Its dataset is a demonstration, never training data.
    """
    say.note("generating, importing, labelling and building: about half a minute, without a network")
    from foretrace.cli.display.demo import next_steps, show_demo
    from foretrace.cli.verbs.build import build_dataset
    from foretrace.cli.verbs.label import label_folder
    from foretrace.dataset.demonstration import describe_demonstration
    from foretrace.dataset.settings import BuildSettings

    _clear(out)
    traces, labels, dataset = (out / name for name in _OWN)
    generated = _generate(say, traces)
    imported = _import_samples(say, traces)
    labelled = label_folder(say, traces, labels, workers=workers)
    settings = BuildSettings(allow_demo=True)
    manifest = build_dataset(say, [traces], dataset, settings, workers=workers, overwrite=True)
    say.kept = "interrupted"
    commands = next_steps(traces, dataset, sandbox=not isinstance(generated, str))
    facts: dict[str, Any] = {
        "out": str(out),
        "generate": generated if not isinstance(generated, str) else {"skipped": generated},
        "import": imported,
        "labels": labelled,
        "demonstration": describe_demonstration(manifest),
        "manifest": manifest,
        "next": commands,
    }
    if say.emit(facts):
        return
    show_demo(say, generated, imported, labelled, manifest)
    places = {"traces": traces, "labels": labels, "dataset": dataset, "card": dataset / "README.md"}
    say.line()
    say.facts([(name, str(path)) for name, path in places.items()])
    say.line()
    say.line(("next", "bold"))
    for what, command in commands.items():
        say.line((f"  # {what}", "dim"))
        say.line(f"  {command}")


def _clear(out: Path) -> None:
    """Take away what an earlier run made, and nothing else."""
    if out.is_file():
        raise StoreError(f"{out}: is a file; name a folder")
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


def _generate(say: Output, traces: Path) -> GenerateReport | str:
    """Attempts of the demo model; or why there are none, where no sandbox serves."""
    from foretrace.api import run_generate
    from foretrace.core.completion import Sampling
    from foretrace.episodes.generate.resume import GenerateSettings
    from foretrace.models.registry import resolve_model
    from foretrace.problems.registry import problems_of
    from foretrace.protocols.registry import make_protocol
    from foretrace.sandbox.base import Settings
    from foretrace.sandbox.registry import make_sandbox

    say.kept = "interrupted; the next demo begins anew"
    settings = GenerateSettings(
        samples=SAMPLES, sampling=Sampling(temperature=TEMPERATURE, max_tokens=1024), seed=0, concurrency=_AT_ONCE
    )
    with say.progress("1. generate: starting the demo model and the sandbox") as progress:
        try:
            return run_generate(
                problems_of("builtin", None, PROBLEMS),
                make_protocol(PROTOCOL),
                resolve_model("demo"),
                make_sandbox("local", Settings(max_sessions=_AT_ONCE)),
                traces,
                settings,
                lambda status: progress(f"1. generate: {status.line()}"),
            )
        except SandboxError as error:
            return str(error)


def _import_samples(say: Output, traces: Path) -> dict[str, Counter[str]]:
    from foretrace.samples import sample_files
    from foretrace.sources.importing import import_source
    from foretrace.sources.registry import file_inputs, make_source

    counts: dict[str, Counter[str]] = {}
    with say.progress("2. import: the samples") as progress:
        for name, path in sample_files().items():
            source = make_source(name.partition(":")[0])
            report = import_source(source, file_inputs([path]), traces, progress=progress)
            counts[name] = Counter(rows=report.rows, traces=report.traces, drops=report.drops.total())
    return counts
