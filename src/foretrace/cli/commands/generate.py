"""Attempt problems with a model, and examine what that needs: `generate`, `problems`, `doctor`."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.cli.display import show_plugins
from foretrace.cli.options import write_flag
from foretrace.cli.output import Output, ProgressDisplay
from foretrace.core.errors import ForetraceError, ProblemError, Setting, UsageError

if TYPE_CHECKING:
    from foretrace.core.problem import Problem
    from foretrace.core.trace import Isolation
    from foretrace.episodes.validate import ProblemResult
    from foretrace.models.base import Server
    from foretrace.problems.harbor_job import TaskRewards
    from foretrace.sandbox.base import Sandbox, SandboxSettings


def generate(
    output: Output,
    *,
    problems: str,
    protocol: str,
    model: str,
    out: Path,
    path: Path | None = None,
    server: Server | None,
    **settings: Any,
) -> None:
    """Attempt problems with a model: its code is really run, and every attempt ends as a trace.

    The same command again continues where an interrupted one stopped; attempts that ended in an error are made again.
    More options (seed, turns, budgets, sandbox, its packages and limits, server), for the command line or --config, are
    in docs/cli.md.

    Args:
        problems: A set that `problems list` shows, jsonl:FILE, or module:Class.
    """
    from foretrace.api.generation import generate
    from foretrace.cli.display.generate import StatusDisplay, show_generated
    from foretrace.registry import load_usable_problems, split_problem_spec

    problems, path = split_problem_spec(problems, path)
    output.interrupt_message = f"interrupted; what was finished is kept in {out}, the same command goes on from there"
    if output.own_process:
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    left_out = 0

    def note_left_out(line: str, count: int) -> None:
        nonlocal left_out
        left_out = count
        output.note(line)

    def load() -> list[Problem]:
        return load_usable_problems(problems, path, settings["limit"], note_left_out)

    with output.progress(f"reading {problems}") as progress:
        display = StatusDisplay(output, progress)
        settings |= {"path": path, "protocol": protocol, "model": model, "server": server, "out": out}
        try:
            report = generate(load, progress=display, on_failure=display.on_failure, **settings)
        except ForetraceError:
            if display.failure_report is not None:
                progress.stop()
                output.note(f"what was finished is kept in {out}; the same command goes on from there")
                show_generated(output, display.failure_report, out, left_out)
            raise
    show_generated(output, report, out, left_out)
    counts = report.counts
    if counts.done and not counts.judged:
        kind, message = next(iter(counts.examples.items()))
        raise ForetraceError(f"all {counts.done:,} attempts ended in an error, e.g. {kind}: {message}")


def list_problems(output: Output) -> None:
    """List the problem sets that `check` can read."""
    from foretrace.registry import describe_plugins

    found = describe_plugins("problems")
    if not output.write_json({"sets": found}):
        show_plugins(output, found, "jsonl:FILE, or module:Class (docs/problems.md)")


def check_problems(
    output: Output,
    name: str,
    *,
    path: Path | None = None,
    limit: int | None = None,
    sandbox: str = "local",
    sandbox_settings: SandboxSettings,
    environment: str | None = None,
) -> None:
    """Check a problem set without a model.

    Every reference solution must pass, and an answer that does nothing must fail.

    Args:
        name: A set that `problems list` shows, jsonl:FILE, or module:Class.
        path: Read this file or folder, not the Hub.
        limit: Only the first N problems.
        sandbox: Sandboxes in order of preference, e.g. docker,local.
        environment: Where Harbor runs tasks that need their own image: docker, modal, daytona, e2b, runloop, ...
    """
    import asyncio

    import msgspec

    from foretrace.cli.display.generate import show_check, verdict
    from foretrace.engines.processes import usable_cores
    from foretrace.episodes.validate import Fault, make_report
    from foretrace.problems.base import collect_problems
    from foretrace.problems.harbor_job import judge_tasks
    from foretrace.registry import describe_no_problem, make_problem_set, make_sandbox, split_problem_spec

    name, path = split_problem_spec(name, path)
    if environment is not None and name != "harbor":
        raise UsageError(Setting("environment", environment), " is for Harbor tasks: check harbor:FOLDER")
    doing = f"checking {name}"
    with output.progress(doing) as progress:
        problems, drops = collect_problems(make_problem_set(name).load(path), limit)
        if not problems and all(drop.task is None for drop in drops):
            raise ProblemError(describe_no_problem(drops, path or name))
        tasks = [drop.task for drop in drops if drop.task is not None and environment is not None]
        drops = [drop for drop in drops if drop.task not in tasks]
        if environment is not None and not tasks:
            output.note(f"no task needs an image of its own: none is run in {environment}")
        started, workers = time.monotonic(), sandbox_settings.workers or usable_cores()
        judge = make_sandbox(sandbox, sandbox_settings)
        results, isolation = asyncio.run(_judge_in_sandbox(problems, judge, workers, progress, doing))
        rewards = judge_tasks(tasks, environment or "", workers) if tasks else []
        report = make_report([*results, *map(_make_task_result, rewards)], time.monotonic() - started)
    rows = [(drop, drop.at.removeprefix(f"{path} ")) for drop in drops]
    bad = [Fault(problem=f"{at} ({d.id})" if d.id else at, kind="bad_row", detail=d.reason) for d, at in rows]
    checked = msgspec.structs.replace(report, faults=(*bad, *report.faults))
    facts = {"set": name, "path": None if path is None else str(path), **msgspec.to_builtins(checked)}
    facts |= {"sound": checked.sound, "isolation": msgspec.to_builtins(isolation)}
    if not output.write_json(facts):
        show_check(output, checked, isolation)
    if unjudged := sum(drop.task is not None for drop in drops):
        output.note(f"--environment docker (or modal, daytona, ...) has Harbor judge the {unjudged:,} in their images")
    if not checked.sound:
        raise ProblemError(f"{name}: {verdict(checked)}")


async def _judge_in_sandbox(
    problems: Sequence[Problem], sandbox: Sandbox, workers: int, progress: ProgressDisplay, doing: str
) -> tuple[list[ProblemResult], Isolation]:
    from foretrace.episodes.validate import judge_problems

    async with sandbox:
        isolation = await sandbox.start()
        return await judge_problems(
            problems, sandbox, workers=workers, progress=lambda done: progress(doing, done, len(problems))
        ), isolation


def _make_task_result(rewards: TaskRewards) -> ProblemResult:
    from foretrace.core.problem import Problem
    from foretrace.episodes.validate import Fault, ProblemResult

    name, solution = rewards.task.name, rewards.task / "solution"
    reference = str(solution) if solution.is_dir() else None
    problem = Problem(id=name, statement="", reference=reference)
    passed, empty = (rewards.solution or 0) >= 1, (rewards.nothing or 0) >= 1
    result = ProblemResult(problem, [], hidden=1, reference_passed=passed and reference is not None, empty_passed=empty)
    if rewards.nothing is None or (reference and rewards.solution is None):
        result.faults.append(Fault(problem=name, kind="lost", detail=rewards.error[:300] or "no reward was written"))
    elif reference and not passed:
        detail = f"the reward of its solution is {rewards.solution:g}"
        result.faults.append(Fault(problem=name, kind="reference_failed", detail=detail))
    if empty:
        result.faults.append(Fault(problem=name, kind="empty_passed", detail="doing nothing has the reward 1"))
    return result


def doctor(
    output: Output,
    *,
    sandbox: str = "local",
    sandbox_settings: SandboxSettings,
    interpreter: Path | None = None,
    model: str | None = None,
    server: Server | None,
    max_tokens: int | None = None,
) -> None:
    """Say what can be used here, how well it isolates, and how fast it is; with --model, what a model server can do.

    Ends with exit code 1, and one line that says what to do, where no sandbox or no model serves.
    More options for the model server are in docs/cli.md.

    Args:
        sandbox: Sandboxes in order of preference, e.g. docker,local.
        interpreter: The Python that runs the code.
        model: Examine this model instead, and make one episode with it.
        max_tokens: Tokens of one completion at most.
    """
    import logging
    import warnings

    import msgspec

    from foretrace.engines.processes import usable_cores

    settings = msgspec.structs.replace(
        sandbox_settings,
        workers=sandbox_settings.workers or usable_cores(),
        interpreter=None if interpreter is None else str(interpreter),
    )
    given = [*(server.list_settings_except() if server else []), *(["max_tokens"] if max_tokens else [])]
    if model is None and given:
        raise UsageError(Setting(given[0]), " is for a model server: name one with ", Setting("model"))
    log = logging.getLogger("foretrace.sandbox")
    before = log.level
    log.setLevel(logging.ERROR)  # the report says all that the library's own warnings say
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if model is None:
                _examine_sandbox(output, sandbox, settings)
            else:
                _examine_model(output, model, server, sandbox, settings, max_tokens)
    finally:
        log.setLevel(before)


def _examine_sandbox(output: Output, names: str, settings: SandboxSettings) -> None:
    from foretrace.cli.display.generate import show_sandbox
    from foretrace.doctor import examine_sandbox

    with output.progress(f"testing the sandbox {names}"):
        facts, error = examine_sandbox(names, settings)
    why = None if error is None else error.render(write_flag)
    if not output.write_json({"ok": error is None, "error": why, "sandbox": facts}) and facts is not None:
        show_sandbox(output, facts)
    if error is not None:
        raise error


def _examine_model(
    output: Output, spec: str, server: Server | None, names: str, settings: SandboxSettings, max_tokens: int | None
) -> None:
    import asyncio

    from foretrace.cli.display.generate import show_model
    from foretrace.core.completion import Sampling
    from foretrace.doctor import ModelReport, examine_model
    from foretrace.registry import make_model, make_sandbox

    model = make_model(spec, server)
    sampling = Sampling() if max_tokens is None else Sampling(max_tokens=max_tokens)
    report = ModelReport(model=model.spec, endpoint=model.endpoint)
    failure: ForetraceError | None = None
    with output.progress(f"asking {model.spec} what it can do") as progress:
        try:
            asyncio.run(examine_model(report, model, make_sandbox(names, settings), sampling, progress))
        except UsageError:
            raise
        except ForetraceError as error:
            failure, report.error = error, error.render(write_flag)
    report.ok = failure is None
    if not output.write_json(report):
        show_model(output, report, sampling.max_tokens)
    if failure is not None:
        raise failure
