"""The same reward for the same answer, wherever it is given: in episodes, and in the environments of three trainers.

`REPLIES` are what a model may say, with the reward that it must get. An answer may do what it likes: it never ends in
no reward, which is for faults that are not its own.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import msgspec
import pytest

from envs.ways import WAYS, WITH_SERVERS, Setup
from foretrace.core.completion import Sampling
from foretrace.core.problem import Problem, Test
from foretrace.episodes.episode import Episode
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


@pytest.mark.parametrize("way", WITH_SERVERS)
@in_portions
def test_every_reply_has_its_reward(way: str, portion: int) -> None:
    names = take(list(REPLIES), 1 if way == "episodes" else portion)
    replies = {f"Number {number}: ": REPLIES[name] for number, name in enumerate(names)}
    scripts = [
        (msgspec.structs.replace(one.problem, id=f"p/{at}", statement=at + one.problem.statement), [one.text])
        for at, one in replies.items()
    ]
    made = WAYS[way](scripts, Setup(LocalSandbox(BOX), PROTOCOL, EpisodeSettings(max_turns=1)))
    found = {name: one.reward for name, one in zip(names, made, strict=True)}
    assert {name: got for name, got in found.items() if got != REPLIES[name].reward} == {}


@pytest.mark.parametrize("way", WITH_SERVERS)
@pytest.mark.parametrize(("name", "reward"), [("half", 0.1), ("wrong", -0.9), ("right", 1.1)])
def test_the_bonus_is_the_same(way: str, name: str, reward: float) -> None:
    """Atropos' scores are kept within -1 and 1."""
    text = REPLIES[name].text.replace("<code>", "<think>Then that.</think><code>")
    setup = Setup(LocalSandbox(BOX), PROTOCOL, EpisodeSettings(max_turns=1, structure_bonus=True))
    (made,) = WAYS[way]([(FUNCTION, [text])], setup)
    assert made.reward == (min(reward, 1.0) if way == "atropos" else reward)


def test_an_answer_that_ends_its_session_for_good_has_a_reward() -> None:
    """Its first block does not run again, once the second one has killed the session."""
    begin = time.time()
    blocks = (
        f"import os, time\nassert time.time() < {begin + 0.6}, 'too late'\ndef plus(x): return x + 3",
        f"while time.time() < {begin + 0.6}: time.sleep(0.1)\nos.killpg(0, 9)",
        "print(plus(1))",
    )
    model = Scripted.of([*(f"<think>So.</think><code>\n{block}\n</code>" for block in blocks), "<answer></answer>"])

    async def run() -> None:
        async with LocalSandbox(BOX) as sandbox:
            episode = Episode(FUNCTION, make_protocol("interleaved_tools"), sandbox)
            outcome = (await rollout(episode, model, Sampling())).outcome
        assert outcome.error is None and outcome.reward == -1.0, outcome

    asyncio.run(run())
