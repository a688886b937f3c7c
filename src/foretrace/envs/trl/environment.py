"""An environment for `GRPOTrainer(environment_factory=...)`: an episode whose actions are the model's tool calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from foretrace.core.completion import Completion
from foretrace.core.errors import SandboxError
from foretrace.core.trace import Trace
from foretrace.envs.rollouts import Rollout, describe_failures
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.trl.background_loop import BackgroundLoop
from foretrace.envs.trl.prompts import check_prompt, read_problem
from foretrace.episodes.episode import Episode
from foretrace.episodes.identity import Identity
from foretrace.episodes.rollout import finish_trace, record_failure
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.base import Act, ActKind, Handling, Reply
from foretrace.protocols.tools import Tools
from foretrace.sandbox.base import Sandbox, SandboxSettings

_ENDED = "The task has ended: nothing more is run."


class _Call(msgspec.Struct):
    name: str
    code: str


class ToolCalls(Tools):
    """The protocol `tools` with the model's native tool calls: `run_tests` until the tests pass, then `submit`."""

    name = "tool_calls"
    stop = ()
    system_prompt = (
        "You solve a programming task in Python. Call run_tests with your whole code; it is really run, and you are "
        "told which tests pass. If something fails, think about why, and call run_tests with the whole code, "
        "corrected. When the tests pass, call submit."
    )
    acts: ClassVar[Mapping[str, tuple[ActKind, Handling]]] = {
        "run_tests": ("code", "test"),
        "submit": ("final", "submit"),
    }

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        """A tool call as written by `ToolEnvironment`."""
        call = msgspec.json.decode(text, type=_Call)
        kind, handling = self.acts[call.name]
        return Reply(text=text, acts=(Act(kind=kind, span=(0, len(text)), code=call.code, handling=handling),))


class EnvironmentFactory:
    """Makes the environments of a `GRPOTrainer(environment_factory=...)`, which share a sandbox. The trainer's dataset
    is `prompt_dataset(problems, ToolCalls())`; the environments give the reward.

    Args:
        sandbox, sandbox_settings: as in `rollout_func`.
        settings: how an episode is run.
        traces_dir: a traces folder to which the episodes are added, without token ids, which only the trainer has.

    Raises:
        UsageError: an unsupported setting.
        StoreError: `traces_dir` cannot be written.
    """

    def __init__(
        self,
        *,
        sandbox: str | Sandbox = "local",
        sandbox_settings: SandboxSettings | None = None,
        settings: EpisodeSettings | None = None,
        traces_dir: str | None = None,
    ) -> None:
        self.loop = BackgroundLoop(sandbox, sandbox_settings)
        self.settings, self.sink = settings, TraceSink(traces_dir, "trl")
        self.loop.close_at_end(self.sink.close)
        self.made: list[ToolEnvironment] = []
        self.started = False
        """Whether the sandbox has started."""

    def __call__(self) -> ToolEnvironment:
        self.made.append(ToolEnvironment(self))
        return self.made[-1]

    def close(self) -> None:
        """Close the sandbox and seal the traces; the end of the process does so too. May be called twice."""
        self.loop.close()


class ToolEnvironment:
    """Runs one episode after another, each from `reset` to `get_reward`. Its other methods are the model's tools."""

    def __init__(self, factory: EnvironmentFactory) -> None:
        self._factory = factory
        self._episode: Episode | None = None
        self._lock = asyncio.Lock()
        self.trace: Trace | None = None
        """The trace of the last finished episode."""

    def reset(self, prompt: Sequence[Any], problem: str, **columns: Any) -> None:
        """Begin an episode.

        Raises:
            UsageError: the dataset was not made by `prompt_dataset`, or for another protocol.
            SandboxError: the sandbox cannot start. Later failures only cost the episode.
        """
        factory, protocol, chosen = self._factory, ToolCalls(), read_problem(problem)
        check_prompt(prompt, chosen, protocol)

        def make(sample: int) -> Episode:
            identity = Identity(run="trl", sample=sample)
            return Episode(chosen, protocol, factory.loop.sandbox, settings=factory.settings, identity=identity)

        self._episode = make(factory.sink.next_sample(make(0).key))
        factory.loop.submit(self._start(self._episode)).result()

    async def run_tests(self, code: str) -> str:
        """Run code on the public tests of the task.

        Args:
            code: The whole Python code of the answer.
        """
        return await self._call("run_tests", code)

    async def submit(self, code: str = "") -> str:
        """Hand in the answer. This ends the task.

        Args:
            code: The whole Python code of the answer, where it is not the one that was tested last.
        """
        return await self._call("submit", code)

    async def get_reward(self) -> float | None:
        """The reward of the episode; `None` if the sandbox failed.

        Raises:
            SandboxError: all episodes of the step failed, so there is nothing to train on.
        """
        # TRL asks for one after another: all are judged with the first.
        ends = (asyncio.wrap_future(self._factory.loop.submit(one._end())) for one in self._factory.made)
        ended = [trace for trace in await asyncio.gather(*ends) if trace is not None]
        failed = [Rollout(trace, None, trace.outcome.error.kind) for trace in ended if trace.outcome.error]
        if failed and len(failed) == len(ended):
            raise SandboxError(f"none of {len(failed)} episodes came to its end: {describe_failures(failed)}")
        return self.trace.outcome.reward if self.trace else None

    async def _start(self, episode: Episode) -> None:
        factory = self._factory
        if not factory.started:
            await factory.loop.sandbox.start()
            factory.started = True
        with contextlib.suppress(Exception):  # the trace has the error
            async with record_failure(episode):
                await episode.start()

    async def _call(self, name: str, code: Any) -> str:
        if code is None and name == "submit":
            code = ""
        if not isinstance(code, str):  # TRL passes on whatever the model wrote
            return "Nothing was run: code must be a string, the whole Python code of the answer."
        text = msgspec.json.encode(_Call(name, code)).decode()
        return await asyncio.wrap_future(self._factory.loop.submit(self._step(Completion(text=text))))

    async def _step(self, completion: Completion) -> str:
        episode = self._episode
        async with self._lock:  # a model may call several tools at once
            if episode is None or episode.done:
                return _ENDED
            async with record_failure(episode):
                await episode.step(completion)
            return _ENDED if episode.done else episode.messages[-1].content

    async def _end(self) -> Trace | None:
        """Judge the episode unless a call has ended it, and store its trace; `None` if there is no episode."""
        async with self._lock:
            episode, self._episode = self._episode, None
            if episode is None:
                return None
            if not episode.done:
                with contextlib.suppress(Exception):  # the trace has the error
                    async with record_failure(episode):
                        await episode.end("stopped")
            self.trace = finish_trace(episode)
            await self._factory.sink.put(self.trace)
            return self.trace
