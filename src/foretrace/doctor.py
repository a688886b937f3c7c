"""Examine a sandbox: how well it isolates, guard by guard, and how fast it is.

Or a model: what its server supports, which protocols this is enough for, and the outcome of one real episode.
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import time
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.core.completion import CAPABILITY_NAMES, Capabilities, Sampling
from foretrace.core.errors import ForetraceError, SandboxError, Setting
from foretrace.core.problem import Problem, Test
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.registry import make_sandbox
from foretrace.sandbox.base import Sandbox, SandboxSettings

if TYPE_CHECKING:
    from foretrace.core.trace import Trace
    from foretrace.models.base import ChatModel
    from foretrace.protocols.base import InteractionProtocol

_TRIVIAL = "def double(x):\n    return 2 * x\nassert double(2) == 4\n"
_JUDGED = {
    "a function": ("def f(x):\n    return {}", ("2 * x", "x"), "assert f(4) == 8"),
    "a class": (
        "class f:\n    def __init__(self, x):\n        self.x = x\n    def __eq__(self, other):\n        return {}",
        ("isinstance(other, f) and self.x == other.x", "True"),
        "assert f(1) == f(1)\nassert f(1) != f(2)",
    ),
    "a callback": ("def f(g, x):\n    return {}", ("g(x)", "x"), "assert f(lambda x: x + 1, 4) == 5"),
    "an exception": (
        "def f(x):\n    {}",
        ("raise ValueError(x)", "return x"),
        "try:\n    f(1)\nexcept ValueError:\n    pass\nelse:\n    raise AssertionError",
    ),
    "tests in pytest's style": (
        "def f(x):\n    return {}",
        ("2 * x", "x"),
        "import pytest\n@pytest.fixture\ndef four():\n    return 4\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_f(n, four):\n    assert f(n * four) == n * 8\n",
    ),
    "tests in unittest's style": (
        "def f(x):\n    return {}",
        ("2 * x", "x"),
        "import unittest\nclass TestF(unittest.TestCase):\n    def test_f(self):\n        self.assertEqual(f(4), 8)\n",
    ),
    "a program": ("print({})", ("int(input()) * 2", "input()"), None),
}
"""Kinds of answers: code, its right and wrong filling, and a test (`None` for a program that reads 4 and prints 8)."""
_ALONE_S, _ALL_WORKERS_S = 0.4, 0.8
"""Seconds to measure one run at a time, and all workers at once."""
_REPORT_FROM_WITHIN = """
import json, platform, resource
print(json.dumps([platform.python_version(), platform.machine(), resource.getrlimit(resource.RLIMIT_AS)[0] >> 20]))
"""


def examine_sandbox(names: str, settings: SandboxSettings) -> tuple[dict[str, Any] | None, SandboxError | None]:
    """Facts about the first sandbox of `names` that starts, and the error that says why none is usable.

    If none is usable at the required level, the facts found at a lower level are returned along with the error.

    Raises:
        UsageError: no such sandbox, or a setting that does not fit.
    """
    try:
        return asyncio.run(_examine(make_sandbox(names, settings), settings)), None
    except SandboxError as error:
        why = error
    weaker = msgspec.structs.replace(settings, min_level=0, allow_weak_isolation=True)
    try:
        return asyncio.run(_examine(make_sandbox(names, weaker), settings)), why
    except SandboxError:
        return None, why


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
            "name": isolation.sandbox or sandbox.name,
            "level": isolation.level,
            "min_level": settings.min_level,
            "missing": list(isolation.missing),
            "refused": isolation.refused,
            "guards": msgspec.to_builtins(await sandbox.guards()),
            "python": python,
            "machine": machine,
            "interpreter": settings.interpreter,
            "preload": settings.preload,
            "workers": settings.workers,
            # Measured inside: a preload set may require more memory, and some systems do not limit it.
            "limits": msgspec.to_builtins(settings.limits) | {"memory_mb": memory_mb},
            "start_s": round(started, 3),
            "judged": await _judge_examples(sandbox),
            **await _measure(sandbox, settings.workers),
        }


async def _judge_examples(sandbox: Sandbox) -> dict[str, bool]:
    """For each kind of answer, whether a right one is accepted and a wrong one is rejected."""
    found: dict[str, bool] = {}
    for kind, (code, fillings, test) in _JUDGED.items():
        tests = [Test(stdin="4\n", stdout="8\n") if test is None else Test(code=test)]
        entry_point = None if test is None else "f"
        verdicts = [await sandbox.judge(code.format(f), tests, entry_point=entry_point) for f in fillings]
        found[kind] = [verdict.passed for verdict in verdicts] == [True, False]
    return found


async def _measure(sandbox: Sandbox, workers: int) -> dict[str, Any]:
    """Wall-clock milliseconds of a single run (median), and runs per second with all workers busy."""
    alone: list[float] = []
    end = time.monotonic() + _ALONE_S
    while not alone or time.monotonic() < end:
        before = time.monotonic()
        await sandbox.run(_TRIVIAL)
        alone.append(time.monotonic() - before)

    async def run_until(end: float) -> int:
        count = 0
        while not count or time.monotonic() < end:
            await sandbox.run(_TRIVIAL)
            count += 1
        return count

    before = time.monotonic()
    counts = await asyncio.gather(*(run_until(before + _ALL_WORKERS_S) for _ in range(workers)))
    seconds = time.monotonic() - before
    return {"runs_per_s": round(sum(counts) / seconds, 1), "ms_per_run": round(statistics.median(alone) * 1000, 2)}


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
    report: ModelReport,
    model: ChatModel,
    sandbox: Sandbox,
    sampling: Sampling,
    progress: ProgressFunc = ignore_progress,
) -> None:
    """Probe a model, and run one real episode with it; the results go to `report` as they become known.

    Raises:
        ForetraceError: the server, the sandbox or the episode failed.
        UsageError: a setting that does not fit.
    """
    from foretrace.episodes.episode import Episode
    from foretrace.episodes.identity import Identity, derive_seed
    from foretrace.episodes.requirements import find_token_model
    from foretrace.episodes.rollout import rollout
    from foretrace.registry import load_problems

    async with model:
        can = await model.probe()
        refused = {name: None for name in ("temperature", "top_p") if name in can.reasons}
        sampling = msgspec.structs.replace(sampling, extra=sampling.extra | refused)
        report.capabilities = _capability_facts(can)
        report.notes = {name: why for name, why in can.reasons.items() if name not in report.capabilities}
        protocol = _choose_protocol(report, can)
        progress("starting the sandbox", 0, None)
        async with sandbox:
            isolation = await sandbox.start()
            report.sandbox = {
                "name": isolation.sandbox,
                "level": isolation.level,
                "missing": list(isolation.missing),
                "refused": isolation.refused,
            }
            (problem,) = load_problems("builtin", None, 1)
            progress(f"an episode: {problem.id}, {protocol.name}", 0, None)
            # The same as the first attempt of `generate` with its default settings.
            seeded = msgspec.structs.replace(sampling, seed=derive_seed(0, problem, 0))
            identity = Identity(model=model.spec, seed=0)
            tokens = find_token_model(model, can) if protocol.continues else None
            episode = Episode(problem, protocol, sandbox, identity=identity, tokens=tokens)
            trace = await rollout(episode, model, seeded)
    report.episode = _episode_facts(trace, problem, protocol)
    _check_episode(report.episode, trace, model.spec)


def _capability_facts(can: Capabilities) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in CAPABILITY_NAMES:
        yes: bool = getattr(can, name)
        found[name] = {"yes": yes, "reason": None if yes else can.reasons.get(name, "it was not found")}
    known = can.context_length is not None
    why = None if known else can.reasons.get("context_length", "the server does not say")
    found["context_length"] = {"yes": known, "tokens": can.context_length, "reason": why}
    return found


def _choose_protocol(report: ModelReport, can: Capabilities) -> InteractionProtocol:
    """The protocol for the episode; the report gets all of them, refused or not.

    Raises:
        ForetraceError: the server supports none.
    """
    from foretrace.core.plugins import plugin_names
    from foretrace.episodes.requirements import find_missing_capability
    from foretrace.registry import make_protocol

    report.protocols = {}
    offered: dict[str, InteractionProtocol] = {}
    preferred = [name for name in _PREFERRED if name in plugin_names("protocol")]
    for name in [*preferred, *sorted({*plugin_names("protocol")} - {*preferred})]:
        protocol: InteractionProtocol = make_protocol(name)
        missing = find_missing_capability(protocol, can)
        why = None if missing is None else f"needs {missing.name}: {missing.reason}"
        report.protocols[name] = {"offered": missing is None, "reason": why}
        if missing is None:
            offered[name] = protocol
    if not offered:
        raise ForetraceError(f"{report.model} can do no protocol: take another server (docs/models.md)")
    return next(iter(offered.values()))


def _episode_facts(trace: Trace, problem: Problem, protocol: InteractionProtocol) -> dict[str, Any]:
    outcome = trace.outcome
    metrics, tests = outcome.metrics, outcome.tests
    sampled_spans = [message.sampled for message in trace.messages if message.author == "model"]
    exact = {"none" if sampled is None else sampled.exact for sampled in sampled_spans}
    written, seconds = metrics.get("completion_tokens"), metrics.get("model_s", 0.0)
    return {
        "problem": problem.id,
        "protocol": protocol.name,
        "status": outcome.status,
        "turns": int(metrics.get("turns", 0)),
        "runs": int(metrics.get("execution_count", 0)),
        "tests": None if tests is None else {"passed": tests.passed, "total": tests.total},
        "success": outcome.success,
        "reward": outcome.reward,
        "prompt_tokens": _as_int(metrics.get("prompt_tokens")),
        "completion_tokens": _as_int(written),
        "tokens_per_s": round(written / seconds, 1) if written is not None and seconds > 0 else None,
        "model_s": seconds,
        "sandbox_s": metrics.get("tool_s", 0.0),
        # The weakest kind of all spans: a row is only as exact as its least exact part.
        "logprobs": next((kind for kind in ("none", "text", "token") if kind in exact), "none"),
        "cut_off": sum(sampled is not None and sampled.finish_reason == "length" for sampled in sampled_spans),
    }


def _as_int(count: float | None) -> int | None:
    return None if count is None or not math.isfinite(count) else int(count)


def _check_episode(episode: dict[str, Any], trace: Trace, spec: str) -> None:
    """Refuse an episode in which nothing happened; a wrong answer is the model's own affair.

    Raises:
        ForetraceError: says what happened, and what to do.
    """
    error = trace.outcome.error
    if error is not None:
        raise ForetraceError(f"the episode ended in an error, {error.kind}: {error.message}")
    if not episode["runs"]:
        last = next((m.content for m in reversed(trace.messages) if m.author == "model"), "")
        excerpt = " ".join(last.split())[-_EXCERPT:]
        raise ForetraceError(
            f"{spec} wrote no code that could be run in {episode['turns']} turns of {episode['protocol']} "
            f"(it ended with {excerpt!r}): take a model that follows instructions, or give it room with ",
            Setting("max_tokens"),
        )
