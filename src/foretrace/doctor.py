"""Examine a sandbox: how well it isolates, guard by guard, and how fast it is.

Or a model: what its server supports, which protocols this is enough for, and the outcome of one real episode.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.core.completion import CAPABILITY_NAMES, Capabilities, Sampling
from foretrace.core.errors import ForetraceError, SandboxError, Setting, count_things
from foretrace.core.progress import ProgressFunc
from foretrace.registry import load_problems, make_protocol, make_sandbox
from foretrace.sandbox.base import Sandbox, SandboxSettings

if TYPE_CHECKING:
    from foretrace.core.trace import Isolation, Trace
    from foretrace.models.base import ChatModel
    from foretrace.protocols.base import InteractionProtocol

_TRIVIAL = "def double(x):\n    return 2 * x\nassert double(2) == 4\n"
_ALONE_S, _ALL_WORKERS_S = 0.4, 0.8
"""Seconds to measure one run at a time, and all workers at once."""
_REPORT_FROM_WITHIN = """
import json, platform, resource
print(json.dumps([platform.python_version(), platform.machine(), resource.getrlimit(resource.RLIMIT_AS)[0] >> 20]))
"""


def examine_sandbox(names: str, settings: SandboxSettings) -> tuple[dict[str, Any] | None, SandboxError | None]:
    """Facts about the first sandbox of `names` that starts, and the error that says why none is usable at the required
    level; the facts are then those at a lower level."""
    error: SandboxError | None = None
    for chosen in (settings, msgspec.structs.replace(settings, min_level=0, allow_weak_isolation=True)):
        try:
            facts = asyncio.run(_examine(make_sandbox(names, chosen), chosen))
            return facts | {"min_level": settings.min_level}, error
        except SandboxError as why:
            error = error or why
    return None, error


def _describe_isolation(isolation: Isolation) -> dict[str, Any]:
    found = {"name": isolation.sandbox, "level": isolation.level}
    return found | {"missing": list(isolation.missing), "refused": isolation.refused}


async def _examine(sandbox: Sandbox, settings: SandboxSettings) -> dict[str, Any]:
    begun = time.monotonic()
    async with sandbox:
        isolation = await sandbox.start()
        started = time.monotonic() - begun
        answer = await sandbox.run(_REPORT_FROM_WITHIN)
        try:
            python, machine, memory_mb = json.loads(answer.stdout)
        except ValueError:
            python, machine, memory_mb = None, None, None
        return {
            **_describe_isolation(isolation),
            "guards": msgspec.to_builtins(await sandbox.guards()),
            "python": python,
            "machine": machine,
            "interpreter": settings.interpreter,
            "preload": settings.preload,
            "workers": settings.workers,
            # Measured inside: a preload set may require more memory, and some systems do not limit it.
            "limits": msgspec.to_builtins(settings.limits) | {"memory_mb": memory_mb},
            "start_s": round(started, 3),
            **await _measure(sandbox, settings.workers),
        }


async def _measure(sandbox: Sandbox, workers: int) -> dict[str, Any]:
    """Wall-clock milliseconds of a single run (median), and runs per second with all workers busy."""

    async def run_for(seconds: float) -> list[float]:
        taken: list[float] = []
        end = time.monotonic() + seconds
        while not taken or time.monotonic() < end:
            before = time.monotonic()
            await sandbox.run(_TRIVIAL)
            taken.append(time.monotonic() - before)
        return taken

    alone = await run_for(_ALONE_S)
    before = time.monotonic()
    together = await asyncio.gather(*(run_for(_ALL_WORKERS_S) for _ in range(workers)))
    per_s = sum(map(len, together)) / (time.monotonic() - before)
    return {"runs_per_s": round(per_s, 1), "ms_per_run": round(statistics.median(alone) * 1000, 2)}


_PREFERRED = ("interleaved_tools", "tools", "inline", "structured", "interleaved")
"""Protocols, most informative first; the first one that the server supports is used."""
_EXCERPT = 80


class ModelReport(msgspec.Struct, kw_only=True):
    """The results of the examination so far."""

    ok: bool = False
    error: str | None = None
    model: str
    endpoint: str
    """Scheme and host; empty for a model in this process."""
    capabilities: dict[str, dict[str, Any]] | None = None
    """By name: `yes` (for `context_length` also `tokens`), and the `reason` if it is missing."""
    notes: dict[str, str] = {}
    """Other remarks of the probe."""
    protocols: dict[str, dict[str, Any]] | None = None
    """By name: `offered`, and the `reason` if it is refused."""
    sandbox: dict[str, Any] | None = None
    episode: dict[str, Any] | None = None


async def examine_model(
    report: ModelReport, model: ChatModel, sandbox: Sandbox, sampling: Sampling, progress: ProgressFunc
) -> None:
    """Probe a model, and run one real episode with it; the results go to `report` as they become known."""
    from foretrace.episodes.episode import Episode
    from foretrace.episodes.identity import Identity, derive_seed
    from foretrace.episodes.requirements import find_token_model
    from foretrace.episodes.rollout import rollout

    async with model:
        can = await model.probe()
        refused = {name: None for name in ("temperature", "top_p") if name in can.reasons}
        report.capabilities = _describe_capabilities(can)
        report.notes = {name: why for name, why in can.reasons.items() if name not in report.capabilities}
        protocol = _choose_protocol(report, can)
        progress("starting the sandbox", 0, None)
        async with sandbox:
            report.sandbox = _describe_isolation(await sandbox.start())
            (problem,) = load_problems("builtin", None, 1)
            progress(f"an episode: {problem.id}, {protocol.name}", 0, None)
            # The same as the first attempt of `generate` with its default settings.
            seed = derive_seed(0, problem, 0)
            sampling = msgspec.structs.replace(sampling, extra=sampling.extra | refused, seed=seed)
            tokens = find_token_model(model, can) if protocol.continues else None
            identity = Identity(model=model.spec, seed=0)
            episode = Episode(problem, protocol, sandbox, identity=identity, tokens=tokens)
            trace = await rollout(episode, model, sampling)
    report.episode = {"problem": problem.id, "protocol": protocol.name, **_describe_episode(trace)}
    _check_episode(report.episode, trace, model.spec)


def _describe_capabilities(can: Capabilities) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in CAPABILITY_NAMES:
        yes: bool = getattr(can, name)
        found[name] = {"yes": yes, "reason": None if yes else can.reasons.get(name, "it was not found")}
    known = can.context_length is not None
    why = None if known else can.reasons.get("context_length", "the server does not say")
    found["context_length"] = {"yes": known, "tokens": can.context_length, "reason": why}
    return found


def _choose_protocol(report: ModelReport, can: Capabilities) -> InteractionProtocol:
    """The protocol for the episode; the report gets all of them, refused or not."""
    from foretrace.core.plugins import plugin_names
    from foretrace.episodes.requirements import find_missing_capability

    report.protocols = {}
    chosen: InteractionProtocol | None = None
    for name in dict.fromkeys([*_PREFERRED, *sorted(plugin_names("protocol"))]):
        protocol = make_protocol(name)
        missing = find_missing_capability(protocol, can)
        why = None if missing is None else f"needs {missing.name}: {missing.reason}"
        report.protocols[name] = {"offered": missing is None, "reason": why}
        chosen = chosen or (protocol if missing is None else None)
    if chosen is None:
        raise ForetraceError(f"{report.model} can do no protocol: take another server (docs/models.md)")
    return chosen


def _describe_episode(trace: Trace) -> dict[str, Any]:
    outcome, tests = trace.outcome, trace.outcome.tests
    metrics = outcome.metrics
    sampled_spans = [message.sampled for message in trace.messages if message.author == "model"]
    exact = {"none" if sampled is None else sampled.exact for sampled in sampled_spans}
    read, written = (
        None if (count := metrics.get(name)) is None else int(count) for name in ("prompt_tokens", "completion_tokens")
    )
    seconds = metrics.get("model_s", 0.0)
    return {
        "status": outcome.status,
        "turns": int(metrics.get("turns", 0)),
        "runs": int(metrics.get("execution_count", 0)),
        "tests": None if tests is None else {"passed": tests.passed, "total": tests.total},
        "success": outcome.success,
        "reward": outcome.reward,
        "prompt_tokens": read,
        "completion_tokens": written,
        "tokens_per_s": round(written / seconds, 1) if written is not None and seconds > 0 else None,
        "model_s": seconds,
        "sandbox_s": metrics.get("tool_s", 0.0),
        # The weakest kind of all spans: a row is only as exact as its least exact part.
        "logprobs": next((kind for kind in ("none", "text", "token") if kind in exact), "none"),
        "cut_off": sum(sampled is not None and sampled.finish_reason == "length" for sampled in sampled_spans),
    }


def _check_episode(episode: dict[str, Any], trace: Trace, spec: str) -> None:
    """Refuse an episode in which nothing happened; a wrong answer is the model's own affair."""
    error = trace.outcome.error
    if error is not None:
        raise ForetraceError(f"the episode ended in an error, {error.kind}: {error.message}")
    if not episode["runs"]:
        last = next((m.content for m in reversed(trace.messages) if m.author == "model"), "")
        excerpt = " ".join(last.split())[-_EXCERPT:]
        raise ForetraceError(
            f"{spec} had no code run in {count_things(episode['turns'], 'turn')} of {episode['protocol']} "
            f"(it ended with {excerpt!r}): take a model that follows instructions, or give it room with ",
            Setting("max_tokens"),
        )
