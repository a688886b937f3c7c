"""The simulator against a real run: an agent of asyncio tasks, whose model, proposer and tools really sleep.

The agent notes how long each sleep really was, as a runner notes the times of its trace; the simulator must
say how long the agent took. What a busy machine adds to a sleep is then in both; what it adds between two sleeps is in
the agent's time alone, so a run that was disturbed is repeated, twice at most.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import pytest

from foretrace.core.predictions import PredictedCall
from foretrace.evaluation.simulator import GuessedCall, SimulatedRun, SimulatedStep, simulate
from timing import assert_quick, thrice_if_late

pytestmark = pytest.mark.integration
STEPS = 20
WRONG = PredictedCall("read_file", '{"path": "b.py"}')
RIGHT = PredictedCall("read_file", '{"path": "a.py"}')


class World(NamedTuple):
    """What an agent waits for, in seconds, and at which steps the true call is among its proposer's guesses."""

    model_s: float
    tool_s: float
    proposer_s: float
    hits: tuple[bool, ...]
    """Step by step, over and over again."""
    wrong_first: int = 0
    """Wrong guesses that are launched before."""
    ahead: int = 1

    def guess(self, step: int) -> list[PredictedCall]:
        others = [PredictedCall("read_file", f'{{"path": "{n}.py"}}') for n in range(self.wrong_first)]
        return [*others, RIGHT if self.hits[step % len(self.hits)] else WRONG]


async def sleep(seconds: float) -> float:
    """Sleep, and say how long it was."""
    begun = time.perf_counter()
    await asyncio.sleep(seconds)
    return time.perf_counter() - begun


class Agent:
    """Runs the steps for real."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.launched: dict[tuple[int, PredictedCall], asyncio.Task[float]] = {}
        self.begun: set[tuple[int, PredictedCall]] = set()
        self.called_s: dict[tuple[int, PredictedCall], float] = {}
        """Of the guessed calls that ran to their end."""
        self.model_s: list[float] = []
        self.tool_s: list[float] = []
        self.proposer_s: list[float] = [world.proposer_s] * STEPS

    async def run(self) -> float:
        begun = time.perf_counter()
        for step in range(STEPS):
            proposer = asyncio.create_task(self.propose(step))
            self.model_s.append(await sleep(self.world.model_s))
            right = self.launched.get((step, RIGHT))
            for key, task in self.launched.items():
                if key[0] == step and (key not in self.begun or task is not right):
                    task.cancel()
            used = right is not None and (step, RIGHT) in self.begun
            self.tool_s.append(await right if used and right is not None else await sleep(self.world.tool_s))
            if self.world.ahead == 1:
                proposer.cancel()
        took = time.perf_counter() - begun
        for task in self.launched.values():
            task.cancel()
        return took

    async def propose(self, begun: int) -> None:
        for step in range(begun, min(begun + self.world.ahead, STEPS)):
            seconds = await sleep(self.world.proposer_s)
            if step == begun:
                self.proposer_s[step] = seconds
            for call in self.world.guess(step):
                if (step, call) not in self.launched:
                    self.launched[step, call] = asyncio.create_task(self.call(step, call))
            if RIGHT not in self.world.guess(step)[:1]:
                return  # what it would guess behind a wrong guess is wrong

    async def call(self, step: int, call: PredictedCall) -> float:
        self.begun.add((step, call))
        seconds = self.called_s[step, call] = await sleep(self.world.tool_s)
        return seconds


async def run_agent(world: World) -> tuple[Agent, float]:
    agent = Agent(world)
    return agent, await agent.run()


def simulate_agent(agent: Agent) -> SimulatedRun:
    """The run by the simulator, with the length of every sleep."""
    world = agent.world
    steps: list[SimulatedStep] = []
    for step, (model_s, tool_s) in enumerate(zip(agent.model_s, agent.tool_s, strict=True)):
        guesses = tuple(
            GuessedCall(tool_s, (0,)) if call == RIGHT else GuessedCall(agent.called_s.get((step, call), world.tool_s))
            for call in world.guess(step)
        )
        foreseen = world.guess(step)[0] == RIGHT
        steps.append(SimulatedStep(model_s, tool_s, (tool_s,), True, 0, agent.proposer_s[step], guesses, foreseen))
    return simulate(steps, world.ahead)


@pytest.mark.parametrize(
    "world",
    [
        World(0.16, 0.08, 0.02, (True, True, False)),
        World(0.08, 0.16, 0.02, (True, False)),
        World(0.16, 0.16, 0.0, (True,)),
        World(0.16, 0.08, 0.02, (False,)),
        World(0.20, 0.08, 0.02, (True,), wrong_first=2),
        World(0.08, 0.20, 0.0, (True,), ahead=3),
        World(0.08, 0.20, 0.0, (True, True, False), ahead=3),
    ],
)
@thrice_if_late
def test_it_takes_as_long_as_the_real_run(world: World) -> None:
    agent, took = asyncio.run(run_agent(world))
    run = simulate_agent(agent)
    assert run.took_s < 1.03 * took
    assert_quick(took, run.took_s / 0.97)
    hits = sum(launch.hit for launch in run.launches)
    assert 0.02 * hits <= sum(run.saved_s), "the run was one in which guesses save"
    assert hits >= STEPS // 3 or not any(world.hits)
