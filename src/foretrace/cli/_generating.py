"""From names to a run of `generate`: what the command and a notebook share."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.core.problem import Problem
    from foretrace.episodes._plan import GenerateSettings
    from foretrace.episodes._status import Status
    from foretrace.episodes.generate import GenerateReport
    from foretrace.models.base import ChatModel, Server
    from foretrace.problems.base import Drop
    from foretrace.protocols.base import Protocol
    from foretrace.sandbox.base import Sandbox

_SESSIONS = 128
"""Sessions of the sandbox at one time, where the number of attempts is not given: each is a process that stays."""
_TOLD = 3
"""Rows that cannot be used that one line names."""


class TerminatedError(Exception):
    """The process was asked to end (SIGTERM), and what was finished is sealed."""


def usable_problems(name: str, path: Path | None, limit: int | None) -> tuple[list[Problem], list[Drop]]:
    """The first problems of a set, all of them without a limit, and the rows between them that cannot be used.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: it cannot be read, or no row of it can be used.
    """
    return _first(_all(name, path), path or name, limit)


def rows_told(drops: Sequence[Drop], place: Path | str) -> str:
    """Which rows of a place cannot be used, and why: the first of them."""
    told = [f"{drop.at.removeprefix(f'{place} ')}: {drop.reason}" for drop in drops[:_TOLD]]
    return "; ".join([*told, *(["..."] if len(drops) > _TOLD else [])])


def problems_of(name: str, path: Path | None, limit: int | None) -> list[Problem]:
    """The first problems of a set, all of them without a limit.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: a row that cannot be used; names where it stands.
    """
    from foretrace.problems.base import strict

    return _first(strict(_all(name, path)), path or name, limit)[0]


def _all(name: str, path: Path | None) -> Iterable[Problem | Drop]:
    from foretrace.problems._sets import problem_set

    return problem_set(name)().load(path)


def _first(loaded: Iterable[Problem | Drop], place: Path | str, limit: int | None) -> tuple[list[Problem], list[Drop]]:
    from foretrace.core.errors import ProblemError
    from foretrace.problems.base import split

    found, drops = split(loaded, limit)
    if not found:
        none = f"none of its {len(drops):,} problems can be used: {rows_told(drops, place)}"
        raise ProblemError(f"{place}: {none if drops else 'there is no problem in it'}")
    return found, drops


def protocol_of(name: str, *, forced: bool = False) -> Protocol:
    """The protocol of that name.

    Raises:
        UsageError: no such protocol, or it has no forced form.
    """
    from foretrace.envs._setup import protocol_of as of

    return of(name, forced=forced, option="--forced")


def model_of(spec: str, server: Server | None = None) -> ChatModel:
    """The model of that name, not asked yet.

    Raises:
        UsageError: no such kind of model, or a setting that does not fit.
    """
    from foretrace.models._spec import resolve_model

    return resolve_model(spec, server)


def sandbox_for(names: str, concurrency: int | None, **settings: Any) -> Sandbox:
    """The sandbox of that name, not started yet, with a session for each attempt in flight.

    Raises:
        UsageError: no such sandbox.
    """
    from foretrace.cli._sandboxes import sandbox_of
    from foretrace.sandbox.base import Settings

    return sandbox_of(names, Settings(max_sessions=concurrency or _SESSIONS, **settings))


def run(
    problems: Sequence[Problem],
    protocol: Protocol,
    model: ChatModel,
    sandbox: Sandbox,
    out: Path,
    settings: GenerateSettings,
    progress: Callable[[Status], None] | None = None,
    *,
    failed: Callable[[GenerateReport], None] | None = None,
    ends_on_sigterm: bool = False,
) -> GenerateReport:
    """Generate, in a loop of its own: in another thread where one is running here, as in a notebook.

    Args:
        failed: See `generate`.
        ends_on_sigterm: SIGTERM ends the run as an interrupt does, where the process has no other use for it.

    Raises:
        TerminatedError: SIGTERM came.
    """
    from concurrent.futures import ThreadPoolExecutor

    from foretrace import __version__
    from foretrace.episodes.generate import generate

    terminated: list[bool] = []

    async def work() -> GenerateReport:
        if ends_on_sigterm:
            _on_sigterm(asyncio.current_task(), terminated)
        try:
            return await generate(
                problems,
                protocol,
                model,
                sandbox,
                out,
                settings,
                versions={"foretrace": __version__},
                progress=progress,
                failed=failed,
            )
        finally:
            await model.close()
            await sandbox.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return asyncio.run(work())
        except asyncio.CancelledError:
            if terminated:
                raise TerminatedError from None
            raise
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work()).result()


def _on_sigterm(task: asyncio.Task[Any] | None, came: list[bool]) -> None:
    """Cancel the task when SIGTERM comes, and note that it came."""

    def end() -> None:
        came.append(True)
        if task is not None:
            task.cancel()

    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread, or no Unix
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)  # taken off when the loop is closed
