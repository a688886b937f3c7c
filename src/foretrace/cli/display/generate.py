"""Print the results of `generate`, `problems check` and `doctor`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.output import Cell, Output, ProgressDisplay, format_seconds, name_folder
from foretrace.core.completion import CAPABILITY_NAMES
from foretrace.core.errors import count_things

if TYPE_CHECKING:
    from foretrace.core.trace import Isolation
    from foretrace.doctor import ModelReport
    from foretrace.episodes.generate.engine import GenerateReport
    from foretrace.episodes.generate.progress import RunProgress
    from foretrace.episodes.validate import Fault, ValidationReport

_MAX_ERROR_KINDS = 2


class StatusDisplay:
    """Shows the progress of a run, and once what the server can do."""

    def __init__(self, output: Output, progress: ProgressDisplay) -> None:
        self._output, self._progress = output, progress
        self._started = False
        self.failure_report: GenerateReport | None = None

    def on_failure(self, report: GenerateReport) -> None:
        self.failure_report = report

    def __call__(self, status: RunProgress) -> None:
        self._progress(describe_progress(status))
        if self._started or status.doing != "running":
            return
        self._started = True
        for line in _describe_capabilities(status.capabilities or {}):
            self._output.note(line)
        if status.isolation is not None:
            self._output.note(f"sandbox: {status.isolation.sandbox}, isolation level {status.isolation.level}")


def describe_progress(status: RunProgress) -> str:
    """The progress of a run in one line, the most important first, since a terminal cuts off the end."""
    if status.doing != "running":
        return status.doing
    attempts_s, tokens_s = status.compute_rates()
    parts = [f"{status.done:,} of {status.done + status.remaining:,} done"]
    if attempts_s > 0:
        parts[0] += f", {format_seconds(status.remaining / attempts_s)} left"
    if status.server_failure:
        parts.append(f"the server fails ({status.server_failure}), trying again")
    if status.errors:
        kinds = [f"{kind} {count:,}" for kind, count in Counter(status.errors).most_common(_MAX_ERROR_KINDS)]
        more = ["..."] if len(status.errors) > _MAX_ERROR_KINDS else []
        parts.append(f"errors: {', '.join([*kinds, *more])}")
    if status.judged:
        passed, ideal = status.successes / status.judged, status.ideal_attempts / status.judged
        parts.append(f"{passed:.0%} passed, {ideal:.0%} ideal")
    parts += [
        f"{tokens_s:,.0f} tokens/s",
        f"{status.in_flight} in progress (at most {status.slots} requests at a time)",
    ]
    return "; ".join(parts)


def _describe_capabilities(capabilities: dict[str, Any]) -> list[str]:
    does = [name for name in CAPABILITY_NAMES if capabilities.get(name)]
    context, reasons = capabilities.get("context_length"), capabilities.get("reasons", {})
    first = f"the model server does: {', '.join(does) or 'none of the extras'}"
    first += f"; context of {context:,} tokens" if context else ""
    return [first, *(f"not {name}: {reasons[name]}" for name in CAPABILITY_NAMES if name in reasons)]


def show_generated(output: Output, report: GenerateReport, out: Path | None = None, dropped: int = 0) -> None:
    counts = report.counts
    for path in report.damaged:
        output.warn(f"{path}: a damaged journal of an earlier run; what could be read of it is sealed, and it is kept")
    if report.stopped and not report.error:
        output.note(f"stopped before the end: {report.stopped}; the same command goes on")
    for kind, example in counts.examples.items():
        output.note(f"{counts.errors[kind]:,} ended in an error, {kind}: {example}")
    if counts.errors:
        output.note("they count neither as success nor as failure; the same command makes them again")
    if counts.cut_replies:
        context = (counts.capabilities or {}).get("context_length")
        tight = context is not None and context < 2 * report.max_tokens
        output.note(
            f"{counts.cut_replies:,} of {counts.replies:,} replies were cut at --max-tokens {report.max_tokens}: raise "
            "it" + (f", and the model's context of {context:,} tokens, in which all turns must fit" if tight else "")
        )
    if output.json:
        output.write_json({"out": str(out), "problems_left_out": dropped, **report.make_facts()})
        return
    output.print_fields(_list_report(report, out, dropped))
    if report.metrics:
        output.print()
        output.print_table(("metric", "mean"), [(name, float(value)) for name, value in report.metrics.items()])
    if report.speculation is not None:
        from foretrace.cli.display.speculation import show_live

        output.print()
        show_live(output, report.speculation)


def _list_report(report: GenerateReport, out: Path | None, dropped: int) -> list[tuple[str, Cell]]:
    counts, isolation = report.counts, report.isolation

    def share(value: float | None) -> str | None:
        return None if value is None else f"{value:.1%} of {counts.judged:,}"

    attempts = (
        f"{counts.asked:,} = {counts.already_done:,} already there + {counts.filtered:,} filtered out "
        f"+ {counts.done:,} done now + {counts.remaining:,} not started"
    )
    rows: list[tuple[str, Cell]] = [
        ("model", report.model),
        ("protocol", report.protocol),
        ("problems", f"{report.problems:,}, and {dropped:,} left out" if dropped else report.problems),
        ("attempts", attempts),
    ]
    if counts.done:
        estimated = " (estimated where the server does not count)" if report.tokens_estimated else ""
        parts = f"{counts.model_s:,.1f} of models, {counts.tool_s:,.1f} of tools"
        recovered = "no attempt erred" if report.recovery is None else f"{report.recovery:.1%} of those that erred"
        rows += [
            ("success", share(report.success)),
            ("ideal", share(report.ideal)),
            ("mean reward", report.mean_reward),
            ("recovered", recovered),
            ("stored", counts.stored),
            *((f"  left out, {reason}", count) for reason, count in counts.left_out.items()),
            *((f"  error, {kind}", count) for kind, count in counts.errors.items()),
            ("tokens", f"{report.prompt_tokens:,} in, {report.completion_tokens:,} out{estimated}"),
            ("seconds", f"{report.seconds:,.1f} ({parts}, summed over attempts, which overlap)"),
            ("judged by", _list_forms(counts.forms)),
            *([("cost", report.cost)] if report.cost else []),
        ]
    if isolation:
        rows.append(("isolation", f"level {isolation['level']} ({isolation.get('sandbox', '')})"))
        rows += [(f"not {name}", why) for name, why in isolation.get("refused", {}).items()]
    return [*rows, *name_folder(out)] if out is not None else rows


def _list_forms(forms: Mapping[Any, int]) -> str | None:
    return ", ".join(f"{form} {count:,}" for form, count in forms.items()) or None


_MAX_ALIKE = 3
"""Most problems with the same fault that the table of a check lists; --json has all."""
_MAX_NAMED = 5
"""Most problems named in the last line of a failed check."""
_FAULT_TEXTS = {
    "bad_row": "left out",
    "reference_failed": "the reference fails for",
    "empty_passed": "an answer that does nothing passes for",
    "unusable": "the tests cannot be judged for",
    "lost": "the sandbox lost the run for",
}


def show_check(output: Output, checked: ValidationReport, isolation: Isolation) -> None:
    with_reference = checked.problems - checked.without_reference
    output.print_fields(
        [
            ("problems", checked.problems),
            ("references passed", f"{checked.references_passed:,} of {with_reference:,}"),
            ("empty answers passed", checked.empty_passed),
            ("without a reference", checked.without_reference),
            ("public tests", f"{checked.public:,}, at {count_things(checked.with_public, 'problem')}"),
            ("hidden tests", checked.hidden),
            ("forms of judging", _list_forms(checked.forms)),
            ("isolation", f"level {isolation.level} ({isolation.sandbox})"),
            *((f"not {name}", why) for name, why in isolation.refused.items()),
            ("seconds", f"{checked.seconds:.1f}"),
        ]
    )
    if checked.faults:
        output.print()
        output.print_table(("problem", "fault", "tests", "detail"), list(_make_fault_rows(checked.faults)))
    found = (re.search(r"No module named '(\w+)", fault.detail) for fault in checked.faults)
    if missing := list(dict.fromkeys(match[1] for match in found if match)):
        output.note(
            f"installed packages are imported with --preload {'+'.join(missing)}; tests may import the answer's own "
            f"names from solution"
        )
    if any(fault.detail.startswith(("Timeout: ", "MemoryError: ")) for fault in checked.faults):
        output.note(
            "all tests of a problem share the limits of one run: --wall-s, --cpu-s and --memory-mb raise them "
            "(give them to generate too)"
        )


def _make_fault_rows(faults: Sequence[Fault]) -> Iterator[tuple[Cell, ...]]:
    """A line for each fault, but for those that are alike except for the problem only a few, and how many more."""
    alike = Counter((fault.kind, fault.tests, fault.detail) for fault in faults)
    seen: Counter[tuple[str, str | None, str]] = Counter()
    for fault in faults:
        rest = (fault.kind, fault.tests, fault.detail)
        seen[rest] += 1
        if seen[rest] <= _MAX_ALIKE:
            yield fault.problem, *rest
        elif seen[rest] == _MAX_ALIKE + 1:
            yield f"and {alike[rest] - _MAX_ALIKE:,} more", *rest


def verdict(checked: ValidationReport) -> str:
    parts: list[str] = []
    for fault, text in _FAULT_TEXTS.items():
        names = list(dict.fromkeys(f.problem for f in checked.faults if f.kind == fault))
        if names:
            more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
            parts.append(f"{text} {len(names):,}: {', '.join(names[:_MAX_NAMED])}{more}")
    return "; ".join(parts)


_LEVELS = {
    4: "elsewhere: a container or another machine",
    3: "jail, namespaces, Landlock, system call filter, limits",
    2: "Landlock, system call filter, limits",
    1: "system call filter, limits: weak",
    0: "limits only: weak",
}
_LOGPROBS = {
    "token": "ids and logprobs of the sampled tokens (token-exact)",
    "text": "logprobs of pieces of text, without ids (text-exact)",
    "none": "none",
}


def show_sandbox(output: Output, facts: dict[str, Any]) -> None:
    limits = facts["limits"]
    memory = f"{limits['memory_mb']:,} MiB" if limits["memory_mb"] else "an unknown amount"
    rows: list[tuple[str, Cell]] = [
        ("sandbox", facts["name"]),
        ("isolation", f"level {facts['level']} ({_LEVELS.get(facts['level'], 'unknown')})"),
        *((f"not {name}", why) for name, why in facts["refused"].items()),
        ("missing", ", ".join(facts["missing"]) or "nothing"),
        ("python", f"{facts['python'] or 'unknown'} on {facts['machine'] or 'unknown'}"),
        ("preloaded", facts["preload"]),
        ("workers", facts["workers"]),
        (
            "limits of a run",
            f"{limits['wall_s']:g} s, {limits['cpu_s']:g} s of CPU, {memory} of memory, "
            f"{limits['processes']} threads, {limits['output_mb']} MiB of output ({limits['stdout_kb']} KiB kept of "
            f"stdout and of stderr each), files of {limits['file_mb']} MiB in {limits['scratch_mb']} MiB of scratch",
        ),
        ("speed", f"{facts['runs_per_s']:,.0f} runs/s; one alone takes {facts['ms_per_run']:.1f} ms"),
    ]
    output.print_fields(rows)
    output.print()
    guards: list[dict[str, Any]] = facts["guards"]
    output.print_table(
        ("guard", "level", "on", "observed"), [(g["name"], g["level"], g["on"], g["reason"]) for g in guards]
    )
    remedies: dict[str, list[str]] = {}
    for guard in guards:
        if not guard["on"] and guard["remedy"]:
            remedies.setdefault(guard["remedy"], []).append(guard["name"])
    for remedy, names in remedies.items():
        output.print()
        output.print((f"{', '.join(names)}: ", "bold"), remedy)


def show_model(output: Output, report: ModelReport, max_tokens: int) -> None:
    notes: list[tuple[str, Cell]] = list(report.notes.items())
    output.print_fields([("model", report.model), ("endpoint", report.endpoint or "in this process"), *notes])
    if report.capabilities is not None:
        output.print()
        rows: list[tuple[Cell, ...]] = []
        for name, found in report.capabilities.items():
            tokens = found.get("tokens")
            words = "thinking apart" if name == "reasoning_apart" else name.replace("_", " ")
            rows.append((words, found["yes"] if tokens is None else f"{tokens:,} tokens", found["reason"]))
        output.print_table(("the server can do", "", "why not"), rows)
    if report.protocols is not None:
        output.print()
        output.print_table(
            ("protocol", "offered", "why not"), [(n, p["offered"], p["reason"]) for n, p in report.protocols.items()]
        )
    if report.episode is not None and report.sandbox is not None:
        output.print()
        output.print_fields(_episode_fields(report.episode, report.sandbox, max_tokens))


def _episode_fields(episode: dict[str, Any], sandbox: dict[str, Any], max_tokens: int) -> list[tuple[str, Cell]]:
    tests, speed = episode["tests"], episode["tokens_per_s"]
    read, written = episode["prompt_tokens"], episode["completion_tokens"]
    counted = [f"{count:,} {way}" for count, way in ((read, "in"), (written, "out")) if count is not None]
    cut = episode["cut_off"]
    replies = "reply" if cut == 1 else "replies"
    at_the_limit = f"{cut:,} {replies} at {max_tokens:,} tokens: give more with --max-tokens"
    return [
        ("problem", episode["problem"]),
        ("protocol", episode["protocol"]),
        ("sandbox", f"{sandbox['name']}, isolation level {sandbox['level']}"),
        *((f"not {name}", why) for name, why in sandbox["refused"].items()),
        ("ended", episode["status"]),
        ("turns", episode["turns"]),
        ("tests", None if tests is None else f"{tests['passed']:,} of {tests['total']:,} passed"),
        ("reward", episode["reward"]),
        ("tokens", ", ".join(counted) or "not counted by the server"),
        ("tokens/s", None if speed is None else f"{speed:,.1f}"),
        ("seconds", f"{episode['model_s']:.2f} of the model, {episode['sandbox_s']:.2f} of the sandbox"),
        ("logprobs", _LOGPROBS[episode["logprobs"]]),
        *([("cut off", at_the_limit)] if cut else []),
    ]
