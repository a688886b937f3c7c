"""Speculation: the same traces with and without it, whatever is guessed and however code ends; and nothing stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from episodes.generating import PROBLEMS, Ground, stored
from foretrace.core.completion import Completion, Request
from foretrace.core.digest import hash_fraction
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.core.trace import Trace
from foretrace.episodes.generate.engine import generate
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.episodes.settings import EpisodeSettings
from foretrace.episodes.speculation import (
    NextTests,
    Proposer,
    RecordedGuesses,
    Speculation,
    SpeculationReport,
    SpeculationSettings,
)
from foretrace.models.servers.scripted import Scripted
from foretrace.registry import make_protocol
from foretrace.sandbox.base import Limits, SandboxSettings
from foretrace.sandbox.local import LocalSandbox

PROTOCOLS = ("tools", "interleaved_tools", "interleaved_forced", "interleaved", "structured", "inline")
LIMITS = Limits(wall_s=0.8, file_mb=1, scratch_mb=1)

BODIES = (
    "def plus(x):\n    return x + {n}",
    "def plus(x):\n    return x - 1",
    "def plus(x):\n    return 1 / 0",
    "def plus(x:\n    return 2",
    "import random\ndef plus(x):\n    return x + {n}\nprint(random.random(), plus(2))",
    "TOTAL = [{n}]\ndef plus(x):\n    return x + TOTAL[0]\nprint(TOTAL)",
    "TOTAL.append(1)\nprint(TOTAL)\nplus('a')",
    "with open('f', 'a') as file:\n    file.write('x')\nprint(open('f').read())",
    "data = open('big', 'wb')\nwhile True:\n    data.write(bytes(1 << 18))\n    data.flush()",
    "import os\nos._exit(3)",
    "raise SystemExit(2)",
    "print('y' * 100_000)",
    "block = bytearray(10**10)",
    "def helper():\n    return {n}\ndef plus(x):\n    return x + helper()",
    "helper = lambda: 7\nprint(plus(1))",
)
SLOW_BODY = "import time\ntime.sleep(60)"
CHECKS = ("", "assert plus(1) == 1 + {n}", "assert plus(0) > 10**6", "print(plus(5))", "open('f', 'w')", "x = plus")


class Script:
    """A model whose every reply is chosen by a hash of its task, its sample and its turn; it takes a moment."""

    def __init__(self, protocol: str, waits_s: float = 0.02) -> None:
        self._protocol, self._waits_s = protocol, waits_s

    def pick(self, choices: Sequence[str], *of: object) -> str:
        return choices[int(hash_fraction(json.dumps(of)) * len(choices))]

    def __call__(self, request: Request) -> str:
        task = next(m.content for m in request.messages if m.role == "user")
        number = int(task.split("Return x plus ")[1].split(".")[0])
        turn = sum(m.role == "assistant" for m in request.messages) + request.prefill.count("</tool_call>")
        seed = request.sampling.seed or 0
        is_slow = hash_fraction(f"slow {seed} {turn}") < 0.004
        body = SLOW_BODY if is_slow else self.pick(BODIES, "body", seed, turn).format(n=number)
        check = self.pick(CHECKS, "check", seed, turn).format(n=number)
        code = f"<code>\n{body}\n</code>"
        verify = f"<verify>\n{check}\n</verify>"
        last = turn > 4
        if self._protocol == "inline":
            if last or self.pick("abc", "end", seed, turn) == "a":
                return f"That is it.</think>\n```python\n{BODIES[0].format(n=number)}\n```"
            return f"<think>a<tool_call>{json.dumps({'name': 'python', 'arguments': {'code': body}})}</tool_call>"
        if self._protocol == "interleaved":
            return f"<think>I add.</think>{code}{self.pick(('', code), seed, turn)}{verify}"
        if self._protocol == "structured":
            return (f"<plan>{turn}</plan>", code, "<reflect>So it is.</reflect>")[turn % 3]
        if self._protocol == "tools":
            return "<verify>It is right.</verify>" if last or (turn and self.pick("ab", seed, turn) == "a") else code
        return verify if last or self.pick("abc", "verify", seed, turn) == "a" else f"<think>So.</think>{code}"


class Waits(Scripted):
    """A scripted model that takes its time."""

    def __init__(self, script: Any, seconds: float = 0.02) -> None:
        super().__init__("waits", scripts=script)
        self._waits_s = seconds

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(self._waits_s)
        return msgspec.structs.replace(await super().complete(request), seconds=self._waits_s)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with asyncio.Runner() as runner:
        sandbox = LocalSandbox(SandboxSettings(workers=2, limits=LIMITS))
        yield Ground(runner, sandbox)
        runner.run(sandbox.close())


def attempt(
    ground: Ground,
    out: Path,
    protocol: str,
    proposer: Proposer | None = None,
    *,
    samples: int = 2,
    model: Waits | None = None,
    early: LocalSandbox | None = None,
    **settings: Any,
) -> SpeculationReport | None:
    async def work() -> SpeculationReport | None:
        own = early or LocalSandbox(SandboxSettings(workers=2, limits=LIMITS))
        speculation = None
        if proposer is not None:
            speculation = Speculation(proposer, own, SpeculationSettings(**settings))
        async with own:
            await generate(
                PROBLEMS,
                make_protocol(protocol),
                model or Waits(Script(protocol)),
                ground.sandbox,
                out,
                GenerateSettings(samples=samples, concurrency=8, episode=EpisodeSettings(max_turns=8)),
                speculation=speculation,
            )
        return None if speculation is None else speculation.make_report()

    return ground.runner.run(work())


def without_clocks(trace: Trace) -> bytes:
    messages = tuple(msgspec.structs.replace(m, model_s=None, tool_s=None, started=None) for m in trace.messages)
    metrics = {name: value for name, value in trace.outcome.metrics.items() if name not in ("model_s", "tool_s")}
    outcome = msgspec.structs.replace(trace.outcome, metrics=metrics)
    return msgspec.json.encode(msgspec.structs.replace(trace, id="", messages=messages, outcome=outcome))


def read(out: Path) -> dict[str, bytes]:
    return {key: without_clocks(trace) for key, trace in stored(out).items()}


def guess_some(traces: Sequence[Trace]) -> RecordedGuesses:
    """What each step called, at half of them; else, or behind it, what another step called."""
    calls = [
        (trace.key, step, PredictedCall(call.name, call.arguments))
        for trace in traces
        for step, message in enumerate(trace.messages)
        for call in message.tool_calls
    ]
    rows: dict[tuple[str, int], list[Prediction]] = {}
    for key, step, call in calls:
        wrong = calls[int(hash_fraction(f"{key} {step}") * len(calls))][2]
        right_first = hash_fraction(f"{step} {key}") < 0.5
        both = (call, wrong) if right_first else (wrong, call)
        rows[key, step] = [
            Prediction(key=key, step=step, rank=rank, action="verifier", calls=(each,))
            for rank, each in enumerate(both, 1)
        ]
    return RecordedGuesses("some", rows)


def compare(ground: Ground, folder: Path, protocol: str, samples: int) -> SpeculationReport:
    attempt(ground, folder / "plain", protocol, samples=samples)
    plain = read(folder / "plain")
    assert len(plain) == samples * len(PROBLEMS)
    total = None
    for name, proposer in (("tests", NextTests()), ("some", guess_some([*stored(folder / "plain").values()]))):
        total = attempt(ground, folder / name, protocol, proposer, samples=samples)
        early = read(folder / name)
        different = [key for key in plain if plain[key] != early.get(key)]
        assert not different, f"{name}: {plain[different[0]]!r}\n\n{early.get(different[0])!r}"
    assert total is not None
    return total


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_traces_are_the_same_with_and_without_speculation(ground: Ground, tmp_path: Path, protocol: str) -> None:
    report = compare(ground, tmp_path, protocol, samples=2)
    assert report.guesses and report.failed is None
    if protocol != "interleaved":  # whose attempts are single replies
        assert sum(row.used for row in report.rows.values()) > 0 and report.wasted_s > 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_hundred_traces_are_the_same(ground: Ground, tmp_path: Path, protocol: str) -> None:
    compare(ground, tmp_path, protocol, samples=34)
