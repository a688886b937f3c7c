"""What all environments have in common: the same replies make the same episode with the same reward, flags and tokens,
and a fault costs an episode and never the run.

`test_same_rewards.py` goes through the answers that a model may give; here it is what happens around them.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from envs.tokenizer import HubTokenizer, demo_tokenizer
from episodes.generating import plus
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ModelError, SandboxError
from foretrace.core.problem import Problem
from foretrace.core.store import read_traces
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
from foretrace.sandbox.base import Isolation, SandboxSettings
from foretrace.sandbox.local import LocalSandbox

BOX = SandboxSettings(workers=1, allow_weak_isolation=True)
TOKENIZER = demo_tokenizer()


def block(body: str) -> str:
    return f"<think>I try this.</think><code>\ndef plus(x):\n    return {body}\n</code>"


WRONG, RIGHT, END = block("x"), block("x + 3"), "<verify>It adds.</verify>"
LIAR = f"<code>\nclass L:\n    __eq__ = lambda s, o: True\n    __hash__ = None\n\n{RIGHT.partition('<code>')[2]}"
LIAR = LIAR.replace("x + 3", "L()")
CUT = (RIGHT.removesuffix("</code>"), "length")
"""A reply that the token limit cut."""
Replies = Sequence[str | tuple[str, str] | ModelError]
Scripts = list[tuple[Problem, Replies]]


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


def by_episodes(scripts: Scripts, sandbox: Any) -> list[Made]:
    async def run() -> list[Made]:
        traces = [
            await rollout(Episode(problem, make_protocol("tools"), sandbox), Said(scripts)) for problem, _ in scripts
        ]
        await sandbox.close()
        return [Made(trace.outcome.reward, trace.outcome) for trace in traces]

    return asyncio.run(run())


def by_verifiers(scripts: Scripts, sandbox: Any) -> list[Made]:
    async def run() -> list[Made]:
        made: list[Made] = []
        for problem, _ in scripts:
            episode = Episode(problem, make_protocol("tools"), sandbox)
            try:
                await run_attempt(episode, Said(scripts), Sampling())
                reward = read_reward(make_report(episode))
            except ModelError:
                reward = None
            made.append(Made(reward, msgspec.convert(make_report(episode)["outcome"], Outcome)))
        await sandbox.close()
        return made

    return asyncio.run(run())


def by_atropos(scripts: Scripts, sandbox: Any) -> list[Made]:
    settings = RolloutSettings(protocol=make_protocol("tools"), episode=EpisodeSettings(), identity=Identity(), tries=2)

    async def run() -> list[Made]:
        runner = RolloutRunner(settings, sandbox, TOKENIZER, TraceSink(None, "test"))
        model = RolloutModel(Said(scripts), TOKENIZER, gives_ids=True, max_sequence_tokens=9999)
        made: list[Made] = []
        for problem, _ in scripts:
            one = await runner.run(problem, [model], Sampling())
            if one.why_unusable:
                made.append(
                    Made(None, one.trace.outcome, trained=_read_trained(one.sequence.masks if one.sequence else []))
                )
                continue
            group = make_group([one], {}, messages=False)
            (tokens,), (masks,), (score,) = group["tokens"], group["masks"], group["scores"]
            made.append(Made(score, one.trace.outcome, tokens, _read_trained(masks)))
        await sandbox.close()
        return made

    return asyncio.run(run())


def _read_trained(masks: list[int]) -> list[int]:
    return [mask for mask in masks if mask != MASKED]


def by_trl_rollouts(scripts: Scripts, sandbox: Any) -> list[Made]:
    problems = [problem for problem, _ in scripts]
    function = rollout_func("tools", Said(scripts), problems=problems, sandbox=sandbox, tries=2)
    args = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=9000)
    trainer = SimpleNamespace(args=args, processing_class=HubTokenizer(), model=None)
    try:
        output = function(prompt_dataset(problems, "tools")["prompt"], trainer)
    finally:
        function.close()
    rewards = reward_from_rollout(problems, problems, **output)
    made: list[Made] = []
    for number, (reward, trace) in enumerate(zip(rewards, output["trace"], strict=True)):
        prompt, ids, mask = (output[name][number] for name in ("prompt_ids", "completion_ids", "env_mask"))
        trained = [one for one, mine in zip(ids, mask, strict=True) if mine]
        made.append(Made(reward, trace.outcome, prompt + ids, trained))
    return made


def by_trl_environments(scripts: Scripts, sandbox: Any) -> list[Made]:
    """The same acts as calls of tools."""
    factory = EnvironmentFactory(sandbox=sandbox)

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
        for (_, replies), row in zip(
            scripts, prompt_dataset([problem for problem, _ in scripts], ToolCalls()), strict=True
        ):
            environment = factory()
            environment.reset(**row)
            reward = asyncio.run(call(environment, replies))
            assert environment.trace is not None
            made.append(Made(reward, environment.trace.outcome))
        return made
    finally:
        factory.close()


WAYS: dict[str, Callable[[Scripts, Any], list[Made]]] = {
    "episodes": by_episodes,
    "verifiers": by_verifiers,
    "atropos": by_atropos,
    "trl rollouts": by_trl_rollouts,
    "trl environments": by_trl_environments,
}
WITH_SERVERS = [way for way in WAYS if way != "trl environments"]
"""Those that ask for completions themselves."""
SOLVED: tuple[Problem, Replies] = (plus(3), [WRONG, RIGHT, END])


@pytest.fixture
def sandbox() -> LocalSandbox:
    return LocalSandbox(BOX)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_replies_make_the_same_episode(way: str, sandbox: LocalSandbox) -> None:
    solved, lied, failed = WAYS[way]([SOLVED, (plus(4), [LIAR, END]), (plus(5), [WRONG, END])], sandbox)
    assert (solved.reward, lied.reward, failed.reward) == (1.0, -1.0, -1.0)
    assert (solved.outcome.flags, lied.outcome.flags) == ((), ("same_for_others",))
    assert [one.outcome.status for one in (solved, lied, failed)] == ["done"] * 3
    metrics = solved.outcome.metrics
    assert (metrics["turns"], metrics["had_errors"], metrics["recovered"]) == (3, 1, 1)


def test_the_same_replies_make_the_same_tokens() -> None:
    one, other = (WAYS[way]([SOLVED], LocalSandbox(BOX))[0] for way in ("atropos", "trl rollouts"))
    assert one.tokens == other.tokens and one.trained == other.trained
    said = [token for reply in SOLVED[1] for token in (*TOKENIZER.encode(str(reply)), TOKENIZER.end_id)]
    assert one.trained == said, "every token that is trained on was sampled, and every one that was sampled is"


@pytest.mark.parametrize("way", WITH_SERVERS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_server_that_fails_costs_the_episode(way: str, after: int, sandbox: LocalSandbox) -> None:
    gone = ModelError("it is gone", kind="refused", retryable=True)
    failed, solved = WAYS[way]([(plus(4), [*[RIGHT][:after], gone]), SOLVED], sandbox)
    error = failed.outcome.error
    assert failed.reward is None and error is not None and error.kind == "refused"
    assert failed.trained == ([] if way in ("atropos", "trl rollouts") else None), "the others give no tokens"
    assert solved.reward == 1.0


@pytest.mark.parametrize("way", WITH_SERVERS)
def test_a_cut_reply_is_not_run_and_the_episode_goes_on(way: str, sandbox: LocalSandbox) -> None:
    cut, ended = WAYS[way]([(plus(3), [CUT, RIGHT, END]), (plus(4), [CUT, END])], sandbox)
    assert (cut.reward, ended.reward) == (1.0, -1.0)
    assert [one.outcome.metrics["cut_replies"] for one in (cut, ended)] == [1, 1]


@pytest.mark.parametrize("way", WITH_SERVERS)
def test_a_full_context_ends_the_episode_and_is_judged(way: str, sandbox: LocalSandbox) -> None:
    full = ModelError("the prompt is too long", kind="overflow")
    (one,) = WAYS[way]([(plus(3), [RIGHT, full])], sandbox)
    assert (one.reward, one.outcome.status, one.outcome.exit_reason) == (1.0, "limit", "context")


@pytest.mark.parametrize("others", [False, True])
def test_a_sandbox_that_fails_costs_the_episode_of_a_tool_and_where_all_fail_the_training(others: bool) -> None:
    class Failing(LocalSandbox):
        count = 0

        async def judge(self, *given: Any, **named: Any) -> Any:
            self.count += 1
            if self.count <= 2:
                raise OSError("the worker is gone")
            return await super().judge(*given, **named)

    factory = EnvironmentFactory(sandbox=Failing(BOX))
    environments: list[Any] = [factory() for _ in range(3 if others else 2)]
    for environment in environments:
        environment.reset(**prompt_dataset([plus(3)], ToolCalls())[0])

    async def run() -> list[float | None]:
        for environment in environments[:2]:
            with pytest.raises(OSError, match="the worker is gone"):  # which TRL shows the model
                await environment.run_tests("x = 1")
            assert "has ended" in await environment.submit()
        for environment in environments[2:]:
            await environment.run_tests("def plus(x):\n    return x + 3")
        return [await environment.get_reward() for environment in environments]

    try:
        if others:
            assert asyncio.run(run()) == [None, None, 1.0]
            assert environments[0].trace.outcome.error is not None
        else:
            with pytest.raises(SandboxError, match=r"none of 2 episodes .*: 2 x unexpected.*worker is gone"):
                asyncio.run(run())
    finally:
        factory.close()


def test_a_call_with_a_wrong_argument_is_answered_and_the_episode_goes_on() -> None:
    factory = EnvironmentFactory(sandbox=LocalSandbox(BOX))
    environment: Any = factory()
    environment.reset(**prompt_dataset([plus(3)], ToolCalls())[0])

    async def call() -> float | None:
        for code in (5, None, ["x = 1"]):
            assert "code must be a string" in await environment.run_tests(code)
        await environment.run_tests("def plus(x):\n    return x + 3")
        assert "has ended" in await environment.submit(None)
        return await environment.get_reward()

    try:
        assert asyncio.run(call()) == 1.0
    finally:
        factory.close()


def test_a_sandbox_that_starts_no_more_costs_the_episode_of_a_tool() -> None:
    class Failing(LocalSandbox):
        starts = 0

        async def start(self) -> Isolation:
            self.starts += 1
            if self.starts == 2:
                raise OSError("no process is left")
            return await super().start()

    factory = EnvironmentFactory(sandbox=Failing(BOX))
    environment: Any = factory()
    row: Any = prompt_dataset([plus(3)], ToolCalls())[0]

    async def call() -> tuple[str, float | None]:
        answer = await environment.run_tests("def plus(x):\n    return x + 3")
        return answer, await environment.get_reward()

    try:
        environment.reset(**row)
        with pytest.raises(SandboxError, match="none of 1 episodes"):
            asyncio.run(call())
        assert environment.trace.outcome.error.message == "OSError: no process is left"
        environment.reset(**row)
        assert asyncio.run(call())[1] == 1.0
    finally:
        factory.close()


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
    settings = RolloutSettings(protocol=make_protocol("tools"), episode=EpisodeSettings(), identity=Identity(), tries=2)
    works: Replies = [RIGHT, END]
    first: Scripts = [(plus(3), works if after == "alive" else gone)]

    async def run() -> list[list[int]]:
        async with LocalSandbox(BOX) as sandbox:
            runner = RolloutRunner(settings, sandbox, TOKENIZER, TraceSink(None, "test"))
            models = [
                RolloutModel(Said(one), TOKENIZER, gives_ids=True, max_sequence_tokens=9999)
                for one in (first, Scripts([(plus(3), works)]))
            ]
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


def test_a_sandbox_that_fails_is_not_the_server_s_fault() -> None:
    class Failing(LocalSandbox):
        async def judge(self, *given: Any, **named: Any) -> Any:
            raise OSError("the worker is gone")

    settings = RolloutSettings(protocol=make_protocol("tools"), episode=EpisodeSettings(), identity=Identity())

    async def run() -> int:
        async with Failing(BOX) as sandbox:
            runner = RolloutRunner(settings, sandbox, TOKENIZER, TraceSink(None, "test"))
            said = Said([(plus(3), [RIGHT, END])])
            model = RolloutModel(said, TOKENIZER, gives_ids=True, max_sequence_tokens=9999)
            assert (await runner.run(plus(3), [model], Sampling())).why_unusable == "unexpected"
            return model.skips

    assert asyncio.run(run()) == 0
