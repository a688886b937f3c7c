"""Reward functions for `GRPOTrainer`: for completions of one turn, and for the episodes of a rollout function."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.core.completion import Completion, Request
from foretrace.core.errors import Setting, UsageError
from foretrace.core.problem import Problem
from foretrace.core.trace import Trace
from foretrace.envs.metrics import RolloutMetrics
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.envs.trl.background_loop import BackgroundLoop
from foretrace.envs.trl.prompts import TASK_KEY, check_prompt, read_problem, resolve_protocol
from foretrace.episodes.episode import Episode
from foretrace.episodes.rollout import rollout
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox, SandboxSettings


class RewardFunc:
    """A reward function for `GRPOTrainer(reward_funcs=...)`: each completion is one reply of the protocol, which is run
    and judged in a sandbox (docs/protocols.md has the formula). It is async: by hand, `asyncio.run(function(...))`.

    Metrics are logged by name: `accuracy`, `pass_rate`, `mean_reward`, `cut_rate`, `think_count`, `verify_rate`,
    `ideal_rate`, `recovery`, `rollouts`, `problems`, and `failed/KIND`.

    Args:
        protocol: the one of the prompts; all but those that go on with a reply that was begun (`inline`).
        sandbox: names in order of preference (`docker,local`), or one that is not started; it starts with the first
            batch and ends with the process.
        sandbox_settings: how a named sandbox is set up; its `max_sessions` follows from `max_concurrency`.
        max_concurrency: episodes at one time; with a sandbox of your own no more than the sessions it was made for.
        settings: how an episode is run; `max_turns` is 1.
        tokenizer: the model's. With it, a completion that does not end with the end of a turn, or with a stop sequence
            of the protocol, is read as one that the token limit cut.

    Raises:
        UsageError: what cannot be served.
    """

    def __init__(
        self,
        protocol: str | InteractionProtocol,
        *,
        sandbox: str | Sandbox = "local",
        sandbox_settings: SandboxSettings | None = None,
        max_concurrency: int = 256,
        settings: EpisodeSettings | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.__name__ = "episode_reward"
        self._protocol, settings = resolve_protocol(protocol), settings or EpisodeSettings()
        if self._protocol.continues:
            raise UsageError(
                f"the protocol {self._protocol.name} goes on with a reply that was begun: take rollout_func"
            )
        if settings.max_turns not in (None, 1):
            raise UsageError(
                Setting("max_turns", settings.max_turns), ": a reward function sees one turn; take rollout_func"
            )
        self._settings = msgspec.structs.replace(settings, max_turns=1)
        self._end_ids: frozenset[int] | None = None if tokenizer is None else LocalTokenizer(tokenizer).end_ids
        self._loop = BackgroundLoop(sandbox, sandbox_settings, max_concurrency)
        self._slots: asyncio.Semaphore | None = None

    async def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        problem: Sequence[str | None] | None = None,
        log_metric: Any = None,
        log_extra: Any = None,
        **columns: Any,
    ) -> list[float | None]:
        """The reward of each completion; `None` where the row has no problem, or the sandbox failed at it.

        Raises:
            SandboxError: no sandbox serves.
            UsageError: the dataset was not made by `prompt_dataset`, or for another protocol.
        """
        if problem is None:
            raise UsageError("the dataset has no column problem; make it by prompt_dataset")
        problems = [None if text is None else read_problem(text) for text in problem]
        for prompt, own in zip(prompts, problems, strict=True):
            if own is not None:
                check_prompt(prompt, own, self._protocol)
        replies = [
            self._read_completion(completion, ids)
            for completion, ids in zip(completions, completion_ids or [()] * len(completions), strict=True)
        ]
        traces = await asyncio.wrap_future(self._loop.submit(self._judge_all(problems, replies)))
        _log(traces, log_metric, log_extra)
        return [None if trace is None else trace.outcome.reward for trace in traces]

    def _read_completion(self, completion: Any, ids: Sequence[int]) -> Completion:
        """A completion as TRL gives it: a text, or messages, of which TRL may have split off the thinking."""
        message: Any = {"content": completion} if isinstance(completion, str) else [{}, *completion][-1]
        content: Any = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        cut = self._end_ids is not None and bool(ids) and ids[-1] not in self._end_ids
        cut = cut and not any(text.endswith(stop) for stop in self._protocol.stop)
        return Completion(
            text=text, reasoning=message.get("reasoning_content") or None, finish="length" if cut else "stop"
        )

    async def _judge_all(self, problems: Sequence[Problem | None], replies: Sequence[Completion]) -> list[Trace | None]:
        if self._slots is None:
            await self._loop.sandbox.start()
            self._slots = asyncio.Semaphore(self._loop.max_concurrency)
        slots = self._slots

        async def judge(problem: Problem | None, reply: Completion) -> Trace | None:
            async def replay(request: Request) -> Completion:
                return reply

            if problem is None:
                return None
            async with slots:
                return await rollout(
                    Episode(problem, self._protocol, self._loop.sandbox, settings=self._settings), replay
                )

        return await asyncio.gather(*(judge(*pair) for pair in zip(problems, replies, strict=True)))

    def close(self) -> None:
        """End the sandbox; it ends with the process, too. May be called twice."""
        self._loop.close()


reward_fn = RewardFunc
"""As TRL calls what it is given."""


def reward_from_rollout(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    trace: Sequence[Trace | None] | None = None,
    log_metric: Any = None,
    log_extra: Any = None,
    **columns: Any,
) -> list[float | None]:
    """The rewards of the episodes that `rollout_func` ran, and the metrics of `reward_fn`.

    Raises:
        UsageError: the trainer has no such rollout function.
    """
    if trace is None:
        raise UsageError("reward_from_rollout reads what rollout_func returned: give the trainer both")
    _log(trace, log_metric, log_extra)
    return [None if one is None else one.outcome.reward for one in trace]


def _log(traces: Sequence[Trace | None], log_metric: Any, log_extra: Any) -> None:
    """Log the episodes of a batch: metrics by name, and columns of TRL's table of completions."""
    metrics = RolloutMetrics()
    for trace in traces:
        if trace is not None:
            metrics.add(trace)
    if log_metric is not None:
        for name, value in metrics.compute_means("").items():
            log_metric(name, value)
    if log_extra is not None:
        log_extra(TASK_KEY, [trace and trace.task.id for trace in traces])
        counts = [trace and trace.outcome.tests for trace in traces]
        log_extra("tests", [f"{tests.passed}/{tests.total}" if tests else "" for tests in counts])
