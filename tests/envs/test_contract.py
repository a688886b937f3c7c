"""What all environments have in common: the same replies make the same episode with the same reward, flags and tokens,
and a fault costs an episode and never the run.

`test_same_rewards.py` goes through the answers that a model may give; here it is what happens around them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.ways import TOKENIZER, WAYS, WITH_SERVERS, Replies, Scripts, Setup, serve
from episodes.generating import plus
from foretrace.core.completion import Sampling
from foretrace.core.errors import ModelError, SandboxError
from foretrace.core.problem import Problem
from foretrace.core.store import read_traces
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.trl import EnvironmentFactory, ToolCalls, prompt_dataset
from foretrace.sandbox.base import Isolation, SandboxSettings
from foretrace.sandbox.local import LocalSandbox

BOX = SandboxSettings(workers=1, allow_weak_isolation=True)


def block(body: str) -> str:
    return f"<think>I try this.</think><code>\ndef plus(x):\n    return {body}\n</code>"


WRONG, RIGHT, END = block("x"), block("x + 3"), "<verify>It adds.</verify>"
LIAR = f"<code>\nclass L:\n    __eq__ = lambda s, o: True\n    __hash__ = None\n\n{RIGHT.partition('<code>')[2]}"
LIAR = LIAR.replace("x + 3", "L()")
CUT = (RIGHT.removesuffix("</code>"), "length")
"""A reply that the token limit cut."""
SOLVED: tuple[Problem, Replies] = (plus(3), [WRONG, RIGHT, END])


@pytest.fixture
def setup() -> Setup:
    return Setup(LocalSandbox(BOX))


@pytest.mark.parametrize("way", WAYS)
def test_the_same_replies_make_the_same_episode(way: str, setup: Setup) -> None:
    solved, lied, failed = WAYS[way]([SOLVED, (plus(4), [LIAR, END]), (plus(5), [WRONG, END])], setup)
    assert (solved.reward, lied.reward, failed.reward) == (1.0, -1.0, -1.0)
    assert (solved.outcome.flags, lied.outcome.flags) == ((), ("same_for_others",))
    assert [one.outcome.status for one in (solved, lied, failed)] == ["done"] * 3
    metrics = solved.outcome.metrics
    assert (metrics["turns"], metrics["had_errors"], metrics["recovered"]) == (3, 1, 1)


def test_the_same_replies_make_the_same_tokens() -> None:
    one, other = (WAYS[way]([SOLVED], Setup(LocalSandbox(BOX)))[0] for way in ("atropos", "trl rollouts"))
    assert one.tokens == other.tokens and one.trained == other.trained
    said = [token for reply in SOLVED[1] for token in (*TOKENIZER.encode(str(reply)), TOKENIZER.end_id)]
    assert one.trained == said, "every token that is trained on was sampled, and every one that was sampled is"


@pytest.mark.parametrize("way", WITH_SERVERS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_server_that_fails_costs_the_episode(way: str, after: int, setup: Setup) -> None:
    gone = ModelError("it is gone", kind="refused", retryable=True)
    failed, solved = WAYS[way]([(plus(4), [*[RIGHT][:after], gone]), SOLVED], setup)
    error = failed.outcome.error
    assert failed.reward is None and error is not None and error.kind == "refused"
    assert failed.trained == ([] if way in ("atropos", "trl rollouts") else None), "the others give no tokens"
    assert solved.reward == 1.0


@pytest.mark.parametrize("way", WITH_SERVERS)
def test_a_cut_reply_is_not_run_and_the_episode_goes_on(way: str, setup: Setup) -> None:
    cut, ended = WAYS[way]([(plus(3), [CUT, RIGHT, END]), (plus(4), [CUT, END])], setup)
    assert (cut.reward, ended.reward) == (1.0, -1.0)
    assert [one.outcome.metrics["cut_replies"] for one in (cut, ended)] == [1, 1]


@pytest.mark.parametrize("way", WITH_SERVERS)
def test_a_full_context_ends_the_episode_and_is_judged(way: str, setup: Setup) -> None:
    full = ModelError("the prompt is too long", kind="overflow")
    (one,) = WAYS[way]([(plus(3), [RIGHT, full])], setup)
    assert (one.reward, one.outcome.status, one.outcome.exit_reason) == (1.0, "limit", "context")


class Failing(LocalSandbox):
    """A sandbox that fails to judge some code, or to start for some time."""

    error: Exception = OSError("the worker is gone")
    starts = 0
    fails_at: tuple[int, ...] = ()
    """The numbers of the starts that fail."""

    async def judge(self, code: str, *given: Any, **named: Any) -> Any:
        if "x + 9" in code:
            raise self.error
        return await super().judge(code, *given, **named)

    async def start(self) -> Isolation:
        self.starts += 1
        if self.starts in self.fails_at:
            raise OSError("no process is left")
        return await super().start()


@pytest.mark.parametrize("way", WITH_SERVERS)
@pytest.mark.parametrize("error", [SandboxError("the worker is gone"), RuntimeError("a fault of ours")])
def test_a_sandbox_that_fails_costs_the_episode(way: str, error: Exception) -> None:
    failing = Failing(BOX)
    failing.error = error
    failed, solved = WAYS[way]([(plus(9), [block("x + 9"), END]), SOLVED], Setup(failing))
    assert failed.reward is None and failed.outcome.error is not None and solved.reward == 1.0


@pytest.mark.parametrize("way", ["episodes", "verifiers", "atropos"])
def test_a_sandbox_that_cannot_start_is_no_reward(way: str) -> None:
    absent = Failing(BOX)
    absent.fails_at = (1, 2)
    (one,) = WAYS[way]([SOLVED], Setup(absent))
    assert one.reward is None and one.outcome.error is not None


def test_a_sandbox_that_fails_is_not_the_server_s_fault() -> None:
    setup, model = Setup(Failing(BOX)), serve([(plus(9), [block("x + 9"), END])])

    async def run() -> str:
        async with setup.sandbox:
            return (await setup.runner().run(plus(9), [model], Sampling())).why_unusable

    assert (asyncio.run(run()), model.skips) == ("unexpected", 0)


# --- an environment of TRL, whose tools a model calls


def solution(number: int) -> str:
    return f"def plus(x):\n    return x + {number}"


@contextlib.contextmanager
def open_environments(sandbox: LocalSandbox, *numbers: int) -> Iterator[list[Any]]:
    """Environments for problems, which share a factory."""
    factory = EnvironmentFactory(sandbox=sandbox)
    try:
        made = [factory() for _ in numbers]
        for environment, number in zip(made, numbers, strict=True):
            environment.reset(**prompt_dataset([plus(number)], ToolCalls())[0])
        yield made
    finally:
        factory.close()


@pytest.mark.parametrize("others", [False, True])
def test_a_sandbox_that_fails_costs_the_episode_of_a_tool_and_where_all_fail_the_training(others: bool) -> None:
    async def run(environments: list[Any]) -> list[float | None]:
        for environment in environments[:2]:
            with pytest.raises(OSError, match="the worker is gone"):  # which TRL shows the model
                await environment.run_tests(solution(9))
            assert "has ended" in await environment.submit()
        for environment in environments[2:]:
            await environment.run_tests(solution(3))
        return [await environment.get_reward() for environment in environments]

    with open_environments(Failing(BOX), 9, 9, *[3][:others]) as environments:
        if others:
            assert asyncio.run(run(environments)) == [None, None, 1.0]
            assert environments[0].trace.outcome.error is not None
        else:
            with pytest.raises(SandboxError, match=r"none of 2 episodes .*: 2 x unexpected.*worker is gone"):
                asyncio.run(run(environments))


def test_a_call_with_a_wrong_argument_is_answered_and_the_episode_goes_on() -> None:
    async def call(environment: Any) -> float | None:
        for code in (5, None, ["x = 1"]):
            assert "code must be a string" in await environment.run_tests(code)
        await environment.run_tests(solution(3))
        assert "has ended" in await environment.submit(None)
        return await environment.get_reward()

    with open_environments(LocalSandbox(BOX), 3) as (environment,):
        assert asyncio.run(call(environment)) == 1.0


def test_a_sandbox_that_starts_no_more_costs_the_episode_of_a_tool() -> None:
    async def call(environment: Any) -> float | None:
        await environment.run_tests(solution(3))
        return await environment.get_reward()

    failing = Failing(BOX)
    failing.fails_at = (2,)
    with open_environments(failing, 3) as (environment,):
        with pytest.raises(SandboxError, match="none of 1 episodes"):
            asyncio.run(call(environment))
        assert environment.trace.outcome.error.message == "OSError: no process is left"
        environment.reset(**prompt_dataset([plus(3)], ToolCalls())[0])
        assert asyncio.run(call(environment)) == 1.0


KILLED = """
import asyncio, os, signal
from types import SimpleNamespace
from envs.demo_generate import generate
from envs.tokenizer import HubTokenizer
from foretrace.envs.trl import EnvironmentFactory, ToolCalls, prompt_dataset, rollout_func
from foretrace.sandbox.base import SandboxSettings
box = SandboxSettings(workers=1, allow_weak_isolation=True)
"""
KILLED_WAYS = {
    "trl rollouts": """
run = rollout_func("tools", generate, problems="builtin", limit=2, sandbox_settings=box, traces_dir="traces")
args = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=700)
trainer = SimpleNamespace(args=args, processing_class=HubTokenizer(), model=None)
run(prompt_dataset("builtin", "tools", limit=2)["prompt"], trainer)
""",
    "trl environments": """
factory = EnvironmentFactory(sandbox_settings=box, traces_dir="traces")
for row in prompt_dataset("builtin", ToolCalls(), limit=2):
    environment = factory()
    environment.reset(**row)
    asyncio.run(environment.get_reward())
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", KILLED_WAYS)
def test_a_trainer_that_is_killed_loses_no_finished_episode(way: str, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    script = f"{KILLED}{KILLED_WAYS[way]}os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == -signal.SIGKILL
    asyncio.run(TraceSink(str(tmp_path / "traces"), "trl").close())  # the next run seals what this one left
    assert len(list(read_traces(tmp_path / "traces"))) == 2


@pytest.mark.parametrize("after", ["alive", "dead", "back"])
def test_a_server_that_fails_is_passed_over_until_it_is_back(after: str) -> None:
    """Each rollout is begun again on another server, and now and then one tries whether the first is back."""
    gone: Replies = [ModelError("it is gone", kind="refused", retryable=True)]
    works: Replies = [RIGHT, END]
    first: Scripts = [(plus(3), works if after == "alive" else gone)]
    setup, models = Setup(LocalSandbox(BOX)), [serve(one) for one in (first, [(plus(3), works)])]

    async def run() -> list[list[int]]:
        async with setup.sandbox:
            runner = setup.runner()
            started: list[list[int]] = []
            for count in (6, 34):
                made = await asyncio.gather(*(runner.run(plus(3), models, Sampling()) for _ in range(count)))
                assert [one.why_unusable for one in made] == [""] * count
                started.append([model.started for model in models])
                if after == "back":
                    first[0] = plus(3), works
            return started

    (one, other), (later, others) = asyncio.run(run())
    assert (one, other) == ((3, 3) if after == "alive" else (1, 6))
    if after == "dead":
        assert (later, others) == (1 + 2, 6 + 34), "one try in 17"
    else:
        assert later + others == one + other + 34 and later > 17
