"""`foretrace doctor`: what serves here: how well code is isolated and how fast it runs, or what a model can do."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrace.cli.output import Cell, Output
from foretrace.cli.server_options import BaseUrl, ContextLength, KeyEnv, ModelOption, Retries, Timeout, more, server_of
from foretrace.core.errors import UsageError

if TYPE_CHECKING:
    from foretrace.core.trace import Isolation
    from foretrace.models.base import ChatModel
    from foretrace.sandbox.base import Guard, Sandbox, Settings

_TRIVIAL = "def double(x):\n    return 2 * x\nassert double(2) == 4\n"
_ALONE_S, _BURST_S = 0.4, 0.8
_ASK = """
import json, platform, resource
print(json.dumps([platform.python_version(), platform.machine(), resource.getrlimit(resource.RLIMIT_AS)[0] >> 20]))
"""
_LEVELS = {
    4: "elsewhere: a container or another machine",
    3: "jail, namespaces, Landlock, system call filter, limits",
    2: "Landlock, system call filter, limits",
    1: "system call filter, limits: weak",
    0: "limits only: weak",
}
_Sandbox = Annotated[str, typer.Option("--sandbox", metavar="NAMES", help="In order of preference, e.g. docker,local.")]
_Preload = Annotated[
    str, typer.Option("--preload", metavar="SET", help="Import beforehand: none, numpy, science, or a+b.")
]
_MinLevel = Annotated[int, typer.Option("--min-level", metavar="N", min=0, max=4, help="Isolation that must be had.")]
_Weak = Annotated[bool, typer.Option("--allow-weak-isolation", help="Accept levels 0 and 1.")]
_Interpreter = Annotated[
    Path | None, typer.Option("--interpreter", metavar="FILE", help="The Python that runs the code.")
]
_Workers = Annotated[int, typer.Option("--workers", metavar="N", min=0, help="Runs at one time; 0 is one a core.")]
_Model = Annotated[
    str | None,
    typer.Option("--model", metavar="KIND:NAME", help="Examine this model instead, and make one episode with it."),
]
_MaxTokens = Annotated[int | None, more("--max-tokens", "Tokens of one completion at most.", min=1)]


def doctor(
    say: Output,
    *,
    sandbox: _Sandbox = "local",
    preload: _Preload = "none",
    min_level: _MinLevel = 2,
    allow_weak_isolation: _Weak = False,
    interpreter: _Interpreter = None,
    workers: _Workers = 0,
    model: _Model = None,
    base_url: BaseUrl = None,
    max_tokens: _MaxTokens = None,
    api_key_env: KeyEnv = None,
    context_length: ContextLength = None,
    timeout: Timeout = None,
    retries: Retries = None,
    model_option: ModelOption = None,
) -> None:
    """Say what can be used here, how well it isolates, and how fast it is; with --model, what a model server can do.

    Ends with exit code 1, and one line that says what to do, where no sandbox or no model serves.
    More options for the model server are in docs/cli.md.
    """
    from foretrace.core.errors import SandboxError
    from foretrace.engines.processes import usable_cores
    from foretrace.sandbox.base import Settings

    settings = Settings(
        workers=workers or usable_cores(),
        min_level=min_level,
        allow_weak_isolation=allow_weak_isolation,
        preload=preload,
        interpreter=None if interpreter is None else str(interpreter),
    )
    server: dict[str, Any] = {
        "base_url": base_url,
        "api_key_env": api_key_env,
        "context_length": context_length,
        "timeout": timeout,
        "retries": retries,
        "model_option": model_option,
    }
    asked = _model_of(model, server, max_tokens)
    if asked is not None:
        from foretrace.cli.doctor_model import report_on
        from foretrace.sandbox.registry import make_sandbox

        with _told_here():
            report_on(say, asked, make_sandbox(sandbox, settings), max_tokens)
        return
    with say.progress(f"testing the sandbox {sandbox}"), _told_here():
        facts, error = _of_sandbox(sandbox, settings)
    if not say.emit({"ok": error is None, "error": error, "sandbox": facts}) and facts is not None:
        _show(say, facts)
    if error is not None:
        raise SandboxError(error)


def _model_of(spec: str | None, server: dict[str, Any], max_tokens: int | None) -> ChatModel | None:
    """The model that is to be examined, not asked yet; null where none is named.

    Raises:
        UsageError: no such kind of model, or a setting that does not fit.
    """
    from foretrace.models.registry import resolve_model

    if spec is None:
        given = [name for name, value in server.items() if value is not None]
        idle = [*given, *([] if max_tokens is None else ["max_tokens"])]
        if idle:
            raise UsageError(f"--{idle[0].replace('_', '-')} is for a model server: name one with --model")
        return None
    return resolve_model(spec, server_of(**server))


def _of_sandbox(names: str, settings: Settings) -> tuple[dict[str, Any] | None, str | None]:
    """What was found, and why no sandbox serves; where none does, what is found at a level below the one asked for."""
    import asyncio

    import msgspec

    from foretrace.core.errors import SandboxError
    from foretrace.sandbox.registry import make_sandbox

    try:
        return asyncio.run(_look(make_sandbox(names, settings), settings)), None
    except SandboxError as error:
        why = str(error)
    weaker = msgspec.structs.replace(settings, min_level=0, allow_weak_isolation=True)
    try:
        return asyncio.run(_look(make_sandbox(names, weaker), settings)), why
    except SandboxError:
        return None, why


async def _look(sandbox: Sandbox, settings: Settings) -> dict[str, Any]:
    import json
    import time

    begun = time.monotonic()
    async with sandbox:
        isolation = await sandbox.start()
        started = time.monotonic() - begun
        asked = await sandbox.run(_ASK)
        try:
            python, machine, memory_mb = json.loads(asked.stdout)
        except ValueError:
            python, machine, memory_mb = None, None, None
        return {
            "name": isolation.sandbox or sandbox.name,
            **_isolation(isolation, await sandbox.guards(), settings),
            "python": python,
            "machine": machine,
            **_settings(settings, memory_mb),
            "start_s": round(started, 3),
            **await _measure(sandbox, settings.workers),
        }


def _isolation(isolation: Isolation, guards: list[Guard], settings: Settings) -> dict[str, Any]:
    import msgspec

    return {
        "level": isolation.level,
        "min_level": settings.min_level,
        "missing": list(isolation.missing),
        "refused": isolation.refused,
        "guards": msgspec.to_builtins(guards),
    }


def _settings(settings: Settings, memory_mb: int | None) -> dict[str, Any]:
    import msgspec

    # As found from within: a preload set may ask for more memory, and a system may not limit it.
    limits = msgspec.to_builtins(settings.limits) | {"memory_mb": memory_mb}
    return {
        "interpreter": settings.interpreter,
        "preload": settings.preload,
        "workers": settings.workers,
        "limits": limits,
    }


async def _measure(sandbox: Sandbox, workers: int) -> dict[str, Any]:
    """Wall-clock milliseconds of one run alone (median), and runs a second with all workers at it."""
    import asyncio
    import statistics
    import time

    alone: list[float] = []
    end = time.monotonic() + _ALONE_S
    while not alone or time.monotonic() < end:
        before = time.monotonic()
        await sandbox.run(_TRIVIAL)
        alone.append(time.monotonic() - before)

    async def again(until: float) -> int:
        count = 0
        while not count or time.monotonic() < until:
            await sandbox.run(_TRIVIAL)
            count += 1
        return count

    before = time.monotonic()
    counts = await asyncio.gather(*(again(before + _BURST_S) for _ in range(workers)))
    taken = time.monotonic() - before
    return {"runs_per_s": round(sum(counts) / taken, 1), "ms_per_run": round(statistics.median(alone) * 1000, 2)}


def _show(say: Output, facts: dict[str, Any]) -> None:
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
            f"{limits['processes']} processes, output {limits['output_mb']} MiB, "
            f"files of {limits['file_mb']} MiB in {limits['scratch_mb']} MiB of scratch",
        ),
        ("speed", f"{facts['runs_per_s']:,.0f} runs/s; one alone takes {facts['ms_per_run']:.1f} ms"),
    ]
    say.facts(rows)
    say.line()
    guards: list[dict[str, Any]] = facts["guards"]
    say.table(("guard", "level", "on", "observed"), [(g["name"], g["level"], g["on"], g["reason"]) for g in guards])
    remedies: dict[str, list[str]] = {}
    for guard in guards:
        if not guard["on"] and guard["remedy"]:
            remedies.setdefault(guard["remedy"], []).append(guard["name"])
    for remedy, names in remedies.items():
        say.line()
        say.line((f"{', '.join(names)}: ", "bold"), remedy)


@contextlib.contextmanager
def _told_here() -> Generator[None]:
    """Keep the library's own warnings back: the report says all of it."""
    import logging
    import warnings

    log = logging.getLogger("foretrace.sandbox")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
