"""The same reward for the same answer, wherever it is given: in episodes, and in the environments of three trainers.

`REPLIES` are what a model may say, with the reward that it must get. An answer may do what it likes: it never ends in
no reward, which is for faults that are not its own. `tests/integrations/test_same_rewards.py` runs the same replies
through the trainers' own libraries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from envs.tokenizer import HubTokenizer, demo_tokenizer
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, ModelError, SandboxError
from foretrace.core.problem import Problem, Test, Verdict
from foretrace.envs.atropos.groups import make_group
from foretrace.envs.rollout_model import RolloutModel
from foretrace.envs.rollouts import RolloutRunner, RolloutSettings
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.trl import prompt_dataset, reward_from_rollout, rollout_func
from foretrace.envs.trl.generation import Generation
from foretrace.envs.verifiers.attempts import make_report, read_reward, run_attempt
from foretrace.episodes.episode import Episode
from foretrace.episodes.identity import Identity
from foretrace.episodes.rollout import rollout
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.servers.scripted import Scripted
from foretrace.registry import make_protocol
from foretrace.sandbox.base import Limits, SandboxSettings
from foretrace.sandbox.local import LocalSandbox
from portions import in_portions, take

PROTOCOL = "interleaved"
FUNCTION = Problem(
    id="plus/3",
    statement="Return x plus 3.",
    entry_point="plus",
    public_tests=(Test(code="assert plus(0) == 3"),),
    hidden_tests=(Test(code="assert plus(1) == 4"), Test(code="assert plus(-1) == 2")),
)
LOOP = msgspec.structs.replace(
    FUNCTION, id="plus/loop", hidden_tests=(Test(code="for n in range(3):\n    assert plus(n) == n + 3"),)
)
PROGRAM = Problem(
    id="print/3",
    statement="Read x and print x plus 3.",
    public_tests=(Test(stdin="0\n", stdout="3\n"),),
    hidden_tests=(Test(stdin="1\n", stdout="4\n"), Test(stdin="-1\n", stdout="2\n")),
)


class Reply(NamedTuple):
    text: str
    reward: float
    problem: Problem = FUNCTION


def code(*lines: str) -> str:
    return "<think>So.</think><code>\n" + "\n".join(lines) + "\n</code>"


def body(*lines: str) -> str:
    return code("def plus(x):", *(f"    {line}" for line in lines))


LIAR = ["class L:", "    __eq__ = __lt__ = __gt__ = lambda s, o: True", "    __hash__ = None"]
REPLIES = {
    "right": Reply(body("return x + 3"), 1.0),
    "right, loop": Reply(body("return x + 3"), 1.0, LOOP),
    "right, program": Reply(code("print(int(input()) + 3)"), 1.0, PROGRAM),
    "wrong": Reply(body("return 7000"), -1.0),
    "wrong, loop": Reply(body("return 7000"), -1.0, LOOP),
    "wrong, program": Reply(code("print(7000)"), -1.0, PROGRAM),
    "half": Reply(body("return 4"), 0.0),
    "half, program": Reply(code("print(4)"), 0.0, PROGRAM),
    "syntax error": Reply(code("def plus(x:"), -1.0),
    "syntax error, program": Reply(code("print("), -1.0, PROGRAM),
    "null byte": Reply(code("def plus(x): return '\0'"), -1.0),
    "hang": Reply(body("while True: pass"), -1.0),
    "hang, loop": Reply(body("while True: pass"), -1.0, LOOP),
    "hang, program": Reply(code("import time", "time.sleep(99)"), -1.0, PROGRAM),
    "hang when loaded": Reply(code("while True: pass"), -1.0),
    "crash": Reply(body("import ctypes", "ctypes.string_at(0)"), -1.0),
    "crash, loop": Reply(body("import os", "os.abort()"), -1.0, LOOP),
    "killed by itself": Reply(body("import os", "os.kill(os.getpid(), 9)"), -1.0),
    "killed group": Reply(code("import os", "os.killpg(0, 9)"), -1.0),
    "left": Reply(code("import os", "os._exit(0)"), -1.0),
    "left, program": Reply(code("import os", "os._exit(0)"), -1.0, PROGRAM),
    "raises": Reply(body("raise ValueError('\\ud800')"), -1.0),
    "raises what it likes": Reply(body("raise type('SandboxError', (BaseException,), {})('lost')"), -1.0),
    "forges equality": Reply(code(*LIAR, "def plus(x): return L()"), -1.0),
    "forges equality, loop": Reply(code(*LIAR, "def plus(x): return L()"), -1.0, LOOP),
    "forges frames": Reply(
        code(
            "import os",
            'for said in (b\'["loaded"]\', b\'["test","0",true,null,null,null]\', b\'["done",null]\'):',
            "    os.write(3, len(said).to_bytes(4, 'big') + said)",
            "def plus(x): return 0",
        ),
        -1.0,
    ),
    "breaks the protocol": Reply(code("import os", "os.write(3, b'x' * 100)", "def plus(x): return x + 3"), -1.0),
    "empty": Reply("", -1.0),
    "no code block": Reply("I would add three.", -1.0),
    "an empty block": Reply("<code>\n</code>", -1.0),
    "only a thought": Reply("<think>Hm.</think>", -1.0),
    "memory": Reply(body("return [0] * 10**10"), -1.0),
    "memory, program": Reply(code("x = 'x' * 10**10"), -1.0, PROGRAM),
    "recursion": Reply(body("return plus(x)"), -1.0),
    "deep value": Reply(body("v = []", "for _ in range(10**5): v = [v]", "return v"), -1.0),
    "nested sets": Reply(body("v = frozenset()", "for _ in range(199): v = frozenset([v])", "return v"), -1.0),
    "shared parts": Reply(body("v = ()", "for _ in range(100): v = (v, v)", "return v"), -1.0),
    "a huge number": Reply(body("return 1 << 10**7"), -1.0),
    "lone surrogates": Reply(body("return '\\ud800'"), -1.0),
    "prints lone surrogates": Reply(code("import sys", "sys.stdout.buffer.write(b'\\xed\\xa0\\x80')"), -1.0, PROGRAM),
    "prints without end": Reply(code("while True: print('x' * 10**5)"), -1.0, PROGRAM),
    "closes all": Reply(code("import os", "os.closerange(0, 99)", "def plus(x): return x + 3"), -1.0),
}
LIMITS = Limits(wall_s=0.7, cpu_s=1.0)
BOX = SandboxSettings(workers=4, allow_weak_isolation=True, limits=LIMITS)
ONE_TURN = EpisodeSettings(max_turns=1)
Reward = Callable[[Reply], float | None]


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(runner: asyncio.Runner) -> Iterator[LocalSandbox]:
    box = LocalSandbox(BOX)
    runner.run(box.start())
    yield box
    runner.run(box.close())


def says(reply: Reply) -> Scripted:
    return Scripted("said", scripts=lambda request: reply.text)


def make_episode(reply: Reply, sandbox: Any, settings: EpisodeSettings = ONE_TURN) -> Episode:
    return Episode(reply.problem, make_protocol(PROTOCOL), sandbox, settings=settings)


async def reward_by_episode(reply: Reply, sandbox: Any, settings: EpisodeSettings = ONE_TURN) -> float | None:
    return (await rollout(make_episode(reply, sandbox, settings), says(reply))).outcome.reward


async def reward_by_verifiers(reply: Reply, sandbox: Any, settings: EpisodeSettings = ONE_TURN) -> float | None:
    episode = make_episode(reply, sandbox, settings)
    async with episode:
        await run_attempt(episode, says(reply), Sampling())
        return read_reward(make_report(episode))


async def reward_by_atropos(reply: Reply, sandbox: Any, settings: EpisodeSettings = ONE_TURN) -> float | None:
    """The score of a group of one."""
    tokenizer = demo_tokenizer()
    all_settings = RolloutSettings(
        protocol=make_protocol(PROTOCOL), episode=settings, identity=Identity(), keep_inexact=True
    )
    runner = RolloutRunner(all_settings, sandbox, tokenizer, TraceSink(None, "test"))
    model = RolloutModel(says(reply), tokenizer, gives_ids=False, max_sequence_tokens=10**6)
    made = await runner.run(reply.problem, [model], Sampling(max_tokens=10**5))
    return None if made.why_unusable else make_group([made], {}, messages=False)["scores"][0]


WAYS = {"episodes": reward_by_episode, "verifiers": reward_by_verifiers, "atropos": reward_by_atropos}


def check(rewards: dict[str, float | None]) -> None:
    assert {name: got for name, got in rewards.items() if got != REPLIES[name].reward} == {}


@pytest.mark.parametrize("way", WAYS)
@in_portions
def test_every_reply_has_its_reward(way: str, portion: int, runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    names = take(list(REPLIES), 1 if way == "episodes" else portion)

    async def all_of() -> list[float | None]:
        return await asyncio.gather(*(WAYS[way](REPLIES[name], sandbox) for name in names))

    check(dict(zip(names, runner.run(all_of()), strict=True)))


@in_portions
def test_every_rollout_has_its_reward_in_trl(portion: int) -> None:
    """The whole way: ids of the replies, a rollout function, and the reward function that reads from it."""
    tokenizer = HubTokenizer()
    local = demo_tokenizer()
    replies = {name: REPLIES[name] for name in take(list(REPLIES), portion)}
    problems = [
        msgspec.structs.replace(reply.problem, id=f"{number}", statement=f"{number}: {reply.problem.statement}")
        for number, reply in enumerate(replies.values())
    ]
    said = [local.encode(reply.text) for reply in replies.values()]

    def generate(prompts: list[list[int]], sampling: Any, stop: Any) -> list[Generation]:
        assert len(prompts) == len(said)
        return [Generation([*ids, tokenizer.eos_token_id], [-0.1] * (len(ids) + 1)) for ids in said]

    function = rollout_func(PROTOCOL, generate, problems=problems, sandbox_settings=BOX, settings=ONE_TURN, tries=1)
    args = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=5000)
    trainer = SimpleNamespace(args=args, processing_class=tokenizer, model=None)
    try:
        output = function(prompt_dataset(problems, PROTOCOL)["prompt"], trainer)
        check(dict(zip(replies, reward_from_rollout(said, said, **output), strict=True)))
    finally:
        function.close()


def test_the_bonus_is_the_same(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    """Atropos' scores are kept within -1 and 1."""
    settings = EpisodeSettings(max_turns=1, structure_bonus=True)
    for name, reward in (("half", 0.1), ("wrong", -0.9), ("right", 1.1)):
        reply = REPLIES[name]
        reply = reply._replace(text=reply.text.replace("<code>", "<think>Then that.</think><code>"))
        got = {way: runner.run(WAYS[way](reply, sandbox, settings)) for way in WAYS}
        assert got == {way: min(reward, 1.0) if way == "atropos" else reward for way in WAYS}


def test_an_answer_that_ends_its_session_for_good_has_a_reward(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    """Its first block does not run again, once the second one has killed the session."""
    begin = time.time()
    blocks = (
        f"import os, time\nassert time.time() < {begin + 0.6}, 'too late'\ndef plus(x): return x + 3",
        f"while time.time() < {begin + 0.6}: time.sleep(0.1)\nos.killpg(0, 9)",
        "print(plus(1))",
    )
    model = Scripted.of([*(f"<think>So.</think><code>\n{block}\n</code>" for block in blocks), "<answer></answer>"])
    episode = Episode(FUNCTION, make_protocol("interleaved_tools"), sandbox)
    outcome = runner.run(rollout(episode, model, Sampling())).outcome
    assert outcome.error is None and outcome.reward == -1.0, outcome


# --- no reward: faults that are not the answer's


class Failing(LocalSandbox):
    """A sandbox of which each judging fails."""

    error: Exception = SandboxError("the worker is gone")

    async def judge(self, *given: Any, **named: Any) -> Verdict:
        raise self.error


class Absent(LocalSandbox):
    async def start(self) -> Any:
        raise SandboxError("no sandbox here")


@pytest.mark.parametrize("error", [SandboxError("the worker is gone"), RuntimeError("a fault of ours")])
def test_a_fault_of_the_sandbox_is_no_reward(runner: asyncio.Runner, error: Exception) -> None:
    failing = Failing(BOX)
    failing.error = error
    right = REPLIES["right"]
    assert runner.run(reward_by_episode(right, failing)) is None
    assert runner.run(reward_by_atropos(right, failing)) is None
    with pytest.raises(type(error)):
        runner.run(reward_by_verifiers(right, failing))
    runner.run(failing.close())


def test_a_sandbox_that_cannot_start_is_no_reward(runner: asyncio.Runner) -> None:
    right, absent = REPLIES["right"], Absent(BOX)
    assert runner.run(reward_by_episode(right, absent)) is None
    assert runner.run(reward_by_atropos(right, absent)) is None
    with pytest.raises(SandboxError):
        runner.run(reward_by_verifiers(right, absent))


def test_a_dead_server_is_no_reward(runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
    def die(request: Request) -> Completion:
        raise ModelError("it is gone", kind="refused", retryable=True)

    trace = runner.run(rollout(make_episode(REPLIES["right"], sandbox), Scripted("dead", scripts=die)))
    assert trace.outcome.reward is None and trace.outcome.error is not None
    with pytest.raises(ForetraceError):
        runner.run(run_attempt(make_episode(REPLIES["right"], sandbox), Scripted("dead", scripts=die), Sampling()))
