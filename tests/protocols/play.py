"""Episodes played from texts on a real sandbox, and what their traces say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from foretrace.actions.label_steps import label_trace
from foretrace.core.completion import Completion
from foretrace.core.plugins import load_plugin
from foretrace.core.problem import Problem, Test
from foretrace.core.trace import Message, Trace, add_trace_id
from foretrace.episodes.episode import Episode
from foretrace.episodes.identity import Identity
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.base import InteractionProtocol, Result
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox

SECRET = "7350914"
"""Stands in a hidden test only, as an expected value: no text may hold it."""

ADD = Problem(
    id="add",
    source="little",
    statement="Return the sum of two numbers.",
    entry_point="add",
    public_tests=(Test(code="assert add(1, 2) == 3"), Test(code="assert add(0, 0) == 0")),
    hidden_tests=(
        Test(code=f"assert add(7350900, 14) == {SECRET}"),
        Test(code="assert add(-1, -1) == -2"),
        Test(code="assert add(5, 5) == 10"),
    ),
    reference="def add(a, b):\n    return a + b\n",
    license="MIT",
)
TWICE = Problem(
    id="twice",
    source="little",
    statement="Read a number and print twice of it.",
    public_tests=(Test(stdin="2\n", stdout="4\n"),),
    hidden_tests=(Test(stdin="3675457\n", stdout=f"{SECRET}\n"), Test(stdin="0\n", stdout="0\n")),
    license="MIT",
)
WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"


@contextlib.contextmanager
def open_sandbox(workers: int) -> Iterator[tuple[asyncio.Runner, LocalSandbox]]:
    """A loop, and a sandbox that is closed in it after the block."""
    with asyncio.Runner() as runner:
        sandbox = LocalSandbox(SandboxSettings(workers=workers))
        yield runner, sandbox
        runner.run(sandbox.close())


class Stage:
    """One sandbox and one loop for the tests of a module."""

    def __init__(self, runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
        self.runner, self.sandbox = runner, sandbox

    def play(
        self,
        protocol: str | InteractionProtocol,
        *replies: str | Completion,
        problem: Problem = ADD,
        identity: Identity | None = None,
        **settings: Any,
    ) -> Played:
        """Feed the replies until the episode is done; there may not be more of them than it takes."""
        chosen: InteractionProtocol = load_plugin("protocol", protocol)() if isinstance(protocol, str) else protocol
        return self.runner.run(self._play(chosen, replies, problem, identity, EpisodeSettings(**settings)))

    async def _play(
        self,
        protocol: InteractionProtocol,
        replies: Sequence[str | Completion],
        problem: Problem,
        identity: Identity | None,
        settings: EpisodeSettings,
    ) -> Played:
        async with Episode(problem, protocol, self.sandbox, settings=settings, identity=identity) as episode:
            played = Played(episode)
            await episode.start()
            for reply in replies:
                played.prompts.append("\n".join(m.content for m in episode.messages) + episode.prefill)
                completion = Completion(text=reply) if isinstance(reply, str) else reply
                played.results.append(await episode.step(completion))
            return played


class Played:
    """What came of an episode."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.results: list[list[Result]] = []
        self.prompts: list[str] = []
        """All that the model was shown before each of its replies."""

    @property
    def trace(self) -> Trace:
        return add_trace_id(self.episode.trace())

    @property
    def metrics(self) -> dict[str, float]:
        return self.trace.outcome.metrics

    @property
    def labels(self) -> list[str]:
        """The action of each message of the model, or the rule where it is not a step."""
        return [str(label.action) if label.action else label.rule for label in label_trace(self.trace)]

    @property
    def said(self) -> list[str]:
        """What the environment said, in order."""
        return [m.content for m in self.trace.messages if m.author == "environment"]

    @property
    def models(self) -> list[Message]:
        return [m for m in self.trace.messages if m.author == "model"]

    def counted(self, *names: str) -> tuple[float, ...]:
        return tuple(self.metrics[name] for name in names)
