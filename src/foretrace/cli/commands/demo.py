"""`foretrace demo`: the whole way, on attempts of the demo model and on the samples that ship with the package."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.options import write_flag
from foretrace.cli.output import Output
from foretrace.core.errors import SandboxError, Setting, StoreError

if TYPE_CHECKING:
    from foretrace.episodes.generate.engine import GenerateReport
    from foretrace.evaluation.score_report import ScoreReport

_MARKER = ".foretrace-demo"
"""File that says that the folder's contents are the demo's own, to be replaced by the next run."""
_OWN = ("traces", "labels.parquet", "dataset", "predictions")
_PREDICTORS = ("majority", "markov:2", "regression")
"""Those that need only a moment to learn."""


def demo(output: Output, *, out: Path = Path("demo-out"), workers: int = 1) -> None:
    """Generate, import, label, build and score, with the demo model and the shipped samples.

    Takes about half a minute and no network. Its dataset is a demonstration, never training data.

    Args:
        out: Folder for everything.
        workers: Processes that work at once.
    """
    output.note("generating, importing, labeling, building and scoring: about half a minute, without a network")
    import msgspec

    from foretrace.api.datasets import build
    from foretrace.api.evaluation import ceiling
    from foretrace.api.traces import label_folder
    from foretrace.cli.display.dataset import show_actions
    from foretrace.cli.display.speculation import summarize_ceiling
    from foretrace.core.store import read_traces
    from foretrace.dataset.demonstration import describe_demonstration

    _clear(out)
    traces, labels, dataset, predictions = (out / name for name in _OWN)
    output.interrupt_message = "interrupted; the next demo begins anew"
    generated = _generate(output, traces)
    imported = _import_samples(output, traces)
    labeled = output.work("3. label", label_folder, traces, out=labels, workers=workers)
    manifest = output.work("4. build", build, traces, out=dataset, allow_demo=True, workers=workers).manifest
    worth = None
    if not isinstance(generated, str):  # the samples have no times
        timed = (trace for trace in read_traces(traces) if trace.provenance.origin == "generated")
        worth = ceiling(timed, guess_latency=0.0, allow=("sandbox_exec",))
    scores = _score_predictors(output, dataset, predictions)
    output.interrupt_message = "interrupted"
    steps = next_steps(traces, dataset, sandbox=not isinstance(generated, str))
    facts: dict[str, Any] = {
        "out": str(out),
        "generate": {"skipped": generated} if isinstance(generated, str) else generated.make_facts(),
        "import": imported,
        "labels": labeled,
        "demonstration": describe_demonstration(manifest),
        "manifest": manifest,
        "ceiling": msgspec.to_builtins(worth),
        "scores": msgspec.to_builtins(scores),
        "next": steps,
    }
    if output.write_json(facts):
        return
    output.print(("1. generate", "bold"), f"  {_describe_generated(generated)}")
    total = sum(imported.values(), Counter[str]())
    text = f"  {total['rows']} raw rows in {len(imported)} formats -> {total['traces']} traces, {total['drops']} drops"
    output.print(("2. import", "bold"), text)
    text = f"  {labeled.steps} steps of {labeled.traces} traces, {labeled.nonsteps} messages that are not steps"
    output.print(("3. label", "bold"), text)
    show_actions(output, labeled.actions)
    output.print()
    _show_built(output, manifest)
    if worth is not None:
        note = "with guesses that take no time; real models write slower than this one"
        output.print()
        output.print(("5. ceiling", "bold"), f"  {summarize_ceiling(worth)}")
        output.print(f"of the {worth.traces} generated traces, {note}")
    output.print()
    _show_scores(output, scores)
    output.print()
    _show_next(output, steps, dataset / "report.html")


def _show_next(output: Output, steps: dict[str, str], page: Path) -> None:
    output.print(("next", "bold"))
    for purpose, command in steps.items():
        output.print((f"  # {purpose}", "dim"))
        output.print(f"  {command}")
    output.print()
    output.print(("see it in a browser", "bold"), f"  {page}")


def _clear(out: Path) -> None:
    """Take away what an earlier run made, and nothing else."""
    if out.is_file():
        raise StoreError(f"{out}: is a file; name a folder")
    paths = [path for path in (out / name for name in _OWN) if path.exists()]
    if paths and not (out / _MARKER).is_file():
        raise StoreError(f"{paths[0]}: is there and was not made by the demo; choose another ", Setting("out"))
    try:
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        out.mkdir(parents=True, exist_ok=True)
        (out / _MARKER).write_text("The contents of this folder are made anew by every `foretrace demo`.\n")
    except OSError as error:
        raise StoreError(f"{out}: cannot write: {error.strerror or error}") from error


def _generate(output: Output, traces: Path) -> GenerateReport | str:
    """Attempts of the demo model; or why there are none, where no sandbox serves."""
    from foretrace.api.generation import generate
    from foretrace.cli.display.generate import describe_progress
    from foretrace.models.demo_model import KNOWN_PROBLEMS

    with output.progress("1. generate: starting the demo model and the sandbox") as progress:
        try:
            return generate(
                "builtin",
                limit=KNOWN_PROBLEMS,
                model="demo",
                protocol="interleaved_tools",
                out=traces,
                samples=2,
                temperature=1.0,  # at which the demo model makes mistakes, and mends most of them
                max_tokens=1024,
                concurrency=4,
                progress=lambda status: progress(f"1. generate: {describe_progress(status)}"),
            )
        except SandboxError as error:
            return error.render(write_flag)


def _import_samples(output: Output, traces: Path) -> dict[str, Counter[str]]:
    from foretrace.api.traces import import_source
    from foretrace.samples import sample_files

    counts: dict[str, Counter[str]] = {}
    for name, path in sample_files().items():
        report = output.work("2. import: the samples", import_source, name.partition(":")[0], path, out=traces)
        counts[name] = Counter(rows=report.rows, traces=report.traces, drops=report.drops.total())
    return counts


def _score_predictors(output: Output, dataset: Path, predictions: Path) -> dict[str, ScoreReport]:
    from foretrace.api.evaluation import predict
    from foretrace.evaluation.score import score

    predictions.mkdir()
    scores: dict[str, ScoreReport] = {}
    for predictor in _PREDICTORS:
        out = predictions / f"{predictor.replace(':', '-')}.jsonl"
        output.work("6. score: predicting", predict, dataset, out=out, predictor=predictor, times=False)
        scores[predictor] = score(out, dataset)
    return scores


def _describe_generated(report: GenerateReport | str) -> str:
    if isinstance(report, str):
        return f"skipped: {report}"
    counts, isolation = report.counts, report.isolation or {}
    erred, recovered = (round(report.metrics.get(each, 0) * counts.judged) for each in ("had_errors", "recovered"))
    failed = "".join(f"; {counts.errors[kind]} {kind}: {example}" for kind, example in counts.examples.items())
    return (
        f"{counts.done} attempts at {report.problems} problems, protocol {report.protocol}, by {report.model}: "
        f"{report.success or 0.0:.0%} succeeded, {erred} made errors, {recovered} of these recovered; the code was run "
        f"in the sandbox {isolation.get('sandbox')}, isolation level {isolation.get('level')}{failed}"
    )


def _show_built(output: Output, manifest: dict[str, Any]) -> None:
    from foretrace.dataset.demonstration import describe_demonstration

    configs: dict[str, dict[str, Any]] = manifest["configs"]
    splits = list(dict.fromkeys(split for by_split in configs.values() for split in by_split))
    rows = [(name, *((by_split.get(s) or {}).get("rows", 0) for s in splits)) for name, by_split in configs.items()]
    total = sum(count for _, *by_split in rows for count in by_split)
    text = f"  {manifest['counts']['traces']} traces -> {total} rows in {len(configs)} configs"
    output.print(("4. build", "bold"), text)
    output.print_table(("rows", *splits), rows)
    verdicts = Counter(str(gate["verdict"]) for gate in manifest["gates"])
    undecided = " (a demo has too few rows for the statistical ones)" if verdicts["undecided"] else ""
    output.print(f"gates: {', '.join(f'{count} {name}' for name, count in sorted(verdicts.items()))}{undecided}")
    if demonstration := describe_demonstration(manifest):
        output.print((demonstration, "yellow"))


def _show_scores(output: Output, scores: dict[str, ScoreReport]) -> None:
    from foretrace.cli.display.score import show_lines, warn_few_groups

    any_score = next(iter(scores.values()))
    text = f"  predictors that cost nothing, on {any_score.rows} eval steps of {any_score.tasks} tasks that they have "
    output.print(("6. score", "bold"), f"{text}never seen")
    show_lines(output, [(name, report.scores) for name, report in scores.items()], any_score.groups)
    warn_few_groups(output, any_score.groups)


def next_steps(traces: Path, dataset: Path, *, sandbox: bool) -> dict[str, str]:
    """Commands that work in this shell as they stand, by what they are for; without a sandbox none that runs code."""
    from foretrace.core.store import read_traces

    called, python = Path(sys.argv[0]), shlex.quote(sys.executable)
    command = "foretrace" if called.name != "foretrace" or shutil.which("foretrace") else shlex.quote(str(called))
    if called.name == "__main__.py":
        command = f"{python} -m foretrace"
    folder, data = shlex.quote(str(traces)), shlex.quote(str(dataset))
    load = f'import datasets; print(datasets.load_dataset("{dataset}", "proposer")["train"][0]["completion"])'
    guesses = shlex.quote(str(dataset.with_name("predictions") / "memory.jsonl"))
    types = shlex.quote(f"{dataset}-types")
    mended = max(read_traces(traces), key=lambda trace: trace.outcome.metrics.get("recovered", 0.0))
    steps = {
        "one trace, step by step": f"{command} show {folder} {shlex.quote(mended.key)}",
        "all traces in a browser": f"{command} view {folder} --out {shlex.quote(str(traces.with_name('view')))}",
        "load what was built": f"{python} -c {shlex.quote(load)}",
        "build with other settings": f"{command} build {folder} --allow-demo --target type --overwrite --out {types}",
        "a predictor of whole calls": f"{command} predict {data} --predictor memory --out {guesses}",
    }
    if sandbox:
        again = "generate --problems builtin --limit 10 --protocol tools --model demo"
        steps["generate in another protocol"] = f"{command} {again} --out {folder}"
    return steps | {"generate with a model of your own": f"{command} generate --help"}
