"""A rollout function for `GRPOTrainer(rollout_func=...)`: the episodes of a training step, as lists of token ids."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError, Setting, UsageError
from foretrace.core.problem import Problem
from foretrace.envs.rollout_model import RolloutModel
from foretrace.envs.rollouts import Rollout, RolloutRunner, RolloutSettings
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.train_sequence import MASKED
from foretrace.envs.trl.background_loop import BackgroundLoop
from foretrace.envs.trl.generation import GenerateFunc, TrainedModel
from foretrace.envs.trl.prompts import find_problem, resolve_problems, resolve_protocol
from foretrace.envs.trl.request_batches import BatchedModel, RequestBatcher, answer_batch, generate_batch
from foretrace.envs.trl.sandbox import resolve_sandbox
from foretrace.episodes.episode import make_view
from foretrace.episodes.identity import Identity, make_task
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox, SandboxSettings


def rollout_func(
    protocol: str | InteractionProtocol,
    generate: GenerateFunc | None = None,
    *,
    problems: str | Iterable[Problem],
    path: str | None = None,
    limit: int | None = None,
    sandbox: str | Sandbox = "local",
    sandbox_settings: SandboxSettings | None = None,
    max_concurrency: int = 256,
    settings: EpisodeSettings | None = None,
    max_tokens: int | None = None,
    traces_dir: str | None = None,
    tries: int = 3,
    seed: int = 0,
) -> RolloutFunc:
    """A rollout function for `GRPOTrainer(rollout_func=...)`: whole episodes, of many turns or `inline`, token-exact.
    Its reward function is `reward_from_rollout`.

    It returns `prompt_ids`, `completion_ids`, `logprobs`, `env_mask` (1: sampled by the model; 0: the environment's, or
    without a sure logprob), and for reward functions `reward` (`None` where the episode failed), `metrics` (by name)
    and `trace`, each a list with one entry a prompt.

    Args:
        generate: what samples; `None` is the trainer's own model, by transformers.
        problems: all that the prompts ask for: what `prompt_dataset` was given.
        path, limit: as of `prompt_dataset`.
        sandbox, sandbox_settings, max_concurrency: as of `reward_fn`.
        settings: how an episode is run.
        max_tokens: of one completion; `None` is what is left. All of an episode behind its prompt has
            `max_completion_length` of the trainer's configuration.
        traces_dir: a traces folder that the episodes are added to; those that failed have an `outcome.error`.
        tries: how often an episode is begun whose sandbox or server fails.
        seed: with the problem and the sample's number it gives an attempt's seed, for servers.

    Raises:
        UsageError: what cannot be served.
        ProblemError: as of `prompt_dataset`.
        StoreError: `traces_dir` cannot be written.
    """
    for name, value in (("tries", tries), ("max_tokens", max_tokens)):
        if value is not None and value < 1:
            raise UsageError(Setting(name, value), ": choose 1 or more")
    rollout_settings = RolloutFuncSettings(
        protocol=resolve_protocol(protocol),
        episode=settings or EpisodeSettings(),
        identity=Identity(run="trl", tool_versions={"foretrace": version("foretrace")}),
        seed=seed,
        keep_inexact=True,
        max_concurrency=max_concurrency,
        max_tokens=max_tokens,
        tries=tries,
    )
    return RolloutFunc(
        rollout_settings,
        resolve_problems(problems, path, limit),
        resolve_sandbox(sandbox, sandbox_settings, max_concurrency),
        TraceSink(traces_dir, "trl"),
        generate,
    )


@dataclass(frozen=True, kw_only=True)
class RolloutFuncSettings(RolloutSettings):
    """How a rollout function makes its rollouts."""

    max_concurrency: int
    """Episodes at one time."""
    max_tokens: int | None
    """Of one completion; `None` is what is left of the trainer's `max_completion_length`."""
    tries: int
    """How often an episode is begun whose sandbox or server fails."""


class RolloutFunc:
    """A rollout function. Made by `rollout_func`.

    Args:
        generate: what samples; `None` is the trainer's own model.
    """

    def __init__(
        self,
        settings: RolloutFuncSettings,
        problems: Sequence[Problem],
        sandbox: Sandbox,
        sink: TraceSink,
        generate: GenerateFunc | None,
    ) -> None:
        self._settings, self._sandbox, self._sink, self._generate = settings, sandbox, sink, generate
        self._problems = {make_task(problem).id: problem for problem in problems}
        self._loop = BackgroundLoop()
        self._loop.close_at_end(sink.close)
        self._loop.close_at_end(sandbox.close)
        self._trainer: Any = None
        self._parts: tuple[LocalTokenizer, GenerateFunc, RolloutRunner] | None = None
        """Made for that trainer: its tokenizer, and its model where no other one samples."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """One episode a prompt.

        Raises:
            UsageError: prompts of another dataset or protocol, or a model that cannot be served so.
            ModelError: a server refused for good, or no episode came to its end.
            SandboxError: no sandbox serves.
        """
        settings = self._settings
        problems = [find_problem(prompt, self._problems, settings.protocol) for prompt in prompts]
        if self._parts is None or self._trainer is not trainer:
            self._trainer, self._parts = trainer, self._prepare(trainer)
        tokenizer = self._parts[0]
        rollouts: dict[int, Rollout] = {}
        for _ in range(settings.tries):
            todo = [n for n in range(len(problems)) if n not in rollouts or rollouts[n].sequence is None]
            for begin in range(0, len(todo), settings.max_concurrency):
                numbers = todo[begin : begin + settings.max_concurrency]
                done = self._run_together(self._parts, [(number, problems[number]) for number in numbers])
                rollouts |= dict(zip(numbers, done, strict=True))
        return self._make_lists([rollouts[number] for number in range(len(problems))], problems, tokenizer)

    def _prepare(self, trainer: Any) -> tuple[LocalTokenizer, GenerateFunc, RolloutRunner]:
        tokenizer = LocalTokenizer(_with_template_options(trainer), _name_of(trainer))
        runner = RolloutRunner(self._settings, self._sandbox, tokenizer, self._sink)
        generate = self._generate or TrainedModel(trainer, tokenizer)
        self._loop.submit(self._start_sandbox()).result()
        return tokenizer, generate, runner

    async def _start_sandbox(self) -> None:
        await self._sandbox.start()

    def _run_together(
        self, parts: tuple[LocalTokenizer, GenerateFunc, RolloutRunner], problems: Sequence[tuple[int, Problem]]
    ) -> list[Rollout]:
        """Run the episodes in their thread, and generate for them in this one, which is the trainer's.

        Args:
            problems: each with its number among the prompts.
        """
        tokenizer, generate, runner = parts
        batcher = RequestBatcher(_name_of(self._trainer), tokenizer, len(problems))
        models = [
            (problem, self._make_model(BatchedModel(batcher, number), tokenizer, problem))
            for number, problem in problems
        ]
        work = _run_all(runner, batcher, models, self._read_sampling())
        running: Future[list[Rollout]] = self._loop.submit(work)
        running.add_done_callback(lambda _: batcher.batches.put(None))
        try:
            for batch in iter(batcher.batches.get, None):
                answers = generate_batch(batch, generate)
                self._loop.loop.call_soon_threadsafe(answer_batch, batch, answers)
        except BaseException:
            running.cancel()
            raise
        return running.result()

    def _read_sampling(self) -> Sampling:
        """The trainer's: its own logprobs are computed for that temperature."""
        args = self._trainer.args
        max_tokens = self._settings.max_tokens or args.max_completion_length
        return Sampling(temperature=args.temperature, top_p=args.top_p, top_k=args.top_k or None, max_tokens=max_tokens)

    def _make_model(self, model: BatchedModel, tokenizer: LocalTokenizer, problem: Problem) -> RolloutModel:
        longest = len(self._render_prompt(tokenizer, problem)) + self._trainer.args.max_completion_length
        return RolloutModel(model, tokenizer, contextlib.nullcontext(), gives_ids=True, max_sequence_tokens=longest)

    def _render_prompt(self, tokenizer: LocalTokenizer, problem: Problem) -> list[int]:
        return tokenizer.apply_template(self._settings.protocol.opening(make_view(problem)))

    def _make_lists(
        self, rollouts: Sequence[Rollout], problems: Sequence[Problem], tokenizer: LocalTokenizer
    ) -> dict[str, list[Any]]:
        """What the trainer takes.

        Raises:
            ModelError: no episode came to its end: there is nothing to train on.
        """
        if all(one.sequence is None for one in rollouts):
            counts = Counter(one.why_unusable for one in rollouts)
            reasons = ", ".join(f"{number} x {why}" for why, number in counts.items())
            error = rollouts[-1].trace.outcome.error
            last = f"; the last error: {error.message}" if error else ""
            raise ModelError(f"none of {len(rollouts)} episodes came to its end ({reasons}){last}")
        lists: dict[str, list[Any]] = {
            name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "metrics", "trace")
        }
        for one, problem in zip(rollouts, problems, strict=True):
            row = _make_row(one, self._render_prompt(tokenizer, problem), tokenizer.end_id)
            outcome = one.trace.outcome
            reward = None if one.sequence is None else outcome.reward
            row |= {"reward": reward, "metrics": outcome.metrics, "trace": one.trace}
            for name, value in row.items():
                lists[name].append(value)
        return lists

    def close(self) -> None:
        """End the sandbox and seal the traces; both end with the process, too. May be called twice."""
        self._loop.close()


async def _run_all(
    runner: RolloutRunner,
    batcher: RequestBatcher,
    models: Sequence[tuple[Problem, RolloutModel]],
    sampling: Sampling,
) -> list[Rollout]:
    """All episodes, to their ends.

    Raises:
        ForetraceError: what would fail again; the other episodes have ended by then.
    """

    async def run(problem: Problem, model: RolloutModel) -> Rollout:
        try:
            return await runner.run(problem, model, sampling)
        finally:
            batcher.leave()

    results = await asyncio.gather(*(run(*each) for each in models), return_exceptions=True)
    rollouts: list[Rollout] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        rollouts.append(result)
    return rollouts


def _make_row(rollout: Rollout, prompt: list[int], end_id: int) -> dict[str, Any]:
    """The lists of one episode. One that failed is an end that bears no loss.

    An end that was put there and not sampled stays, so that the trainer sees that the turn ended; behind a reply that
    the token limit cut it is left out, so that the trainer sees that, too.
    """
    sequence = rollout.sequence
    if sequence is None:
        return {"prompt_ids": prompt, "completion_ids": [end_id], "logprobs": [0.0], "env_mask": [0]}
    begin = len(prompt)
    ids, masks = sequence.tokens[begin:], [int(mask != MASKED) for mask in sequence.masks[begin:]]
    if sequence.cut and not masks[-1] and len(ids) > 1:
        ids, masks = ids[:-1], masks[:-1]
    own = zip(masks, sequence.logprobs[begin:], strict=False)
    logprobs = [logprob if mask else 0.0 for mask, logprob in own]
    return {"prompt_ids": prompt, "completion_ids": ids, "logprobs": logprobs, "env_mask": masks}


def _name_of(trainer: Any) -> str:
    """Of the model that is trained: the last part of its path."""
    config: Any = getattr(trainer.model, "config", None)
    return str(getattr(config, "_name_or_path", "") or "policy").rstrip("/").rpartition("/")[2]


def _with_template_options(trainer: Any) -> Any:
    """The trainer's tokenizer, with the template's options of its configuration."""
    options = getattr(trainer, "chat_template_kwargs", None) or {}
    return _TemplateOptions(trainer.processing_class, options) if options else trainer.processing_class


class _TemplateOptions:
    """A tokenizer whose chat template is always given these options."""

    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        self._tokenizer, self._options = tokenizer, dict(options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def apply_chat_template(self, messages: Any, **arguments: Any) -> Any:
        return self._tokenizer.apply_chat_template(messages, **self._options, **arguments)
