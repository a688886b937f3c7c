"""One episode fed from a model: whatever fails around it ends in a trace that says so, and never in a score."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from episodes.generating import Ground, plus, right, saying, turn_of
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, ModelError, SandboxError, UsageError
from foretrace.core.problem import Verdict
from foretrace.core.trace import Trace
from foretrace.episodes.episode import Episode
from foretrace.episodes.rollout import EpisodeLimitError, rollout, run_episode
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.tools import Tools
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with asyncio.Runner() as runner:
        sandbox = LocalSandbox(SandboxSettings(workers=1))
        yield Ground(runner, sandbox)
        runner.run(sandbox.close())


def roll(ground: Ground, say: object, protocol: Tools | None = None, **settings: object) -> Trace:
    episode = Episode(plus(3), protocol or Tools(), ground.sandbox, settings=EpisodeSettings(**settings))  # type: ignore[arg-type]
    return ground.runner.run(rollout(episode, saying(say), Sampling(seed=4)))  # type: ignore[arg-type]


def raising(error: Exception) -> object:
    def say(request: Request) -> str:
        if turn_of(request):
            raise error
        return right(request)

    return say


def test_an_attempt_ends_in_a_trace_with_id_reward_and_tests(ground: Ground) -> None:
    trace = roll(ground, right)
    assert (trace.outcome.status, trace.outcome.success, trace.outcome.reward) == ("done", True, 1.0)
    assert trace.id and trace.outcome.tests is not None and trace.outcome.tests.total == 3


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelError("no stream", kind="stream", retryable=True), "stream"),
        (SandboxError("no worker"), "sandbox"),
        (ForetraceError("no text"), "protocol"),
        (ZeroDivisionError("a plugin's own"), "unexpected"),
    ],
)
def test_a_failure_is_recorded_and_is_no_score(ground: Ground, error: Exception, kind: str) -> None:
    outcome = roll(ground, raising(error)).outcome
    assert outcome.error is not None and (outcome.status, outcome.error.kind) == ("error", kind)
    assert (outcome.success, outcome.reward, outcome.tests) == (None, None, None)
    assert str(error) in outcome.error.message


def test_a_context_that_is_outgrown_is_a_limit_and_judged(ground: Ground) -> None:
    outcome = roll(ground, raising(ModelError("too long", kind="overflow"))).outcome
    assert (outcome.status, outcome.exit_reason, outcome.error) == ("limit", "context", None)
    assert (outcome.success, outcome.reward) == (True, 1.0)


def test_a_problem_that_does_not_fit_the_context_is_an_error(ground: Ground) -> None:
    def say(request: Request) -> str:
        raise ModelError("too long", kind="overflow")

    outcome = roll(ground, say).outcome
    assert outcome.error is not None and (outcome.status, outcome.error.kind) == ("error", "overflow")
    assert (outcome.success, outcome.reward) == (None, None)


def test_a_sandbox_that_fails_at_the_limit_of_the_context_is_an_error(ground: Ground) -> None:
    class Broken(LocalSandbox):
        async def judge(self, *_: object, **__: object) -> Verdict:
            raise SandboxError("no worker")

    async def live() -> Trace:
        async with Broken(SandboxSettings(workers=1)) as sandbox:
            episode = Episode(plus(3), Tools(), sandbox)
            return await rollout(episode, saying(talk_then_overflow), Sampling(seed=4))

    def talk_then_overflow(request: Request) -> str:
        if turn_of(request):
            raise ModelError("too long", kind="overflow")
        return "I would rather talk about the weather."

    outcome = ground.runner.run(live()).outcome
    assert outcome.error is not None and outcome.error.kind == "sandbox"


def test_any_async_function_answers_the_requests(ground: Ground) -> None:
    logprobs: list[bool] = []

    async def complete(request: Request) -> Completion:
        logprobs.append(request.logprobs)
        return Completion(text=right(request))

    trace = ground.runner.run(rollout(Episode(plus(3), Tools(), ground.sandbox), complete, logprobs=False))
    assert trace.id and trace.outcome.success and logprobs and not any(logprobs)


def test_a_limit_of_the_run_around_it_ends_an_episode_that_is_judged(ground: Ground) -> None:
    outcome = roll(ground, raising(EpisodeLimitError("max_total_tokens"))).outcome
    assert (outcome.status, outcome.exit_reason, outcome.error) == ("limit", "max_total_tokens", None)
    assert (outcome.success, outcome.reward) == (True, 1.0)


def test_an_episode_that_is_run_alone_raises_what_failed_and_records_it(ground: Ground) -> None:
    async def live() -> Trace:
        async with Episode(plus(3), Tools(), ground.sandbox) as episode:
            model = saying(raising(SandboxError("no worker")))  # type: ignore[arg-type]
            with pytest.raises(SandboxError, match="no worker"):
                await run_episode(episode, model.complete, describe=lambda error: f"in other words: {error}")
            return episode.make_trace()

    error = ground.runner.run(live()).outcome.error
    assert error is not None and (error.kind, error.message) == ("sandbox", "in other words: no worker")


@pytest.mark.parametrize("kind", ["bad_key", "not_found", "quota"])
def test_what_no_other_attempt_would_fare_better_with_is_raised(ground: Ground, kind: str) -> None:
    with pytest.raises(ModelError, match="for good"):
        roll(ground, raising(ModelError("for good", kind=kind)))


def test_a_setting_that_cannot_be_served_is_raised(ground: Ground) -> None:
    with pytest.raises(UsageError):
        roll(ground, raising(UsageError("no such thing")))


def test_all_requests_of_an_attempt_have_its_seed(ground: Ground) -> None:
    seeds: list[int | None] = []

    def say(request: Request) -> str:
        seeds.append(request.sampling.seed)
        return right(request)

    roll(ground, say)
    assert seeds == [4, 4]


def test_a_model_that_never_writes_code_ends_at_the_turn_limit(ground: Ground) -> None:
    trace = roll(ground, lambda request: "I would rather talk about the weather.", max_turns=3)
    assert (trace.outcome.status, trace.outcome.success, trace.outcome.reward) == ("limit", False, -1.0)
    assert sum(m.role == "assistant" for m in trace.messages) == 3


def test_empty_completions_end_at_the_turn_limit(ground: Ground) -> None:
    trace = roll(ground, lambda request: Completion(text=""), max_turns=2)
    assert (trace.outcome.status, trace.outcome.success) == ("limit", False)


def test_a_reply_of_a_megabyte(ground: Ground) -> None:
    def say(request: Request) -> str:
        return "x " * 500_000 + right(request)

    trace = roll(ground, say)
    assert trace.outcome.success and max(len(m.content) for m in trace.messages) > 1_000_000
