"""A rollout function for `GRPOTrainer(rollout_func=...)`, which turns the episodes of a training step into lists of
token ids, and its reward function."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError, Setting, UsageError
from foretrace.core.problem import Problem
from foretrace.core.trace import Trace
from foretrace.envs.metrics import RolloutMetrics
from foretrace.envs.rollout_model import RolloutModel, check_model
from foretrace.envs.rollouts import Rollout, RolloutRunner, RolloutSettings, describe_failures
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.train_sequence import MASKED
from foretrace.envs.trl.background_loop import BackgroundLoop
from foretrace.envs.trl.generation import BatchedModel, GenerateFunc, RequestBatcher, TrainedModel
from foretrace.envs.trl.prompts import TASK_KEY, find_problem, resolve_problems, resolve_protocol
from foretrace.episodes.identity import Identity, make_task
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.base import ChatModel
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox, SandboxSettings


class RolloutFunc:
    """A rollout function for `GRPOTrainer(rollout_func=...)`: whole episodes of one or more turns, with exact tokens.
    Its reward function is `reward_from_rollout`.

    It returns `prompt_ids`, `completion_ids`, `logprobs`, `env_mask` (1: sampled by the model; 0: the environment's, or
    without a sure logprob), and for reward functions `reward` (`None` if the episode failed), `metrics` (by name) and
    `trace`. Each is a list with one entry per prompt.

    Args:
        generate: the source of samples: a function, or a model server, whose weights are not updated here. `None` is
            the trainer's own model, run by transformers.
        problems: all problems that the prompts ask for, as given to `prompt_dataset`.
        path, limit: as in `prompt_dataset`.
        sandbox: names in order of preference (`docker,local`), or a sandbox that is not started. It starts with the
            first episodes and ends with the process.
        sandbox_settings: for a named sandbox; its `max_sessions` is `max_concurrency`.
        max_concurrency: concurrent episodes. With a sandbox of your own, no more than its sessions.
        settings: how an episode is run.
        max_tokens: tokens of one completion; `None` means all that are left. An episode after its prompt has at most
            the `max_completion_length` of the trainer's configuration.
        traces_dir: a traces folder to which the episodes are added; failed ones have an `outcome.error`.
        tries: most tries of an episode whose sandbox or server fails.
        seed: determines an attempt's seed for servers, together with the problem and the sample's number.

    Raises:
        UsageError: an unsupported setting.
        ProblemError: as in `prompt_dataset`.
        StoreError: `traces_dir` cannot be written.
    """

    def __init__(
        self,
        protocol: str | InteractionProtocol,
        generate: GenerateFunc | ChatModel | None = None,
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
    ) -> None:
        for name, value in (("tries", tries), ("max_tokens", max_tokens)):
            if value is not None and value < 1:
                raise UsageError(Setting(name, value), ": choose 1 or more")
        self._settings = RolloutSettings(
            protocol=resolve_protocol(protocol),
            episode=settings or EpisodeSettings(),
            identity=Identity(run="trl", tool_versions={"foretrace": version("foretrace")}),
            seed=seed,
            keep_inexact=True,
            tries=tries,
        )
        self._problems = {make_task(problem).id: problem for problem in resolve_problems(problems, path, limit)}
        self._loop = BackgroundLoop(sandbox, sandbox_settings, max_concurrency)
        self._sink = TraceSink(traces_dir, "trl")
        self._loop.close_at_end(self._sink.close)
        self._generate, self._server = (generate, None) if callable(generate) else (None, generate)
        self._max_tokens = max_tokens
        self._trainer: Any = None

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Run one episode per prompt.

        Raises:
            UsageError: prompts of another dataset or protocol, or an unsuitable model.
            ModelError: a server refused for good, or no episode came to its end.
            SandboxError: the sandbox cannot start.
        """
        problems = [find_problem(prompt, self._problems, self._settings.protocol) for prompt in prompts]
        if self._trainer is not trainer:
            options = getattr(trainer, "chat_template_kwargs", None) or {}
            self._tokenizer = LocalTokenizer(trainer.processing_class, _name_of(trainer), **options)
            self._runner = RolloutRunner(self._settings, self._loop.sandbox, self._tokenizer, self._sink)
            self._gives_ids = self._loop.submit(self._open()).result()
            self._trainer = trainer
        rollouts: list[Rollout] = []
        for begin in range(0, len(problems), self._loop.max_concurrency):
            rollouts += self._run_together(problems[begin : begin + self._loop.max_concurrency], trainer)
        return self._make_lists(rollouts, problems)

    async def _open(self) -> bool:
        """Start the sandbox, and return whether the samples have token ids: those of a server may not."""
        await self._loop.sandbox.start()
        if self._server is None:
            return True
        self._loop.close_at_end(self._server.close)
        protocol = self._settings.protocol
        return await check_model(self._server, self._tokenizer, protocol, need_logprobs=True, compare_tokenizer=True)

    def _run_together(self, problems: Sequence[Problem], trainer: Any) -> list[Rollout]:
        """Run the episodes in their thread, and generate for them in this one, the trainer's."""
        batcher, sampling = RequestBatcher(len(problems)), self._read_sampling(trainer)

        async def run(number: int, problem: Problem) -> Rollout:
            inner = self._server or BatchedModel(_name_of(trainer), self._tokenizer, batcher, number)
            longest = len(self._runner.render_prompt(problem)) + trainer.args.max_completion_length
            model = RolloutModel(inner, self._tokenizer, gives_ids=self._gives_ids, max_sequence_tokens=longest)
            try:
                return await self._runner.run(problem, [model], sampling)
            finally:
                batcher.leave()

        async def run_all() -> list[Rollout]:
            results = await asyncio.gather(*(run(*each) for each in enumerate(problems)), return_exceptions=True)
            if failed := next((result for result in results if isinstance(result, BaseException)), None):
                raise failed
            return [result for result in results if isinstance(result, Rollout)]

        generate = self._generate or TrainedModel(trainer, self._tokenizer)
        running = self._loop.submit(run_all())
        running.add_done_callback(lambda _: batcher.batches.put(None))
        try:
            batcher.generate_all(generate, self._loop.loop)
        except BaseException:
            running.cancel()
            raise
        return running.result()

    def _read_sampling(self, trainer: Any) -> Sampling:
        """The trainer's sampling, since its own logprobs are computed for that temperature."""
        args = trainer.args
        if self._server is not None and (args.temperature != 1.0 or args.top_p != 1.0 or args.top_k):
            raise UsageError(
                "a server's logprobs are those of temperature 1 without top_p and top_k: train with these "
                "(GRPOConfig's defaults)"
            )
        max_tokens = self._max_tokens or args.max_completion_length
        return Sampling(temperature=args.temperature, top_p=args.top_p, top_k=args.top_k or None, max_tokens=max_tokens)

    def _make_lists(self, rollouts: Sequence[Rollout], problems: Sequence[Problem]) -> dict[str, list[Any]]:
        """The lists for the trainer; a ModelError if no episode was completed, so that there is nothing to train on."""
        if all(one.sequence is None for one in rollouts):
            raise ModelError(f"none of {len(rollouts)} episodes came to its end: {describe_failures(rollouts)}")
        rows = [
            _make_row(one, self._runner.render_prompt(problem), self._tokenizer.end_id)
            for one, problem in zip(rollouts, problems, strict=True)
        ]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def close(self) -> None:
        """Close the sandbox and seal the traces; the end of the process does so too. May be called twice."""
        self._loop.close()


rollout_func = RolloutFunc
"""The name of the parameter in TRL."""


def reward_from_rollout(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    trace: Sequence[Trace] | None = None,
    log_metric: Any = None,
    log_extra: Any = None,
    **columns: Any,
) -> list[float | None]:
    """The rewards of the episodes that `rollout_func` ran; `None` for failed ones.

    Metrics are logged by name (docs/rl.md), and `task` and `tests` as columns of TRL's table of completions.

    Raises:
        UsageError: the trainer has no such rollout function.
    """
    if trace is None:
        raise UsageError("reward_from_rollout reads what rollout_func returned: give the trainer both")
    if log_metric is not None:
        metrics = RolloutMetrics()
        for one in trace:
            metrics.add(one)
        for name, value in metrics.compute_means("").items():
            log_metric(name, value)
    if log_extra is not None:
        log_extra(TASK_KEY, [one.task.id for one in trace])
        counts = [one.outcome.tests for one in trace]
        log_extra("tests", [f"{tests.passed}/{tests.total}" if tests else "" for tests in counts])
    return [one.outcome.reward for one in trace]


def _make_row(rollout: Rollout, prompt: list[int], end_id: int) -> dict[str, Any]:
    """The lists of one episode. A failed one consists of an end token without loss.

    An end token that was added rather than sampled is kept, so that the trainer sees that the turn ended. It is left
    out after a reply that the token limit cut off, so that the trainer sees that too.
    """
    sequence, outcome = rollout.sequence, rollout.trace.outcome
    reads = {"metrics": outcome.metrics, "trace": rollout.trace, "prompt_ids": prompt}
    if sequence is None:
        return reads | {"reward": None, "completion_ids": [end_id], "logprobs": [0.0], "env_mask": [0]}
    begin = len(prompt)
    ids, masks = sequence.tokens[begin:], [int(mask != MASKED) for mask in sequence.masks[begin:]]
    if sequence.cut and not masks[-1] and len(ids) > 1:
        ids, masks = ids[:-1], masks[:-1]
    own = zip(masks, sequence.logprobs[begin:], strict=False)
    logprobs = [logprob if mask else 0.0 for mask, logprob in own]
    return reads | {"reward": outcome.reward, "completion_ids": ids, "logprobs": logprobs, "env_mask": masks}


def _name_of(trainer: Any) -> str:
    config: Any = getattr(trainer.model, "config", None)
    return str(getattr(config, "_name_or_path", "") or "policy").rstrip("/").rpartition("/")[2]
