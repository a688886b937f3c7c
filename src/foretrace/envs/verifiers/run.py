"""One episode within a rollout of the verifiers library: run it, end it when the library stops it, and report it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError, SandboxError
from foretrace.envs.verifiers.setting_names import rename
from foretrace.episodes.episode import Episode
from foretrace.episodes.rollout import CONTEXT
from foretrace.models.base import ChatModel
from foretrace.models.server_errors import placeless
from foretrace.sandbox.base import Sandbox, SandboxSettings
from foretrace.sandbox.registry import make_sandbox

_log = logging.getLogger("foretrace.envs")
_OWN = frozenset({"temperature", "top_p", "top_k", "max_tokens", "seed"})


async def attempt(
    episode: Episode, model: ChatModel, sampling: Sampling, stopped: Callable[[], str | None] = lambda: None
) -> None:
    """Run an episode to its end. Where the run around it was stopped, what there is of an answer is judged.

    Args:
        stopped: why the run was stopped; null while it goes on. It refuses further completions then.

    Raises:
        Exception: what failed, after the episode was ended as failed.
    """
    try:
        await episode.start()
        while not episode.done:
            try:
                completion = await model.complete(episode.request(sampling, logprobs=False))
            except ModelError as error:
                reason = stopped() or (CONTEXT if error.kind == "overflow" and episode.turns else None)
                if reason is None:
                    raise
                await episode.end(reason)
            else:
                await episode.step(completion)
    except Exception as error:
        rename(error)
        if isinstance(error, ModelError) and error.kind == "refused":
            _say_once(str(error))
        await episode.fail(_kind(error), placeless(error) if isinstance(error, ModelError) else str(error))
        raise


@functools.cache
def _say_once(line: str) -> None:
    """Every episode fails for the same reason, and the library goes on all the same."""
    _log.warning("%s", line)


def _kind(error: Exception) -> str:
    if isinstance(error, ModelError):
        return error.kind
    return "sandbox" if isinstance(error, SandboxError) else "unexpected"


def sampling_of(given: Mapping[str, Any]) -> Sampling:
    """The sampling of a run: what it leaves open is foretrace's own default."""
    return Sampling(**{name: value for name, value in given.items() if name in _OWN and value is not None})


def report_of(episode: Episode) -> dict[str, Any]:
    """A finished episode in short, as plain values: no test and no message is in it."""
    trace = episode.trace()
    return {
        "key": trace.key,
        "problem": trace.task.id,
        "protocol": episode.protocol.name,
        "outcome": msgspec.to_builtins(trace.outcome),
        "reward_formula": trace.extra["reward_formula"],
        "code": episode.code.encode("utf-8", "replace").decode(),
    }


def reward_in(report: Mapping[str, Any] | None) -> float:
    """The reward that a report holds.

    Raises:
        ValueError: the attempt came to no end that could be judged.
    """
    outcome = (report or {}).get("outcome", {})
    if outcome.get("reward") is None:
        why = outcome.get("error", {}).get("message", "it was stopped before it began")
        raise ValueError(f"the attempt has no reward: {why}")
    return float(outcome["reward"])


def metrics_in(report: Mapping[str, Any] | None) -> dict[str, float]:
    """`accuracy` (all tests pass), `pass_rate` (share of tests), and the metrics of docs/protocols.md."""
    outcome = (report or {}).get("outcome", {})
    if outcome.get("reward") is None:
        return {}
    tests = outcome.get("tests", {})
    rate = tests.get("passed", 0) / tests["total"] if tests.get("total") else 0.0
    return {"accuracy": float(bool(outcome.get("success"))), "pass_rate": rate, **outcome.get("metrics", {})}


_Boxes = dict[tuple[str, bytes], Sandbox]
_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, _Boxes] = WeakKeyDictionary()
"""The library makes a new harness for each episode, and fork servers are to stay warm: so they are kept by loop."""


def shared_sandbox(names: str, settings: SandboxSettings) -> Sandbox:
    """The sandbox with these settings, one for all rollouts of the running loop.

    Raises:
        UsageError: no such sandbox.
    """
    boxes = _OPEN.setdefault(asyncio.get_running_loop(), {})
    key = (names, msgspec.json.encode(settings))
    if key not in boxes:
        boxes[key] = make_sandbox(names, settings)
    return boxes[key]


async def close_sandboxes() -> None:
    """End all sandboxes of the running loop."""
    for box in _OPEN.pop(asyncio.get_running_loop(), {}).values():
        await box.close()
