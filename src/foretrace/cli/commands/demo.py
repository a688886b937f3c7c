"""`foretrace demo`: the whole way, on attempts of the demo model and on the samples that ship with the package."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.options import write_flag
from foretrace.cli.output import Output
from foretrace.core.errors import SandboxError, Setting, StoreError

if TYPE_CHECKING:
    from foretrace.episodes.generate.engine import GenerateReport
    from foretrace.evaluation.ceiling_report import CeilingReport
    from foretrace.evaluation.score_report import ScoreReport

_PROTOCOL, _SAMPLES, _CONCURRENCY = "interleaved_tools", 2, 4
_TEMPERATURE = 1.0
"""At this one the demo model makes mistakes, and mends most of them."""
_MARKER = ".foretrace-demo"
"""File that says that the folder's contents are the demo's own, to be replaced by the next run."""
_OWN = ("traces", "labels.parquet", "dataset", "predictions")
_PREDICTORS = ("majority", "markov:2", "regression")
"""Those that need only a moment to learn."""


def demo(
    output: Output,
    *,
    out: Path = Path("demo-out"),
    workers: int = 1,
) -> None:
    """Generate, import, label, build and score, with the demo model and the shipped samples.

    Takes about half a minute and no network. Its dataset is a demonstration, never training data.

    Args:
        out: Folder for everything.
        workers: Processes that work at once.
    """
    output.note("generating, importing, labelling, building and scoring: about half a minute, without a network")
    import msgspec

    from foretrace.api.datasets import build
    from foretrace.api.traces import label_folder
    from foretrace.cli.display.demo import next_steps, show_demo, show_places, show_worth
    from foretrace.dataset.demonstration import describe_demonstration
    from foretrace.report.view import REPORT

    _clear(out)
    traces, labels, dataset, predictions = (out / name for name in _OWN)
    generated = _generate(output, traces)
    imported = _import_samples(output, traces)
    labelled = output.work(f"3. label: {traces}", label_folder, traces, out=labels, workers=workers)
    report = output.work(f"4. build: {dataset}", build, traces, out=dataset, allow_demo=True, workers=workers)
    ceiling = None if isinstance(generated, str) else _measure_ceiling(traces)
    scores = _score_predictors(output, dataset, predictions)
    output.interrupt_message = "interrupted"
    steps = next_steps(traces, dataset, sandbox=not isinstance(generated, str))
    facts: dict[str, Any] = {
        "out": str(out),
        "generate": generated.make_facts() if not isinstance(generated, str) else {"skipped": generated},
        "import": imported,
        "labels": labelled,
        "demonstration": describe_demonstration(report.manifest),
        "manifest": report.manifest,
        "ceiling": msgspec.to_builtins(ceiling),
        "scores": msgspec.to_builtins(scores),
        "next": steps,
    }
    if output.write_json(facts):
        return
    show_demo(output, generated, imported, labelled, report.manifest)
    show_worth(output, ceiling, scores)
    places = {"traces": traces, "labels": labels, "dataset": dataset, "card": dataset / "README.md"}
    show_places(output, places | {"predictions": predictions}, steps)
    output.print()
    output.print(("see it in a browser", "bold"), f"  {dataset / REPORT}")


def _clear(out: Path) -> None:
    """Take away what an earlier run made, and nothing else."""
    if out.is_file():
        raise StoreError(f"{out}: is a file; name a folder")
    own = (out / _MARKER).is_file()
    for name in _OWN:
        path = out / name
        if path.exists() and not own:
            raise StoreError(f"{path}: is there and was not made by the demo; choose another ", Setting("out"))
    try:
        for path in (out / name for name in _OWN):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARKER).write_text("The contents of this folder are made anew by every `foretrace demo`.\n")
    except OSError as error:
        raise StoreError(f"{out}: cannot write: {error.strerror or error}") from error


def _generate(output: Output, traces: Path) -> GenerateReport | str:
    """Attempts of the demo model; or why there are none, where no sandbox serves."""
    from foretrace.api.generation import generate
    from foretrace.cli.display.generate import describe_progress
    from foretrace.models.demo_model import KNOWN_PROBLEMS

    output.interrupt_message = "interrupted; the next demo begins anew"
    with output.progress("1. generate: starting the demo model and the sandbox") as progress:
        try:
            return generate(
                "builtin",
                limit=KNOWN_PROBLEMS,
                model="demo",
                protocol=_PROTOCOL,
                out=traces,
                samples=_SAMPLES,
                temperature=_TEMPERATURE,
                max_tokens=1024,
                concurrency=_CONCURRENCY,
                progress=lambda status: progress(f"1. generate: {describe_progress(status)}"),
            )
        except SandboxError as error:
            return error.render(write_flag)


def _import_samples(output: Output, traces: Path) -> dict[str, Counter[str]]:
    from foretrace.api.traces import import_source
    from foretrace.samples import sample_files

    counts: dict[str, Counter[str]] = {}
    with output.progress("2. import: the samples") as progress:
        for name, path in sample_files().items():
            report = import_source(name.partition(":")[0], path, out=traces, progress=progress)
            counts[name] = Counter(rows=report.rows, traces=report.traces, drops=report.drops.total())
    return counts


def _measure_ceiling(traces: Path) -> CeilingReport:
    """What speculation could save at most, on the generated traces: the samples have no times."""
    from foretrace.api.evaluation import ceiling
    from foretrace.core.store import read_traces

    generated = (trace for trace in read_traces(traces) if trace.provenance.origin == "generated")
    return ceiling(generated, guess_latency=0.0, allow=("sandbox_exec",))


def _score_predictors(output: Output, dataset: Path, predictions: Path) -> dict[str, ScoreReport]:
    """How good predictors are that cost nothing; their guesses are written to a folder."""
    from foretrace.api.evaluation import predict
    from foretrace.api.scoring import score

    predictions.mkdir()
    scores: dict[str, ScoreReport] = {}
    with output.progress("6. score: predicting") as progress:
        for predictor in _PREDICTORS:
            out = predictions / f"{predictor.replace(':', '-')}.jsonl"
            predict(dataset, out=out, predictor=predictor, times=False, progress=progress)
            scores[predictor] = score(out, dataset)
    return scores
