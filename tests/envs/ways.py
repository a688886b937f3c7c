"""The same replies through episodes and the environments of three trainers, without the trainers' libraries."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from envs.tokenizer import HubTokenizer, demo_tokenizer
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ModelError
from foretrace.core.problem import Problem
from foretrace.core.trace import Outcome
from foretrace.envs.atropos.groups import make_group
from foretrace.envs.rollout_model import RolloutModel
from foretrace.envs.rollouts import RolloutRunner, RolloutSettings
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.train_sequence import MASKED
from foretrace.envs.trl import EnvironmentFactory, ToolCalls, prompt_dataset, reward_from_rollout, rollout_func
from foretrace.envs.verifiers.attempts import make_report, read_reward, run_attempt
from foretrace.episodes.episode import Episode
from foretrace.episodes.identity import Identity
from foretrace.episodes.rollout import rollout
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.servers.demo import Demo
from foretrace.registry import make_protocol

TOKENIZER = demo_tokenizer()
Replies = Sequence[str | tuple[str, str] | ModelError]
"""What a model says: texts, texts with how they ended, and failures of its server."""
Scripts = list[tuple[Problem, Replies]]
"""Problems, which are told apart by their statements, and the replies to each."""


class Made(NamedTuple):
    """One episode, as a trainer has it."""

    reward: float | None
    outcome: Outcome
    tokens: list[int] | None = None
    """All ids, where the environment gives them."""
    trained: list[int] | None = None


class Said(Demo):
    """A server with the demo model's ids, and replies that were written beforehand."""

    def __init__(self, scripts: Scripts) -> None:
        super().__init__()
        self._scripts = scripts

    async def complete(self, request: Request) -> Completion:
        asked = "\n".join(message.content for message in request.messages)
        if not (replies := next((own for problem, own in self._scripts if problem.statement in asked), ())):
            return await super().complete(request)  # it is asked what it can do
        turn = sum(message.role == "assistant" for message in request.messages)
        reply = replies[min(turn, len(replies) - 1)]
        if isinstance(reply, ModelError):
            raise reply
        text, finish = (reply, "stop") if isinstance(reply, str) else reply
        ids = (*TOKENIZER.encode(text), *([TOKENIZER.end_id] if finish == "stop" else []))
        pieces = tuple(TOKENIZER.decode_pieces(ids))
        return Completion(
            text=text, finish=finish, token_ids=ids, logprobs=(-0.5,) * len(ids), pieces=pieces, exact="token"
        )


class Setup(NamedTuple):
    """What all episodes of a run share; they run at one time."""

    sandbox: Any
    protocol: str = "tools"
    settings: EpisodeSettings = EpisodeSettings()

    def episode(self, problem: Problem) -> Episode:
        return Episode(problem, make_protocol(self.protocol), self.sandbox, settings=self.settings)

    def run(self, make: Callable[[Problem], Any], scripts: Scripts) -> list[Made]:
        async def run_all() -> list[Made]:
            made = await asyncio.gather(*(make(problem) for problem, _ in scripts))
            await self.sandbox.close()
            return made

        return asyncio.run(run_all())

    def runner(self, tries: int = 2) -> RolloutRunner:
        settings = RolloutSettings(
            protocol=make_protocol(self.protocol), episode=self.settings, identity=Identity(), tries=tries
        )
        return RolloutRunner(settings, self.sandbox, TOKENIZER, TraceSink(None, "test"))


def serve(scripts: Scripts) -> RolloutModel:
    return RolloutModel(Said(scripts), TOKENIZER, gives_ids=True, max_sequence_tokens=9999)


def by_episodes(scripts: Scripts, setup: Setup) -> list[Made]:
    async def make(problem: Problem) -> Made:
        outcome = (await rollout(setup.episode(problem), Said(scripts))).outcome
        return Made(outcome.reward, outcome)

    return setup.run(make, scripts)


def by_verifiers(scripts: Scripts, setup: Setup) -> list[Made]:
    async def make(problem: Problem) -> Made:
        reward = None
        async with setup.episode(problem) as episode:
            with contextlib.suppress(Exception):  # the report has the error
                await run_attempt(episode, Said(scripts), Sampling())
                reward = read_reward(make_report(episode))
            return Made(reward, msgspec.convert(make_report(episode)["outcome"], Outcome))

    return setup.run(make, scripts)


def by_atropos(scripts: Scripts, setup: Setup) -> list[Made]:
    runner, model = setup.runner(), serve(scripts)

    async def make(problem: Problem) -> Made:
        one = await runner.run(problem, [model], Sampling())
        if one.why_unusable:
            masks = one.sequence.masks if one.sequence else []
            return Made(None, one.trace.outcome, trained=[mask for mask in masks if mask != MASKED])
        group = make_group([one], {}, messages=False)
        (tokens,), (masks,), (score,) = group["tokens"], group["masks"], group["scores"]
        return Made(score, one.trace.outcome, tokens, [mask for mask in masks if mask != MASKED])

    return setup.run(make, scripts)


def by_trl_rollouts(scripts: Scripts, setup: Setup) -> list[Made]:
    problems = [problem for problem, _ in scripts]
    function = rollout_func(
        setup.protocol, Said(scripts), problems=problems, sandbox=setup.sandbox, settings=setup.settings, tries=2
    )
    args = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=9000)
    trainer = SimpleNamespace(args=args, processing_class=HubTokenizer(), model=None)
    try:
        output = function(prompt_dataset(problems, setup.protocol)["prompt"], trainer)
    finally:
        function.close()
    rewards = reward_from_rollout(problems, problems, **output)
    made: list[Made] = []
    for number, (reward, trace) in enumerate(zip(rewards, output["trace"], strict=True)):
        prompt, ids, mask = (output[name][number] for name in ("prompt_ids", "completion_ids", "env_mask"))
        trained = [one for one, mine in zip(ids, mask, strict=True) if mine]
        made.append(Made(reward, trace.outcome, prompt + ids, trained))
    return made


def by_trl_environments(scripts: Scripts, setup: Setup) -> list[Made]:
    """The same acts as calls of tools."""
    factory = EnvironmentFactory(sandbox=setup.sandbox, settings=setup.settings)

    async def call(environment: Any, replies: Replies) -> float | None:
        for reply in replies:
            assert isinstance(reply, str)
            if found := re.search(r"<code>\n(.*)</code>", reply, re.DOTALL):
                await environment.run_tests(found[1])
            else:
                await environment.submit()
        return await environment.get_reward()

    try:
        made: list[Made] = []
        rows = prompt_dataset([problem for problem, _ in scripts], ToolCalls())
        for (_, replies), row in zip(scripts, rows, strict=True):
            environment = factory()
            environment.reset(**row)
            reward = asyncio.run(call(environment, replies))
            assert environment.trace is not None
            made.append(Made(reward, environment.trace.outcome))
        return made
    finally:
        factory.close()


WAYS: dict[str, Callable[[Scripts, Setup], list[Made]]] = {
    "episodes": by_episodes,
    "verifiers": by_verifiers,
    "atropos": by_atropos,
    "trl rollouts": by_trl_rollouts,
    "trl environments": by_trl_environments,
}
WITH_SERVERS = [way for way in WAYS if way != "trl environments"]
"""Those that ask for completions themselves."""
