"""foretrace's episodes for TRL's `GRPOTrainer`: a prompt dataset, a reward, and rollouts (see docs/trl.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.completion import Completion
from foretrace.core.errors import SandboxError, UsageError
from foretrace.core.problem import Problem
from foretrace.core.trace import Trace
from foretrace.envs.metrics import Measured
from foretrace.envs.tokenizer import LocalTokens, demo_folder
from foretrace.envs.trl.background_loop import Room
from foretrace.envs.trl.generation import ServedModel, TrainedModel
from foretrace.envs.trl.prompt_rows import TASK, check_prompt, problem_in, problems_from, protocol_from, row_of
from foretrace.envs.trl.rollouts import RolloutFunc
from foretrace.envs.trl.rounds import Generate, Generated
from foretrace.episodes.episode import Episode
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.base import ChatModel
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox, Settings
from foretrace.sandbox.registry import make_sandbox

__all__ = [
    "Generate",
    "Generated",
    "RewardFunc",
    "RolloutFunc",
    "TrainedModel",
    "demo_model",
    "prompt_dataset",
    "reward_fn",
    "reward_from_rollout",
    "rollout_func",
    "server_generate",
]


def prompt_dataset(
    problems: str | Iterable[Problem],
    protocol: str | InteractionProtocol,
    *,
    path: str | None = None,
    limit: int | None = None,
) -> Any:
    """A `datasets.Dataset` with one row a problem: `prompt` (the messages that an episode begins with), `task` (the
    id), and `problem` (JSON, with all tests; for `reward_fn`).

    No hidden test is in a prompt. Each message of a prompt holds the id too, at `task`, for `rollout_func`.

    Args:
        problems: a set by its name (`builtin`, `jsonl:FILE`), or problems.
        path: read the named set from this file or folder.
        limit: only the first ones.

    Raises:
        UsageError: no such set or protocol.
        ProblemError: the set cannot be read, or a problem has no tests.
    """
    from datasets import Dataset

    spoken = protocol_from(protocol)
    return Dataset.from_list([row_of(problem, spoken) for problem in problems_from(problems, path, limit)])


class RewardFunc:
    """An async reward function for completions of one turn. Made by `reward_fn`."""

    def __init__(
        self,
        protocol: InteractionProtocol,
        sandbox: Sandbox,
        settings: EpisodeSettings,
        at_once: int,
        tokenizer: Any = None,
    ) -> None:
        if protocol.continues:
            raise UsageError(f"the protocol {protocol.name} goes on with a reply that was begun: take rollout_func")
        if settings.max_turns not in (None, 1):
            raise UsageError(f"max_turns {settings.max_turns}: a reward function sees one turn; take rollout_func")
        self.__name__ = "episode_reward"
        self._protocol, self._sandbox = protocol, sandbox
        self._settings = msgspec.structs.replace(settings, max_turns=1)
        self._ends: frozenset[int] | None = None if tokenizer is None else _ends_of(tokenizer)
        self._room = Room()
        self._room.at_end(sandbox.close)
        self._at_once = at_once
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
        """The reward of each completion; null where the row has no problem, or the sandbox failed at it.

        Raises:
            SandboxError: no sandbox serves.
            UsageError: the dataset was not made by `prompt_dataset`, or for another protocol.
        """
        if problem is None:
            raise UsageError("the dataset has no column problem; make it by prompt_dataset")
        problems = [None if text is None else problem_in(text) for text in problem]
        for prompt, own in zip(prompts, problems, strict=True):
            if own is not None:
                check_prompt(prompt, own, self._protocol)
        cuts = [self._cut(ids) for ids in completion_ids or [()] * len(completions)]
        work = self._judged([(*one,) for one in zip(problems, completions, cuts, strict=True)])
        traces = await asyncio.wrap_future(self._room.submit(work))
        log(traces, log_metric, log_extra)
        return [None if trace is None else trace.outcome.reward for trace in traces]

    def _cut(self, ids: Sequence[int]) -> bool:
        """Whether the token limit ended a completion; known only where its ends are."""
        return self._ends is not None and bool(ids) and ids[-1] not in self._ends

    async def _judged(self, asked: Sequence[tuple[Problem | None, Any, bool]]) -> list[Trace | None]:
        if self._slots is None:
            await self._sandbox.start()
            self._slots = asyncio.Semaphore(self._at_once)
        slots = self._slots

        async def one(problem: Problem | None, said: Any, cut: bool) -> Trace | None:
            if problem is None:
                return None
            async with slots:
                return await self._episode(problem, _completion(said, cut, self._protocol.stop))

        return await asyncio.gather(*(one(*each) for each in asked))

    async def _episode(self, problem: Problem, completion: Completion) -> Trace:
        async with Episode(problem, self._protocol, self._sandbox, settings=self._settings) as episode:
            try:
                await episode.start()
                await episode.step(completion)
            except SandboxError as error:
                await episode.fail("sandbox", str(error))
            return episode.trace()

    def close(self) -> None:
        """End the sandbox; it ends with the process, too. May be called twice."""
        self._room.close()


def reward_fn(
    protocol: str | InteractionProtocol,
    *,
    sandbox: str | Sandbox = "local",
    box: Settings | None = None,
    settings: EpisodeSettings | None = None,
    tokenizer: Any = None,
) -> RewardFunc:
    """A reward function for `GRPOTrainer(reward_funcs=...)`: each completion is one reply of the protocol, which is run
    and judged in a sandbox (docs/protocols.md has the formula). It is async: by hand, `asyncio.run(function(...))`.

    Metrics are logged by name: `accuracy`, `pass_rate`, `mean_reward`, `cut_rate`, `think_count`, `verify_rate`,
    `ideal_rate`, `recovery`, `rollouts`, `problems`, and `failed/KIND`.

    Args:
        protocol: the one of the prompts; all but those that go on with a reply that was begun (`inline`).
        sandbox: names in order of preference (`docker,local`), or one that is not started; it starts with the first
            batch and ends with the process.
        box: how a named sandbox is set up.
        settings: how an episode is run; `max_turns` is 1.
        tokenizer: the model's. With it, a completion that does not end with the end of a turn, or with a stop sequence
            of the protocol, is read as one that the token limit cut.

    Raises:
        UsageError: what cannot be served.
    """
    box = box or Settings()
    return RewardFunc(
        protocol_from(protocol), _sandbox(sandbox, box), settings or EpisodeSettings(), box.max_sessions, tokenizer
    )


def rollout_func(
    protocol: str | InteractionProtocol,
    generate: Generate | None = None,
    *,
    problems: str | Iterable[Problem],
    path: str | None = None,
    limit: int | None = None,
    sandbox: str | Sandbox = "local",
    box: Settings | None = None,
    settings: EpisodeSettings | None = None,
    max_tokens: int | None = None,
    traces_dir: str | None = None,
    tries: int = 3,
    seed: int = 0,
) -> RolloutFunc:
    """A rollout function for `GRPOTrainer(rollout_func=...)`: whole episodes, of many turns or `inline`, token-exact.
    Its reward function is `reward_from_rollout`.

    It returns `prompt_ids`, `completion_ids`, `logprobs`, `env_mask` (1: sampled by the model; 0: the environment's, or
    without a sure logprob), and for reward functions `reward` (null where the episode failed), `metrics` (by name) and
    `trace`, each a list with one entry a prompt.

    Args:
        generate: what samples; null is the trainer's own model, by transformers.
        problems: all that the prompts ask for: what `prompt_dataset` was given.
        path, limit: as of `prompt_dataset`.
        sandbox, box: as of `reward_fn`; `box.max_sessions` is the number of episodes at one time.
        settings: how an episode is run.
        max_tokens: of one completion; null is what is left. All of an episode behind its prompt has
            `max_completion_length` of the trainer's configuration.
        traces_dir: a traces folder that the episodes are added to; those that failed have an `outcome.error`.
        tries: how often an episode is begun whose sandbox or server fails.
        seed: with the problem and the sample's number it gives an attempt's seed, for servers.

    Raises:
        UsageError: what cannot be served.
        ProblemError: as of `prompt_dataset`.
        StoreError: `traces_dir` cannot be written.
    """
    box = box or Settings(max_sessions=256)
    for name, value in (("tries", tries), ("max_tokens", max_tokens)):
        if value is not None and value < 1:
            raise UsageError(f"{name} {value}: choose 1 or more")
    return RolloutFunc(
        protocol_from(protocol),
        generate,
        problems_from(problems, path, limit),
        _sandbox(sandbox, box),
        settings=settings or EpisodeSettings(),
        at_once=box.max_sessions,
        max_tokens=max_tokens,
        traces_dir=traces_dir,
        tries=tries,
        seed=seed,
    )


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
    log(trace, log_metric, log_extra)
    return [None if one is None else one.outcome.reward for one in trace]


def server_generate(model: ChatModel, *, at_once: int = 64) -> ServedModel:
    """Generates by a model server that takes and gives token ids (vLLM, llama-server, the demo model).

    The server's weights are its own business: `rollout_func` does not bring the trainer's there.

    Args:
        at_once: requests at one time.
    """
    return ServedModel(model, at_once=at_once)


def demo_model(folder: Path | str) -> str:
    """Write the demo model as transformers loads it, a Qwen3 with its tokenizer, for a first try without a network; it
    has ten problems by heart.

    Returns:
        The folder, which is made.
    """
    made, source = demo_folder(Path(folder)), resources.files("foretrace.models") / "demo_model"
    for name in ("config.json", "model.safetensors"):
        (made / name).write_bytes((source / name).read_bytes())
    return str(made)


def log(traces: Sequence[Trace | None], log_metric: Any, log_extra: Any) -> None:
    """Tell a trainer of the episodes of a batch: metrics by name, and columns of its table of completions."""
    measured = Measured()
    for trace in traces:
        if trace is None:
            continue
        if trace.outcome.error is None:
            measured.add(trace)
        else:
            measured.failed[trace.outcome.error.kind] += 1
    if log_metric is not None:
        for name, value in measured.means("").items():
            log_metric(name, value)
    if log_extra is not None:
        log_extra(TASK, [trace and trace.task.id for trace in traces])
        log_extra("tests", [_tests(trace) for trace in traces])


def _tests(trace: Trace | None) -> str:
    tests = None if trace is None else trace.outcome.tests
    return "" if tests is None else f"{tests.passed}/{tests.total}"


def _completion(said: Any, cut: bool, stops: tuple[str, ...]) -> Completion:
    """A completion as TRL gives it: a text, or messages, of which TRL may have taken the thinking apart."""
    message: dict[str, Any] = {"content": said} if isinstance(said, str) else dict(said[-1]) if said else {}
    content: Any = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    cut = cut and not any(text.endswith(stop) for stop in stops)
    return Completion(text=text, reasoning=message.get("reasoning_content") or None, finish="length" if cut else "stop")


def _sandbox(sandbox: str | Sandbox, box: Settings) -> Sandbox:
    return make_sandbox(sandbox, box) if isinstance(sandbox, str) else sandbox


def _ends_of(tokenizer: Any) -> frozenset[int]:
    return LocalTokens(tokenizer).ends
