"""`foretrace doctor --model`: what a model server can do, which protocols that is enough for, and one real episode."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.cli.output import Cell, Output, Progress, one_line
from foretrace.core.completion import Capabilities, Sampling
from foretrace.core.errors import ForetraceError, UsageError

if TYPE_CHECKING:
    from foretrace.core.problem import Problem
    from foretrace.core.trace import Isolation, Trace
    from foretrace.models.base import ChatModel
    from foretrace.protocols.base import InteractionProtocol
    from foretrace.sandbox.base import Sandbox

_WORDS = {
    "logprobs": "logprobs",
    "token_ids": "token ids",
    "token_prompts": "token prompts",
    "continuation": "continuation",
    "reasoning_apart": "thinking apart",
}
_BEST = ("interleaved_tools", "tools", "inline", "structured", "interleaved")
"""Protocols from the one that shows most: the first that the server can do is played."""
_EXACT = {
    "token": "ids and logprobs of the sampled tokens (token-exact)",
    "text": "logprobs of pieces of text, without ids (text-exact)",
    "none": "none",
}
_LAST_WORDS = 80


class Found(msgspec.Struct, kw_only=True):
    """What was found, as far as it went."""

    ok: bool = False
    error: str | None = None
    model: str
    endpoint: str
    """Scheme and host; empty for a model in this process."""
    capabilities: dict[str, dict[str, Any]] | None = None
    """By name: `yes` (for `context_length` also `tokens`), and the `reason` where it is missing."""
    notes: dict[str, str] = {}
    """What else the probe says."""
    protocols: dict[str, dict[str, Any]] | None = None
    """By name: `offered`, and the `reason` where it is refused."""
    sandbox: dict[str, Any] | None = None
    episode: dict[str, Any] | None = None


def report_on(say: Output, model: ChatModel, sandbox: Sandbox, max_tokens: int | None) -> None:
    """Examine a model, make one episode with it, and say what came of both.

    Raises:
        ForetraceError: the server, the sandbox or the episode failed; what was found before that is said all the same.
        UsageError: a setting that does not fit.
    """
    import asyncio

    sampling = Sampling() if max_tokens is None else Sampling(max_tokens=max_tokens)
    found = Found(model=model.spec, endpoint=model.endpoint)
    failure: ForetraceError | None = None
    with say.progress(f"asking {model.spec} what it can do") as progress:
        try:
            asyncio.run(_examine(found, model, sandbox, sampling, progress))
        except UsageError:
            raise
        except ForetraceError as error:
            failure, found.error = error, str(error)
    found.ok = failure is None
    if not say.emit(msgspec.to_builtins(found)):
        _show(say, found, sampling)
    if failure is not None:
        raise failure


async def _examine(found: Found, model: ChatModel, sandbox: Sandbox, sampling: Sampling, progress: Progress) -> None:
    from foretrace.episodes.episode import Episode
    from foretrace.episodes.generate.resume import seed_of
    from foretrace.episodes.identity import Identity
    from foretrace.episodes.requirements import find_token_model
    from foretrace.episodes.rollout import rollout
    from foretrace.problems.registry import problems_of

    async with model:
        can = await model.probe()
        refused = {name: None for name in ("temperature", "top_p") if name in can.reasons}
        sampling = msgspec.structs.replace(sampling, extra=sampling.extra | refused)
        found.capabilities = _capabilities(can)
        found.notes = {name: why for name, why in can.reasons.items() if name not in found.capabilities}
        protocol = _offered(found, can)
        progress("starting the sandbox")
        async with sandbox:
            found.sandbox = _isolation(await sandbox.start())
            (problem,) = problems_of("builtin", None, 1)
            progress(f"an episode: {problem.id}, {protocol.name}")
            # As the first attempt of `generate` with its own settings would be.
            seeded = msgspec.structs.replace(sampling, seed=seed_of(0, problem, 0))
            identity = Identity(model=model.spec, seed=0)
            tokens = find_token_model(model, can) if protocol.continues else None
            episode = Episode(problem, protocol, sandbox, identity=identity, tokens=tokens)
            trace = await rollout(episode, model, seeded)
    found.episode = _episode(trace, problem, protocol)
    _check(found.episode, trace, model.spec)


def _capabilities(can: Capabilities) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in _WORDS:
        yes: bool = getattr(can, name)
        found[name] = {"yes": yes, "reason": None if yes else can.reasons.get(name, "it was not found")}
    known = can.context_length is not None
    why = None if known else can.reasons.get("context_length", "the server does not say")
    found["context_length"] = {"yes": known, "tokens": can.context_length, "reason": why}
    return found


def _offered(found: Found, can: Capabilities) -> InteractionProtocol:
    """The protocol that is played; all of them go into `found`, refused or not.

    Raises:
        ForetraceError: the server can do none.
    """
    from foretrace.core.plugins import names, resolve
    from foretrace.episodes.requirements import find_missing_capability

    found.protocols = {}
    served: dict[str, InteractionProtocol] = {}
    for name in sorted(names("protocol"), key=lambda n: (_BEST.index(n) if n in _BEST else len(_BEST), n)):
        protocol: InteractionProtocol = resolve("protocol", name)()
        missing = find_missing_capability(protocol, can)
        why = None if missing is None else f"needs {missing.name}: {missing.reason}"
        found.protocols[name] = {"offered": missing is None, "reason": why}
        if missing is None:
            served[name] = protocol
    if not served:
        raise ForetraceError(f"{found.model} can do no protocol: take another server (docs/models.md)")
    return next(iter(served.values()))


def _isolation(isolation: Isolation) -> dict[str, Any]:
    return {
        "name": isolation.sandbox,
        "level": isolation.level,
        "missing": list(isolation.missing),
        "refused": isolation.refused,
    }


def _episode(trace: Trace, problem: Problem, protocol: InteractionProtocol) -> dict[str, Any]:
    outcome = trace.outcome
    metrics, tests = outcome.metrics, outcome.tests
    spoken = [message.sampled for message in trace.messages if message.author == "model"]
    exact = {"none" if sampled is None else sampled.exact for sampled in spoken}
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
        "prompt_tokens": _whole(metrics.get("prompt_tokens")),
        "completion_tokens": _whole(written),
        "tokens_per_s": round(written / seconds, 1) if written is not None and seconds > 0 else None,
        "model_s": seconds,
        "sandbox_s": metrics.get("tool_s", 0.0),
        # The weakest of all spans: a row is as exact as all of its parts.
        "logprobs": next((kind for kind in ("none", "text", "token") if kind in exact), "none"),
        "cut_off": sum(sampled is not None and sampled.finish_reason == "length" for sampled in spoken),
    }


def _whole(count: float | None) -> int | None:
    return None if count is None or not math.isfinite(count) else int(count)


def _check(episode: dict[str, Any], trace: Trace, spec: str) -> None:
    """Refuse to call an episode well in which nothing happened: an answer that is wrong is the model's own affair.

    Raises:
        ForetraceError: says what happened, and what to do.
    """
    error = trace.outcome.error
    if error is not None:
        raise ForetraceError(f"the episode ended in an error, {error.kind}: {error.message}")
    if not episode["runs"]:
        last = next((m.content for m in reversed(trace.messages) if m.author == "model"), "")
        said = one_line(last)[-_LAST_WORDS:]
        raise ForetraceError(
            f"{spec} wrote no code that could be run in {episode['turns']} turns of {episode['protocol']} "
            f"(it ended with {said!r}): take a model that follows instructions, or give it room with --max-tokens"
        )


def _show(say: Output, found: Found, sampling: Sampling) -> None:
    notes: list[tuple[str, Cell]] = list(found.notes.items())
    say.facts([("model", found.model), ("endpoint", found.endpoint or "in this process"), *notes])
    if found.capabilities is not None:
        say.line()
        say.table(("the server can do", "", "why not"), [_row(n, c) for n, c in found.capabilities.items()])
    if found.protocols is not None:
        say.line()
        say.table(
            ("protocol", "offered", "why not"), [(n, p["offered"], p["reason"]) for n, p in found.protocols.items()]
        )
    if found.episode is not None and found.sandbox is not None:
        say.line()
        say.facts(_lines(found.episode, found.sandbox, sampling))


def _row(name: str, can: dict[str, Any]) -> tuple[Cell, ...]:
    tokens = can.get("tokens")
    yes: Cell = can["yes"] if tokens is None else f"{tokens:,} tokens"
    return (_WORDS.get(name, name.replace("_", " ")), yes, can["reason"])


def _lines(episode: dict[str, Any], sandbox: dict[str, Any], sampling: Sampling) -> list[tuple[str, Cell]]:
    tests, speed = episode["tests"], episode["tokens_per_s"]
    read, written = episode["prompt_tokens"], episode["completion_tokens"]
    counted = [f"{count:,} {way}" for count, way in ((read, "in"), (written, "out")) if count is not None]
    cut = episode["cut_off"]
    replies = "reply" if cut == 1 else "replies"
    at_the_limit = f"{cut:,} {replies} at {sampling.max_tokens:,} tokens: give more with --max-tokens"
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
        ("logprobs", _EXACT[episode["logprobs"]]),
        *([("cut off", at_the_limit)] if cut else []),
    ]
