"""From names to a run of `generate`: what the command and a notebook share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.core.problem import Problem
    from foretrace.episodes._plan import GenerateSettings
    from foretrace.episodes._status import Status
    from foretrace.episodes.generate import GenerateReport
    from foretrace.models.base import ChatModel, Server
    from foretrace.protocols.base import Protocol
    from foretrace.sandbox.base import Sandbox

_SESSIONS = 128
"""Sessions of the sandbox at one time, where the number of attempts is not given: each is a process that stays."""


def problems_of(name: str, path: Path | None, limit: int | None) -> list[Problem]:
    """The first problems of a set, all of them without a limit.

    Raises:
        UsageError: no such set, or a path that does not fit.
        ProblemError: a row that cannot be used; names where it stands.
    """
    import itertools

    from foretrace.core.errors import ProblemError
    from foretrace.core.plugins import resolve

    found = list(itertools.islice(resolve("problems", name)().load(path), limit))
    if not found:
        raise ProblemError(f"{path or name}: there is no problem in it")
    return found


def protocol_of(name: str, *, forced: bool = False) -> Protocol:
    """The protocol of that name.

    Raises:
        UsageError: no such protocol, or it has no forced form.
    """
    import inspect

    from foretrace.core.errors import UsageError
    from foretrace.core.plugins import resolve

    kind = resolve("protocol", name)
    if not forced:
        return kind()
    if "forced" not in inspect.signature(kind).parameters:
        raise UsageError(f"--forced is for the protocol interleaved, not for {name}")
    return kind(forced=True)


def model_of(spec: str, server: Server | None = None) -> ChatModel:
    """The model of that name, not asked yet.

    Raises:
        UsageError: no such kind of model, or a setting that does not fit.
    """
    from foretrace.models._spec import resolve_model

    return resolve_model(spec, server)


def key_in(variable: str | None) -> str | None:
    """The key that stands in an environment variable.

    Raises:
        UsageError: it is not set.
    """
    from foretrace.core.errors import UsageError

    if variable is None:
        return None
    if not os.environ.get(variable):
        raise UsageError(f"--api-key-env {variable}: there is no such environment variable, or it is empty")
    return os.environ[variable]


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
) -> GenerateReport:
    """Generate, in a loop of its own: in another thread where one is running here, as in a notebook."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from foretrace import __version__
    from foretrace.episodes.generate import generate

    async def work() -> GenerateReport:
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
            )
        finally:
            await model.close()
            await sandbox.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work()).result()
