"""The episodes of a training step: all at one time, a round after the other, as the lists that a trainer takes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from typing import Any

from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError
from foretrace.core.problem import Problem
from foretrace.envs.rollouts import Lane, Rolled, Rollouts
from foretrace.envs.tokenizer import LocalTokens
from foretrace.envs.trace_sink import Kept
from foretrace.envs.train_sequence import MASKED
from foretrace.envs.trl.background_loop import Room
from foretrace.envs.trl.generation import TrainedModel
from foretrace.envs.trl.prompt_rows import asked_in
from foretrace.envs.trl.rounds import Asked, Generate, Member, Rounds, answers_of
from foretrace.episodes.episode import make_view
from foretrace.episodes.identity import Identity, make_task
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox


class RolloutFunc:
    """A rollout function. Made by `envs.trl.rollout_func`, which says what the arguments are."""

    def __init__(
        self,
        protocol: InteractionProtocol,
        generate: Generate | None,
        problems: Sequence[Problem],
        sandbox: Sandbox,
        *,
        settings: EpisodeSettings,
        at_once: int,
        max_tokens: int | None,
        traces_dir: str | None,
        tries: int,
        seed: int,
    ) -> None:
        self._protocol, self._generate, self._sandbox, self._settings = protocol, generate, sandbox, settings
        self._problems = {make_task(problem).id: problem for problem in problems}
        self._at_once, self._max_tokens, self._tries, self._seed = at_once, max_tokens, tries, seed
        self._room = Room()
        self._kept = Kept(traces_dir, "trl")
        self._room.at_end(self._kept.close)
        self._room.at_end(sandbox.close)
        self._trainer: Any = None
        self._parts: tuple[LocalTokens, Generate, Rollouts] | None = None
        """Made for that trainer: its tokenizer, and its model where no other one samples."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """One episode a prompt.

        Raises:
            UsageError: prompts of another dataset or protocol, or a model that cannot be served so.
            ModelError: a server refused for good, or no episode came to its end.
            SandboxError: no sandbox serves.
        """
        asked = [asked_in(prompt, self._problems, self._protocol) for prompt in prompts]
        if self._parts is None or self._trainer is not trainer:
            self._trainer, self._parts = trainer, self._made(trainer)
        tokens, generate, rollouts = self._parts
        rolled: dict[int, Rolled] = {}
        for _ in range(self._tries):
            todo = [number for number in range(len(asked)) if number not in rolled or rolled[number].sequence is None]
            for begin in range(0, len(todo), self._at_once):
                part = todo[begin : begin + self._at_once]
                rounds = Rounds(_name(trainer), tokens, len(part))
                members = [(asked[number], Member(rounds, number)) for number in part]
                lanes = [(problem, self._lane(member, tokens, trainer, problem)) for problem, member in members]
                done = self._served(rounds, generate, _all(rollouts, rounds, lanes, self._sampling(trainer)))
                rolled |= dict(zip(part, done, strict=True))
        return self._lists([rolled[number] for number in range(len(asked))], asked, tokens)

    def _made(self, trainer: Any) -> tuple[LocalTokens, Generate, Rollouts]:
        tokens = LocalTokens(_templated(trainer), _name(trainer))
        rollouts = Rollouts(
            self._protocol,
            self._sandbox,
            tokens,
            self._kept,
            settings=self._settings,
            seed=self._seed,
            flag=True,
            identity=Identity(run="trl", tool_versions={"foretrace": version("foretrace")}),
        )
        generate = self._generate or TrainedModel(trainer, tokens)
        self._room.submit(self._started()).result()
        return tokens, generate, rollouts

    async def _started(self) -> None:
        await self._sandbox.start()

    def _sampling(self, trainer: Any) -> Sampling:
        """The trainer's: its own logprobs are computed for that temperature."""
        args = trainer.args
        most = self._max_tokens or args.max_completion_length
        return Sampling(temperature=args.temperature, top_p=args.top_p, top_k=args.top_k or None, max_tokens=most)

    def _lane(self, member: Member, tokens: LocalTokens, trainer: Any, problem: Problem) -> Lane:
        most = len(self._opening(tokens, problem)) + trainer.args.max_completion_length
        return Lane(member, tokens, contextlib.nullcontext(), ids=True, most=most)

    def _opening(self, tokens: LocalTokens, problem: Problem) -> list[int]:
        return tokens.rendered(self._protocol.opening(make_view(problem)))

    def _served(self, rounds: Rounds, generate: Generate, work: Any) -> list[Rolled]:
        """Run the episodes in their thread, and generate for them in this one, which is the trainer's."""
        running: Future[list[Rolled]] = self._room.submit(work)
        running.add_done_callback(lambda _: rounds.asked.put(None))
        try:
            for asked in iter(rounds.asked.get, None):
                said = answers_of(asked, generate)
                self._room.loop.call_soon_threadsafe(_answer, asked, said)
        except BaseException:
            running.cancel()
            raise
        return running.result()

    def _lists(self, rolled: Sequence[Rolled], asked: Sequence[Problem], tokens: LocalTokens) -> dict[str, list[Any]]:
        """What the trainer takes.

        Raises:
            ModelError: no episode came to its end: there is nothing to train on.
        """
        if all(one.sequence is None for one in rolled):
            reasons = ", ".join(f"{number} x {why}" for why, number in Counter(one.why for one in rolled).items())
            error = rolled[-1].trace.outcome.error
            last = f"; the last error: {error.message}" if error else ""
            raise ModelError(f"none of {len(rolled)} episodes came to its end ({reasons}){last}")
        lists: dict[str, list[Any]] = {
            name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "metrics", "trace")
        }
        for one, problem in zip(rolled, asked, strict=True):
            row = _row(one, self._opening(tokens, problem), tokens.end)
            outcome = one.trace.outcome
            reward = None if one.sequence is None else outcome.reward
            row |= {"reward": reward, "metrics": outcome.metrics, "trace": one.trace}
            for name, value in row.items():
                lists[name].append(value)
        return lists

    def close(self) -> None:
        """End the sandbox and seal the traces; both end with the process, too. May be called twice."""
        self._room.close()


async def _all(
    rollouts: Rollouts, rounds: Rounds, lanes: Sequence[tuple[Problem, Lane]], sampling: Sampling
) -> list[Rolled]:
    """All episodes, to their ends.

    Raises:
        ForetraceError: what would fail again; the other episodes have ended by then.
    """

    async def one(problem: Problem, lane: Lane) -> Rolled:
        try:
            return await rollouts.run(problem, lane, sampling)
        finally:
            rounds.left()

    done = await asyncio.gather(*(one(*each) for each in lanes), return_exceptions=True)
    found: list[Rolled] = []
    for each in done:
        if isinstance(each, BaseException):
            raise each
        found.append(each)
    return found


def _answer(asked: Sequence[Asked], said: Sequence[Any]) -> None:
    for one, answer in zip(asked, said, strict=True):
        if not one.answer.done():
            one.answer.set_result(answer)


def _row(rolled: Rolled, opening: list[int], end: int) -> dict[str, Any]:
    """The lists of one episode. One that failed is an end that bears no loss.

    An end that was put there and not sampled stays, so that the trainer sees that the turn ended; behind a reply that
    the token limit cut it is left out, so that the trainer sees that, too.
    """
    sequence = rolled.sequence
    if sequence is None:
        return {"prompt_ids": opening, "completion_ids": [end], "logprobs": [0.0], "env_mask": [0]}
    begin = len(opening)
    ids, masks = sequence.tokens[begin:], [int(mask != MASKED) for mask in sequence.masks[begin:]]
    if sequence.cut and not masks[-1] and len(ids) > 1:
        ids, masks = ids[:-1], masks[:-1]
    own = zip(masks, sequence.logprobs[begin:], strict=False)
    logprobs = [logprob if mask else 0.0 for mask, logprob in own]
    return {"prompt_ids": opening, "completion_ids": ids, "logprobs": logprobs, "env_mask": masks}


def _name(trainer: Any) -> str:
    config: Any = getattr(trainer.model, "config", None)
    return str(getattr(config, "_name_or_path", "") or "policy").rstrip("/").rpartition("/")[2]


def _templated(trainer: Any) -> Any:
    """The trainer's tokenizer, with the template's options of its configuration."""
    options = getattr(trainer, "chat_template_kwargs", None) or {}
    return _Templated(trainer.processing_class, options) if options else trainer.processing_class


class _Templated:
    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        self._tokenizer, self._options = tokenizer, dict(options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def apply_chat_template(self, messages: Any, **given: Any) -> Any:
        return self._tokenizer.apply_chat_template(messages, **self._options, **given)
