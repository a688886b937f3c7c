"""One episode fed from a model: whatever fails around it ends in a trace that says so, and never in a score."""

from __future__ import annotations

import asyncio

import pytest

from episodes.generating import Ground, plus, right, saying, turn_of
from foretrace.api.event_loop import closing_all, run_in_event_loop
from foretrace.core.completion import Request, Sampling
from foretrace.core.errors import ForetraceError, ModelError, SandboxError, UsageError
from foretrace.core.trace import Trace
from foretrace.episodes.episode import Episode
from foretrace.episodes.rollout import EpisodeLimitError, rollout, run_episode
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.tools import Tools


def roll(ground: Ground, say: object, protocol: Tools | None = None, **settings: object) -> Trace:
    episode = Episode(plus(3), protocol or Tools(), ground.sandbox, settings=EpisodeSettings(**settings))  # type: ignore[arg-type]
    return ground.runner.run(rollout(episode, saying(say), Sampling(seed=4)))  # type: ignore[arg-type]


def raising(error: Exception, turn: int = 1) -> object:
    """Says what is right up to this turn, then raises."""

    def say(request: Request) -> str:
        if turn_of(request) == turn:
            raise error
        return right(request)

    return say


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelError("no stream", kind="stream", retryable=True), "stream"),
        (ModelError("the problem itself does not fit", kind="overflow"), "overflow"),
        (SandboxError("no worker"), "sandbox"),
        (ForetraceError("no text"), "protocol"),
        (ZeroDivisionError("a plugin's own"), "unexpected"),
    ],
)
def test_a_failure_is_recorded_and_is_no_score(ground: Ground, error: Exception, kind: str) -> None:
    outcome = roll(ground, raising(error, turn=0 if kind == "overflow" else 1)).outcome
    assert outcome.error is not None and (outcome.status, outcome.error.kind) == ("error", kind)
    assert (outcome.success, outcome.reward, outcome.tests) == (None, None, None)
    assert str(error) in outcome.error.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelError("too long", kind="overflow"), "context"),
        (EpisodeLimitError("max_total_tokens"), "max_total_tokens"),
    ],
)
def test_a_limit_from_outside_ends_an_episode_that_is_judged(ground: Ground, error: Exception, reason: str) -> None:
    outcome = roll(ground, raising(error)).outcome
    assert (outcome.status, outcome.exit_reason, outcome.error) == ("limit", reason, None)
    assert (outcome.success, outcome.reward) == (True, 1.0)


@pytest.mark.parametrize("error", [*(ModelError("no", kind=k) for k in ("bad_key", "quota")), UsageError("no")])
def test_what_no_other_attempt_would_fare_better_with_is_raised(ground: Ground, error: Exception) -> None:
    with pytest.raises(type(error), match="no"):
        roll(ground, raising(error))


def test_an_episode_that_is_run_alone_raises_what_failed_and_records_it(ground: Ground) -> None:
    async def live() -> Trace:
        async with Episode(plus(3), Tools(), ground.sandbox) as episode:
            model = saying(raising(SandboxError("no worker")))  # type: ignore[arg-type]
            with pytest.raises(SandboxError, match="no worker"):
                await run_episode(episode, model.complete, describe=lambda error: f"in other words: {error}")
            return episode.trace()

    error = ground.runner.run(live()).outcome.error
    assert error is not None and (error.kind, error.message) == ("sandbox", "in other words: no worker")


class Part:
    """A model or a sandbox that may fail to close."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.closed = error, False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("failed", [None, LookupError("the run")])
def test_the_sandbox_is_closed_also_where_the_model_fails(failed: Exception | None) -> None:
    model, sandbox = Part(OSError("the model")), Part(OSError("the sandbox"))

    async def work() -> None:
        async with closing_all(model, sandbox):  # type: ignore[arg-type]
            if failed is not None:
                raise failed

    with pytest.raises((OSError, LookupError), match="the run" if failed else "the model"):
        run_in_event_loop(work)
    assert model.closed and sandbox.closed
