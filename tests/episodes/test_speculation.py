"""Speculation: the same traces with and without it, whatever is guessed and however code ends; and nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from episodes.generating import PROBLEMS, Ground, stored
from foretrace.actions.taxonomy import ActionType
from foretrace.core.completion import Completion, Request
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import UsageError
from foretrace.core.journal import JournalIndex, count_unsealed, find_journals
from foretrace.core.predictions import GUESSES_FILE, PredictedCall, Prediction, read_predictions
from foretrace.core.problem import Ending, RunResult
from foretrace.core.trace import Isolation, Trace
from foretrace.episodes.generate.engine import generate
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.episodes.proposers import NextTests, Proposer, RecordedGuesses, Situation
from foretrace.episodes.settings import EpisodeSettings
from foretrace.episodes.speculation import EarlyRuns, Operation, ReportedCall, Speculation
from foretrace.episodes.speculation_report import LAUNCHES_FILE, SpeculationReport, SpeculationSettings, read_launches
from foretrace.models.servers.scripted import Scripted
from foretrace.registry import make_protocol
from foretrace.sandbox.base import Limits, SandboxSettings
from foretrace.sandbox.local import LocalSandbox
from sandbox.boxes import marked, until

PROTOCOLS = ("tools", "interleaved_tools", "interleaved_forced", "interleaved", "structured", "inline")
LIMITS = Limits(wall_s=2.0, file_mb=1, scratch_mb=1)

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
        if last or self.pick("abc", "verify", seed, turn) == "a":
            return verify
        more = self.pick(("", *BODIES), "more", seed, turn).format(n=number)  # two acts in one reply
        return f"<think>So.</think>{code}" + f"<code>\n{more}\n</code>" * bool(more)


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
    concurrency: int = 8,
    **settings: Any,
) -> SpeculationReport | None:
    async def work() -> SpeculationReport | None:
        own = LocalSandbox(SandboxSettings(workers=settings.get("width", 2), limits=LIMITS))
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
                GenerateSettings(samples=samples, concurrency=concurrency, episode=EpisodeSettings(max_turns=8)),
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


@pytest.mark.parametrize(
    ("protocol", "samples"),
    [("tools", 2), ("interleaved", 2), *(pytest.param(name, 34, marks=pytest.mark.slow) for name in PROTOCOLS)],
)
def test_traces_are_the_same_with_and_without_speculation(
    ground: Ground, tmp_path: Path, protocol: str, samples: int
) -> None:
    attempt(ground, tmp_path / "plain", protocol, samples=samples)
    plain = read(tmp_path / "plain")
    assert len(plain) == samples * len(PROBLEMS)
    report = None
    for name, proposer in (("tests", NextTests()), ("some", guess_some([*stored(tmp_path / "plain").values()]))):
        report = attempt(ground, tmp_path / name, protocol, proposer, samples=samples)
        early = read(tmp_path / name)
        different = [key for key in plain if plain[key] != early.get(key)]
        assert not different, f"{name}: {plain[different[0]]!r}\n\n{early.get(different[0])!r}"
    assert report is not None and report.guesses and report.failed is None
    if protocol != "interleaved":  # whose attempts are single replies
        assert sum(row.used for row in report.rows.values()) > 0 and report.wasted_s > 0


def wait_then_test(request: Request) -> str:
    """A block that takes a moment, then the tests."""
    if any(m.role == "assistant" for m in request.messages):
        return "<verify></verify>"
    number = next(m.content for m in request.messages if m.role == "user").split("plus ")[1].split(".")[0]
    return f"<think>I add.</think><code>\nimport time\ntime.sleep(0.1)\ndef plus(x):\n    return x + {number}\n</code>"


def test_what_is_handed_over_counts_as_long_as_it_ran(ground: Ground, tmp_path: Path) -> None:
    how: dict[str, Any] = {"samples": 1, "model": Waits(wait_then_test, 0.2), "concurrency": 1, "width": 3}
    report = attempt(ground, tmp_path / "early", "interleaved_tools", NextTests(), **how)
    assert report is not None
    tests, judging = report.rows["verifier"], report.rows["final_answer"]
    assert (tests.calls, tests.hits, judging.calls, judging.hits) == (6, 6, 6, 6)
    assert judging.used == 12 and report.refused == 0
    assert 0 < report.saved_s <= tests.seconds and tests.seconds >= 6 * 0.1
    times = [message.tool_s for trace in stored(tmp_path / "early").values() for message in trace.messages]
    assert all(seconds >= 0.1 for seconds in times if seconds is not None)
    written = json.loads((tmp_path / "early" / "speculation.json").read_text())
    assert written["saved_s"] == report.saved_s and written["rows"]["verifier"]["hits"] == 6
    guesses = read_predictions(tmp_path / "early" / GUESSES_FILE)
    assert len(guesses.rows) == 12 and guesses.predictor == "tests"
    assert {len(rows) for rows in guesses.by_step().values()} == {2}
    launches = [launch for found in read_launches(tmp_path / "early").values() for launch in found]
    assert sum(launch.used for launch in launches) == sum(row.used for row in report.rows.values())
    saved_s = sum(launch.saved_s for launch in launches if launch.used)
    assert saved_s == pytest.approx(report.saved_s + report.judging_saved_s, abs=0.01)
    assert all(launch.after_s >= 0 and launch.step in (2, 4) for launch in launches), launches


class Says(Proposer):
    """Guesses these calls at each reply."""

    name = "says"

    def __init__(self, *calls: tuple[str, object], **fields: Any) -> None:
        self._calls, self._fields = calls, fields

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        made = [PredictedCall(tool, json.dumps(arguments)) for tool, arguments in self._calls[:k]]
        about: dict[str, Any] = {"key": situation.key, "step": len(situation.messages), "action": "tool_call"}
        return [Prediction(**about, rank=rank, calls=(call,), **self._fields) for rank, call in enumerate(made, 1)]


LOOP = ("python", {"code": "while True: pass"})
"""A block that is never asked for."""


class Raises(Says):
    """A predictor that fails, or says what cannot be read."""

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        if len(situation.messages) == 2:
            raise RuntimeError("out of luck")
        return await super().propose(situation, 3)


def test_a_predictor_that_fails_or_talks_nonsense_harms_no_attempt(ground: Ground, tmp_path: Path) -> None:
    report = attempt(
        ground, tmp_path / "t", "tools", Raises(("rm", {}), ("python", [1]), ("python", {"code": 1})), samples=1
    )
    assert report is not None and report.failed == "RuntimeError: out of luck"
    assert report.refused == report.guesses > 0 and report.wasted_s == 0
    attempt(ground, tmp_path / "plain", "tools", samples=1)
    assert read(tmp_path / "t") == read(tmp_path / "plain")


WRITES = ("open('f', 'w')", "import os", "__import__('os')", "json.codecs.open('f', 'w')", "().__class__", "def f(:")


@pytest.mark.parametrize("code", WRITES)
def test_a_block_that_may_write_a_file_is_not_run_early(ground: Ground, tmp_path: Path, code: str) -> None:
    guesses = Says(("python", {"code": code}))
    report = attempt(ground, tmp_path / "t", "interleaved_tools", guesses, samples=1)
    assert report is not None and report.refused == report.guesses > 0
    assert sum(row.launched for row in report.rows.values()) == 0


def test_weak_isolation_and_settings_that_cannot_be_served_are_refused(ground: Ground) -> None:
    speculation = Speculation(NextTests(), ground.sandbox)
    with pytest.raises(UsageError, match="needs isolation level 2, and this is level 1"):
        ground.runner.run(speculation.start(Isolation(level=1)))
    with pytest.raises(UsageError, match="speculate_width"):
        Speculation(NextTests(), ground.sandbox, SpeculationSettings(width=0))


class Never(Proposer):
    """Is asked in vain."""

    name = "never"

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        await asyncio.Event().wait()
        return ()


CODE = ReportedCall(ActionType.TOOL_CALL, "python")
SITUATION = Situation("k", (), ())
RAISES = "def plus(x):\n    return x / 0\nplus(1)\n"


@pytest.mark.parametrize(
    "first",
    ["<code>\nassert False\n</code>", pytest.param("<verify>\nassert False\n</verify>", marks=pytest.mark.slow)],
)
def test_the_second_act_of_a_reply_is_as_without_speculation(ground: Ground, tmp_path: Path, first: str) -> None:
    replies = ("<code>\nx = 1\n</code>", f"{first}<code>\n{RAISES}</code>", "<verify></verify>")

    def say(request: Request) -> Completion:
        turn = sum(m.role == "assistant" for m in request.messages)
        return Completion(text=replies[min(turn, 2)], finish="stop")

    for name, proposer in (("plain", None), ("early", Says(("python", {"code": RAISES})))):
        attempt(ground, tmp_path / name, "interleaved_tools", proposer, samples=1, model=Waits(say, 0.2))
    assert read(tmp_path / "plain") == read(tmp_path / "early")
    assert b"block_3.py" in read(tmp_path / "plain").popitem()[1]


def test_what_is_wasted_is_counted_in_cpu_seconds(ground: Ground) -> None:
    speculation = Speculation(Says(LOOP), ground.sandbox, SpeculationSettings(max_wasted=1.0))
    speculation.begin_attempt(SITUATION.key)
    row = speculation.find_row(*CODE)
    for row.wasted_s, row.wasted_cpu_s, guesses in ((60.0, 0.9, 1), (60.0, 1.0, 0)):
        assert len(ground.runner.run(speculation.propose(SITUATION))) == guesses


def test_no_more_run_at_once_than_the_width(ground: Ground) -> None:
    async def work() -> int:
        running: list[str] = []

        async def run(name: str) -> None:
            running.append(name)
            await asyncio.Event().wait()

        early = EarlyRuns(Speculation(NextTests(), ground.sandbox, SpeculationSettings(width=3)))
        for name in "abcdef":
            early.begin(CODE, Operation(name), functools.partial(run, name))
        for _ in range(20):
            await asyncio.sleep(0)
        await early.close()
        return len(running)

    assert ground.runner.run(work()) == 3


@pytest.mark.parametrize(("ending", "kept", "runs"), [("ok", "a", 1), ("timeout", "a", 2), ("ok", "b", 2)])
def test_only_what_was_kept_and_came_to_its_own_end_is_handed_over(
    ground: Ground, ending: Ending, kept: str, runs: int
) -> None:
    async def work() -> int:
        count = 0

        async def run() -> RunResult:
            nonlocal count
            count += 1
            return RunResult(ending=ending, isolation=Isolation(level=2))

        early = EarlyRuns(Speculation(NextTests(), ground.sandbox))
        early.begin(CODE, Operation("a"), run)
        for _ in range(20):
            await asyncio.sleep(0)
        await early.keep_only([Operation(kept)])
        await early.take(Operation("a"), run)
        await early.close()
        return count

    assert ground.runner.run(work()) == runs


def test_guesses_are_limited_by_confidence_and_late_ones_are_counted(ground: Ground) -> None:
    def ask(proposer: Proposer, **settings: Any) -> tuple[list[int], SpeculationReport]:
        async def work() -> tuple[list[int], SpeculationReport]:
            speculation = Speculation(proposer, ground.sandbox, SpeculationSettings(**settings))
            speculation.begin_attempt(SITUATION.key)
            counts: list[int] = []
            for _ in range(2):
                with contextlib.suppress(TimeoutError):
                    counts.append(len(await asyncio.wait_for(speculation.propose(SITUATION), 0.05)))
            return counts, speculation.make_report()

        return ground.runner.run(work())

    assert ask(Says(LOOP, confidence=0.5), threshold=0.5)[0] == [1, 1]
    assert ask(Says(LOOP, confidence=0.4), threshold=0.5)[0] == ask(Says(LOOP), threshold=0.5)[0] == [0, 0]
    counts, report = ask(Never())
    assert (counts, report.late) == ([], 2)


class WaitsForLaunches(Scripted):
    """A model whose every reply comes when one more guess has been begun early, and that tries one thing after it."""

    def __init__(self, speculation: Speculation) -> None:
        super().__init__("waits", scripts=lambda _: "<code>\nx = 1\n</code>")
        self._speculation, self._replies = speculation, 0

    async def complete(self, request: Request) -> Completion:
        while sum(row.launched for row in self._speculation.rows.values()) <= self._replies:
            await asyncio.sleep(0.005)
        self._replies += 1
        return await super().complete(request)


async def attempt_twice_each(out: Path) -> None:
    settings = GenerateSettings(samples=2, concurrency=1, episode=EpisodeSettings(max_turns=2))
    async with LocalSandbox(SandboxSettings(workers=2)) as own, LocalSandbox(SandboxSettings(workers=2)) as early:
        speculation = Speculation(Says(LOOP), early)
        model, protocol = WaitsForLaunches(speculation), make_protocol("interleaved_tools")
        await generate(PROBLEMS, protocol, model, own, out, settings, speculation=speculation)


def read_steps(out: Path) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """The steps that were guessed at, and those at which something was begun early."""
    launches = [launch for found in read_launches(out).values() for launch in found]
    return {*read_predictions(out / GUESSES_FILE).by_step()}, {(launch.key, launch.step) for launch in launches}


def test_after_kill_nine_each_kept_trace_has_its_guesses_and_launches_and_nothing_is_left(tmp_path: Path) -> None:
    mark, temporary, out = f"mark={tmp_path.name}-{id(tmp_path)}", tmp_path / "tmp", tmp_path / "t"
    temporary.mkdir()
    code = (
        f"import asyncio, sys, pathlib\nsys.path[:0] = [{str(Path(__file__).parents[1])!r}]\n"
        "from episodes.test_speculation import attempt_twice_each\n"
        f"from sandbox.boxes import mark_fork_servers\nmark_fork_servers({mark!r})\n"
        f"asyncio.run(attempt_twice_each(pathlib.Path({str(out)!r})))"
    )
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(temporary)}) as process:
        assert until(lambda: out.exists() and count_unsealed(out) >= 2 and len(marked(mark)) > 4, 60)
        process.kill()
    assert until(lambda: not marked(mark)) and not [*temporary.iterdir()]
    (journal,) = find_journals(out)
    kept = {(key, step) for key in JournalIndex(journal).stored for step in (2, 4)}
    guessed, launched = read_steps(out)
    assert kept <= guessed and kept <= launched
    for name in (GUESSES_FILE, LAUNCHES_FILE):
        with (out / name).open("ab") as file:
            file.write(b'{"key": "plus/0", "st')
    asyncio.run(attempt_twice_each(out))
    keys = stored(out)
    assert len(keys) == 2 * len(PROBLEMS)
    guessed, launched = read_steps(out)
    assert guessed == launched == {(key, step) for key in keys for step in (2, 4)}
    assert read_predictions(out / GUESSES_FILE).problems == {}
