"""Generate traces: models and protocols by name or as objects, and the event loop they run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from foretrace.api.event_loop import closing_all, run_in_event_loop
from foretrace.api.settings import pick_settings
from foretrace.core.errors import Setting, UsageError
from foretrace.core.places import make_local_path

if TYPE_CHECKING:
    from foretrace.core.problem import Problem
    from foretrace.episodes.generate.engine import GenerateReport
    from foretrace.episodes.generate.progress import RunProgress
    from foretrace.episodes.generate.settings import GenerateSettings
    from foretrace.models.base import ChatModel, Server
    from foretrace.protocols.base import InteractionProtocol
    from foretrace.sandbox.base import Sandbox, SandboxSettings

MAX_SESSIONS = 128
"""Default for the most sandbox sessions at a time; each is a process that stays."""


def generate(
    problems: str | Sequence[Problem] | Callable[[], Sequence[Problem]],
    *,
    model: str | ChatModel,
    protocol: str | InteractionProtocol,
    out: str | Path,
    path: str | Path | None = None,
    limit: int | None = None,
    part: str | None = None,
    server: Server | None = None,
    sandbox: str | Sandbox = "local",
    samples: int = 1,
    seed: int = 0,
    keep: Literal["all", "success", "ideal"] = "all",
    concurrency: int | None = None,
    redact: bool = True,
    redact_emails: bool = False,
    redact_addresses: bool = False,
    temperature: float | None = 0.7,
    max_tokens: int = 4096,
    top_p: float = 1.0,
    top_k: int | None = None,
    max_turns: int | None = None,
    feedback: Literal["public", "counts"] = "public",
    hints: bool = False,
    structure_bonus: bool = False,
    flagged: Literal["zero", "report"] = "zero",
    max_tokens_total: int | None = None,
    max_time: float | None = None,
    max_cost: float | None = None,
    price_in: float = 0.0,
    price_out: float = 0.0,
    speculate: str | None = None,
    speculate_dataset: str | Path | None = None,
    speculate_url: str | None = None,
    speculate_width: int | None = None,
    speculate_top: int | None = None,
    speculate_threshold: float | None = None,
    speculate_max_wasted: float | None = None,
    speculate_max_tokens: int | None = None,
    sandbox_settings: SandboxSettings | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    on_failure: Callable[[GenerateReport], None] | None = None,
) -> GenerateReport:
    """Attempt problems with a model into the traces folder `out`, which is made if absent; the same call goes on.

    A model and a sandbox that are given as objects are closed at the end. It runs in a new event loop; in another
    thread if a loop is already running here, as in a notebook.

    Args:
        problems: A set that `problems list` shows, jsonl:FILE, or module:Class; in Python also
            `Problem` objects, or a function that loads them once the settings are found to be good.
        model: E.g. ollama:qwen3-coder or openai:NAME (docs/models.md).
        protocol: How the model runs code, e.g. tools (docs/protocols.md).
        out: Traces folder, made if absent.
        path: Read the set from this file or folder, and not from the Hub.
        limit: Only the first N problems.
        part: Only the problems of one machine of several, e.g. 2/8.
        server: Where the model server is, for a model that is named.
        sandbox: Sandboxes in order of preference, e.g. docker,local.
        samples: Attempts at each problem.
        seed: Gives each attempt its own seed.
        keep: Attempts to store; ideal: solved as the protocol wants it.
        concurrency: Attempts at one time; auto, the default, finds out what the server can do.
        redact: Take secrets and user names out before anything is written.
        redact_emails: Take e-mail addresses out too.
        redact_addresses: Take IP addresses out too.
        temperature: Sampling temperature; none lets the server choose.
        max_tokens: Tokens of one completion at most; thinking counts.
        top_p: Probability mass that is sampled from.
        top_k: Tokens that are sampled from.
        max_turns: Completions of an attempt at most (default: the protocol's own).
        feedback: What a model is told of its tests: `public`, or `counts` of the hidden ones too.
        hints: Add hints after failures.
        structure_bonus: Add the structure bonus to the reward.
        flagged: The reward of code that cheats its tests: `zero` as if none had passed, `report` as any other.
        max_tokens_total: Tokens of the run at most.
        max_time: Seconds after which no attempt begins.
        max_cost: Cost of the run at most; needs a price.
        price_in: Price of a million prompt tokens.
        price_out: Price of a million completion tokens.
        speculate: Run early what is guessed: tests, a file of predictions, or a predictor or model with a dataset.
        speculate_dataset: What the predictor learns from, or the model was trained on.
        speculate_url: Where the server of the model that guesses is.
        speculate_width: Operations that run early at one time (default: 2).
        speculate_top: Guesses at each reply that are run (default: 2).
        speculate_threshold: Confidence that a guess needs.
        speculate_max_wasted: CPU seconds run for nothing after which no more is run early.
        speculate_max_tokens: Tokens that the guesses may take in all.
        sandbox_settings: Limits and isolation, for a sandbox that is named.
        on_failure: Called with the results so far if a failure ends the run.

    Raises:
        UsageError: a setting is invalid.
        ProblemError: the problem set cannot be used.
        ModelError: the server cannot be reached or refuses permanently; finished attempts are kept.
        SandboxError: no sandbox can start; finished attempts are kept.
        StoreError: `out` cannot be written.
    """
    given = {**locals()}  # a copy: names are given other values below
    from foretrace.core.version import __version__
    from foretrace.episodes.generate.engine import generate as run
    from foretrace.registry import load_usable_problems, make_model, make_protocol, make_sandbox
    from foretrace.sandbox.base import SandboxSettings

    settings, own = make_generate_settings(given), sandbox_settings or SandboxSettings()
    folder, path = make_local_path(out), None if path is None else make_local_path(path)
    protocol = make_protocol(protocol) if isinstance(protocol, str) else protocol
    if isinstance(sandbox, str):
        own = msgspec.structs.replace(own, max_sessions=settings.concurrency or MAX_SESSIONS)
        sandbox = make_sandbox(sandbox, own)
    speculation, made = None, list[Any]()
    if speculate is not None:
        from foretrace.api.guessers import make_speculation

        speculation, made = make_speculation(given, sandbox, own)
    elif unused := [name for name in given if name.startswith("speculate_") and given[name] is not None]:
        raise UsageError(Setting(unused[0], given[unused[0]]), " does nothing without ", Setting("speculate"))
    model = make_model(model, server) if isinstance(model, str) else model
    if isinstance(problems, str):
        problems = load_usable_problems(problems, path, limit)
    elif callable(problems):
        problems = problems()
    elif path is not None:
        raise UsageError(Setting("path"), " is for a problem set that is named; leave it out for Problem objects")
    attempted = problems[:limit][_read_part(part)]

    async def work() -> GenerateReport:
        async with closing_all(model, sandbox, *made):
            return await run(
                attempted,
                protocol,
                model,
                sandbox,
                folder,
                settings,
                speculation=speculation,
                versions={"foretrace": __version__},
                progress=progress,
                on_failure=on_failure,
            )

    return run_in_event_loop(work)


def _read_part(part: str | None) -> slice:
    """`2/8` takes every eighth problem, beginning with the second."""
    if part is None:
        return slice(None)
    number, _, parts = part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise UsageError(Setting("part", part), ": write which part of how many, e.g. ", Setting("part", "2/8"))
    return slice(int(number) - 1, None, int(parts))


def make_generate_settings(given: Mapping[str, Any]) -> GenerateSettings:
    """The checked settings of `generate` from its arguments."""
    from foretrace.core.completion import Sampling
    from foretrace.episodes.generate.settings import Budget, GenerateSettings, check_settings
    from foretrace.episodes.settings import EpisodeSettings

    # The server's default temperature; a model in this process has 1.
    own = {"temperature": 1.0, "extra": {"temperature": None}} if given["temperature"] is None else {}
    limits = {"tokens": given["max_tokens_total"], "seconds": given["max_time"], "cost": given["max_cost"]}
    settings = pick_settings(
        GenerateSettings,
        given,
        sampling=pick_settings(Sampling, given, seed=None, **own),
        budget=pick_settings(Budget, given, **limits),
        episode=pick_settings(EpisodeSettings, given),
    )
    check_settings(settings)
    return settings
