"""One attempt in a rollout of the verifiers library: its episode, its report, and the sandbox that all share."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, ModelError
from foretrace.envs.verifiers.setting_names import describe_failure, rewrite_error
from foretrace.episodes.episode import Episode
from foretrace.episodes.rollout import EpisodeLimitError, run_episode
from foretrace.models.base import ChatModel
from foretrace.registry import make_sandbox
from foretrace.sandbox.base import Sandbox, SandboxSettings

_log = logging.getLogger("foretrace.envs")


async def run_attempt(
    episode: Episode, model: ChatModel, sampling: Sampling, find_stop: Callable[[], str | None] = lambda: None
) -> None:
    """Run an episode to its end, or raise the cause after it was ended as failed. If the run is stopped, which
    `find_stop` gives a reason for, it refuses further completions, and the answer so far is judged."""

    async def complete(request: Request) -> Completion:
        try:
            return await model.complete(request)
        except ModelError as error:
            reason = find_stop()
            if reason is None:
                raise
            raise EpisodeLimitError(reason) from error

    try:
        await run_episode(episode, complete, sampling, logprobs=False, describe=describe_failure)
    except ForetraceError as error:
        named = rewrite_error(error)
        if isinstance(named, ModelError) and named.kind == "refused":
            _warn_once(str(named))
        raise named from error.__cause__


@functools.cache
def _warn_once(line: str) -> None:
    """Cached, because every episode fails for the same reason, and the library continues."""
    _log.warning("%s", line)


def read_sampling(arguments: Mapping[str, Any]) -> Sampling:
    """The sampling of a run, with foretrace's defaults for missing values."""
    fields = Sampling.__struct_fields__
    given = {name: value for name, value in arguments.items() if name in fields and value is not None}
    return Sampling(**given)


def make_report(episode: Episode) -> dict[str, Any]:
    """A finished episode as plain values, without tests. `trace` is what the source `verifiers_traces` imports."""
    plain = json.dumps([msgspec.to_builtins(episode.trace()), episode.code], ensure_ascii=False)
    trace, code = json.loads(plain.encode("utf-8", "replace"))  # without lone surrogates
    return {
        "key": trace["key"],
        "problem": trace["task"]["id"],
        "protocol": episode.protocol.name,
        "outcome": trace["outcome"],
        "reward_formula": trace["extra"]["reward_formula"],
        "code": code,
        "trace": trace,
    }


def read_reward(report: Mapping[str, Any] | None) -> float:
    """The reward in a report; a ValueError if the attempt could not be judged."""
    outcome = (report or {}).get("outcome", {})
    if outcome.get("reward") is None:
        why = outcome.get("error", {}).get("message", "it was stopped before it began")
        raise ValueError(f"the attempt has no reward: {why}")
    return float(outcome["reward"])


def read_metrics(report: Mapping[str, Any] | None) -> dict[str, float]:
    """`accuracy` (all tests pass), `pass_rate` (share of tests), and the metrics of docs/protocols.md."""
    outcome = (report or {}).get("outcome", {})
    if outcome.get("reward") is None:
        return {}
    tests = outcome.get("tests", {})
    rate = tests.get("passed", 0) / tests["total"] if tests.get("total") else 0.0
    return {"accuracy": float(bool(outcome.get("success"))), "pass_rate": rate, **outcome.get("metrics", {})}


_Sandboxes = dict[tuple[str, bytes], Sandbox]
_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, _Sandboxes] = WeakKeyDictionary()
"""Open sandboxes by event loop. The library makes a new harness for each episode; they share one sandbox, so that its
fork server is started once."""


def get_shared_sandbox(names: str, settings: SandboxSettings) -> Sandbox:
    """The sandbox with these settings, shared by all rollouts of the running loop."""
    sandboxes = _OPEN.setdefault(asyncio.get_running_loop(), {})
    key = (names, msgspec.json.encode(settings))
    if key not in sandboxes:
        sandboxes[key] = make_sandbox(names, settings)
    return sandboxes[key]


async def close_sandboxes() -> None:
    """Close all sandboxes of the running loop."""
    for sandbox in _OPEN.pop(asyncio.get_running_loop(), {}).values():
        await sandbox.close()
