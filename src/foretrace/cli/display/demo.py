"""What `foretrace demo` shows: one report of all that it did, and what to type next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.display.dataset import show_actions
from foretrace.cli.output import Output, write_count

if TYPE_CHECKING:
    from foretrace.api.traces import LabelReport
    from foretrace.episodes.generate.engine import GenerateReport
    from foretrace.evaluation.ceiling_report import CeilingReport
    from foretrace.evaluation.score_report import ScoreReport


def show_demo(
    output: Output,
    generated: GenerateReport | str,
    imported: Mapping[str, Counter[str]],
    labelled: LabelReport,
    manifest: Mapping[str, Any],
) -> None:
    """The report; `generated` may be the reason why nothing was generated."""
    if isinstance(generated, str):
        output.print(("1. generate", "bold"), f"  skipped: {generated}")
    else:
        _show_generated(output, generated)
    total = sum(imported.values(), Counter[str]())
    output.print()
    output.print(
        ("2. import", "bold"),
        f"  {total['rows']} raw rows in {len(imported)} formats -> {total['traces']} traces, {total['drops']} drops",
    )
    output.print_table(
        ("input", "rows", "traces", "drops"), [(n, c["rows"], c["traces"], c["drops"]) for n, c in imported.items()]
    )
    output.print()
    output.print(
        ("3. label", "bold"),
        f"  {labelled.steps} steps of {labelled.traces} traces, {labelled.nonsteps} messages that are no step",
    )
    show_actions(output, labelled.actions)
    output.print()
    _show_built(output, manifest)


def show_worth(output: Output, ceiling: CeilingReport | None, scores: Mapping[str, ScoreReport]) -> None:
    """What predicting could save on the generated traces, if there are some, and how good free predictors are."""
    from foretrace.cli.display.ceiling import summarise_ceiling
    from foretrace.cli.display.score import FEW_GROUPS

    if ceiling is not None:
        output.print()
        output.print(("5. ceiling", "bold"), f"  {summarise_ceiling(ceiling)}")
        output.print(
            f"of the {ceiling.traces} generated traces, with guesses that take no time; real models write slower than "
            "this one"
        )
    output.print()
    any_score = next(iter(scores.values()))
    output.print(
        ("6. score", "bold"),
        f"  predictors that cost nothing, on {any_score.rows} eval steps of {any_score.tasks} tasks that they have "
        "never seen",
    )
    columns = ("type_accuracy", "tool", "exact_call")
    output.print_table(
        ("predictor", "action type", "tool", "exact call"),
        [(name, *(_find_share(report, metric) for metric in columns)) for name, report in scores.items()],
    )
    if any_score.groups < FEW_GROUPS:
        output.print(f"the intervals are too narrow: they are drawn from only {write_count(any_score.groups, 'group')}")


def _find_share(report: ScoreReport, metric: str) -> str:
    from foretrace.cli.display.score import write_estimate

    found = next((row for row in report.scores if (row.slice, row.metric) == ("natural", metric)), None)
    return "-" if found is None else write_estimate(found.value, found.low, found.high)


def show_places(output: Output, places: Mapping[str, Path], steps: Mapping[str, str]) -> None:
    """Where everything is, and what to type next: commands by what they are for."""
    output.print()
    output.print_fields([(name, str(path)) for name, path in places.items()])
    output.print()
    output.print(("next", "bold"))
    for purpose, command in steps.items():
        output.print((f"  # {purpose}", "dim"))
        output.print(f"  {command}")


def _show_generated(output: Output, report: GenerateReport) -> None:
    isolation = report.isolation or {}
    output.print(
        ("1. generate", "bold"),
        f"  {report.problems} problems, protocol {report.protocol}, by {report.model}; its code was run in the "
        f"sandbox {isolation.get('sandbox')}, isolation level {isolation.get('level')}",
    )
    erred = round(report.metrics.get("had_errors", 0) * report.counts.judged)
    recovered = round(report.metrics.get("recovered", 0) * report.counts.judged)
    output.print_table(
        ("episodes", "success", "with errors", "recovered", "mean reward", "tokens/s"),
        [
            (
                report.counts.done,
                None if report.success is None else f"{report.success:.1%}",
                erred,
                recovered,
                report.mean_reward,
                round(report.completion_tokens / report.seconds) if report.seconds else None,
            )
        ],
    )
    for kind, example in report.counts.examples.items():
        output.print(f"{report.counts.errors[kind]} ended in an error, {kind}: {example}")


def _show_built(output: Output, manifest: Mapping[str, Any]) -> None:
    from foretrace.dataset.demonstration import describe_demonstration

    configs: dict[str, dict[str, Any]] = manifest.get("configs", {})
    splits = list(dict.fromkeys(split for by_split in configs.values() for split in by_split))
    rows = [(name, *((by_split.get(s) or {}).get("rows", 0) for s in splits)) for name, by_split in configs.items()]
    counts, total = manifest["counts"], sum(count for _, *by_split in rows for count in by_split)
    output.print(("4. build", "bold"), f"  {counts['traces']} traces -> {total} rows in {len(configs)} configs")
    output.print_table(("rows", *splits), rows)
    verdicts = Counter(str(gate.get("verdict")) for gate in manifest.get("gates", []))
    undecided = " (a demo has too few rows for the statistical ones)" if verdicts["undecided"] else ""
    output.print(f"gates: {', '.join(f'{count} {name}' for name, count in sorted(verdicts.items()))}{undecided}")
    for warning in manifest.get("warnings", []):
        output.warn(f"warning: {warning}", "yellow")
    if demonstration := describe_demonstration(manifest):
        output.print((demonstration, "yellow"))


def next_steps(traces: Path, dataset: Path, *, sandbox: bool) -> dict[str, str]:
    """Commands that work in this shell as they stand, by what they are for; without a sandbox none that runs code."""
    command, folder = _own_command(), shlex.quote(str(traces))
    load = f'import datasets; print(datasets.load_dataset("{dataset}", "proposer")["train"][0]["completion"])'
    types, data = shlex.quote(f"{dataset}-types"), shlex.quote(str(dataset))
    guesses = shlex.quote(str(dataset.with_name("predictions") / "memory.jsonl"))
    activate = Path(sys.executable).with_name("activate")
    steps: dict[str, str] = {}
    if shutil.which("foretrace") is None and activate.is_file():
        steps["have `foretrace` and `python` in this shell"] = f"source {_short_path(activate)}"
    steps |= {
        "one trace, step by step": f"{command} show {folder} {shlex.quote(_find_recovered_trace(traces))}",
        "all traces in a browser": f"{command} view {folder} --out {shlex.quote(str(traces.with_name('view')))}",
        "load what was built": f"{_own_python()} -c {shlex.quote(load)}",
        "build with other settings": f"{command} build {folder} --allow-demo --target type --overwrite --out {types}",
        "a predictor of whole calls": f"{command} predict {data} --predictor memory --out {guesses}",
    }
    if sandbox:
        again = "generate --problems builtin --limit 10 --protocol tools --model demo"
        steps["generate in another protocol"] = f"{command} {again} --out {folder}"
    return steps | {"generate with a model of your own": f"{command} generate --help"}


def _find_recovered_trace(traces: Path) -> str:
    """Key of a generated trace in which something failed and was mended, else of any."""
    from foretrace.core.store import read_traces

    best, highest = "", -1.0
    for trace in read_traces(traces):
        recovered = trace.outcome.metrics.get("recovered", 0.0)
        if recovered > highest:
            best, highest = trace.key, recovered
        if highest >= 1:
            break
    return best


def _own_command() -> str:
    """How this command was called, so that it can be called so again."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{_own_python()} -m foretrace"
    on_path = shutil.which("foretrace")
    if called.name != "foretrace" or (on_path is not None and called.exists() and Path(on_path).samefile(called)):
        return "foretrace"
    return _short_path(called)


def _own_python() -> str:
    on_path = shutil.which("python")
    same = on_path is not None and Path(on_path) == Path(sys.executable)
    return "python" if same else _short_path(Path(sys.executable))


def _short_path(path: Path) -> str:
    """A path for a shell, short where it lies below the current folder."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
