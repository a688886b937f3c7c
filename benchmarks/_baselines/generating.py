"""Many episodes at a model server, as a process that takes orders: `python -m _baselines.generating KIND`.

`floor` sends recorded requests in a bare loop; `ours` runs `generate`; `demo` runs it with the embedded model.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import psutil

from _baselines.canned_server import MODEL, TURNS
from _baselines.orders import serve
from foretrace.core.completion import Sampling
from foretrace.core.problem import Problem, RunResult, Test, TestResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.episodes.generate.engine import GenerateReport, generate
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.models.base import ChatModel, Server
from foretrace.models.servers.demo import Demo
from foretrace.models.servers.openai import OpenAI
from foretrace.problems.builtin import Builtin
from foretrace.protocols.tools import Tools

SAMPLES = 8
_KNOWN = 10
"""Problems of the built-in set that the demo model has by heart."""
_STATEMENT = (
    "Write `merged(left, right)`: a list with the elements of `left` and `right` in turn, beginning with `left`. "
    "When one of them is used up, the rest of the other follows in its order. The lists stay as they are.\n\n"
    ">>> merged([1, 3], [2, 4])\n[1, 2, 3, 4]\n>>> merged([], [{number}])\n[{number}]"
)


class NullSandbox:
    """Runs nothing, and says at once that all went well: what is left is the engine's own work."""

    name = "null"
    _isolation = Isolation(level=0, sandbox=name)

    async def start(self) -> Isolation:
        return self._isolation

    async def guards(self) -> list[Any]:
        return []

    async def run(self, code: str, **_: Any) -> RunResult:
        return RunResult(ending="ok", isolation=self._isolation)

    async def judge(self, code: str, tests: Sequence[Test], **_: Any) -> Verdict:
        passed = tuple(TestResult(name=str(number), passed=True) for number in range(len(tests)))
        return Verdict(tests=passed, integrity="values", isolation=self._isolation)

    async def session(self, **_: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def problem(number: int) -> Problem:
    """One of many problems that hardly differ."""
    shown = ("assert merged([1, 3], [2, 4]) == [1, 2, 3, 4]", f"assert merged([], [{number}]) == [{number}]")
    hidden = tuple(f"assert merged([1] * {k}, [2]) == [1, 2] + [1] * {k - 1}" for k in range(1, 6))
    return Problem(
        id=f"merged/{number}",
        source="merged",
        statement=_STATEMENT.format(number=number),
        entry_point="merged",
        public_tests=tuple(Test(code=code) for code in shown),
        hidden_tests=tuple(Test(code=code) for code in hidden),
    )


class Took(NamedTuple):
    """What a run of `generate` gave."""

    report: GenerateReport
    probe_s: float
    """Before it: asking the server what it can do, once a command and one request after the other."""
    wall_s: float
    """From the call to its report: planning, all episodes, sealing."""


async def run(model: ChatModel, problems: Sequence[Problem], folder: str, samples: int, at_once: int | None) -> Took:
    """All attempts, into a fresh traces folder that is taken away again."""
    out = Path(tempfile.mkdtemp(dir=folder)) / "traces"
    settings = GenerateSettings(samples=samples, sampling=Sampling(max_tokens=512), concurrency=at_once)
    try:
        async with model:
            begun = time.perf_counter()
            await model.probe()
            probed = time.perf_counter()
            report = await generate(problems, Tools(), model, NullSandbox(), out, settings)
            return Took(report, probed - begun, time.perf_counter() - probed)
    finally:
        shutil.rmtree(out.parent)


def ours(order: dict[str, Any]) -> dict[str, Any]:
    """So many episodes at the canned server, `at_once` of them; null leaves that to the engine."""
    samples = min(SAMPLES, order["count"])
    problems = [problem(number) for number in range(order["count"] // samples)]
    model = OpenAI(MODEL, Server(base_url=order["url"]))
    report, probe_s, wall_s = asyncio.run(run(model, problems, order["folder"], samples, order["at_once"]))
    passed = report.counts.stored if report.metrics.get("turns") == TURNS and report.success == 1 else 0
    figures = {"peak_mb": peak_mb(), "tokens": report.completion_tokens, "probe_s": probe_s}
    return {"passed": passed, "wall": wall_s} | figures


def demo(order: dict[str, Any]) -> dict[str, Any]:
    """Episodes of the demo model, each of the problems it knows `samples` times."""
    problems = list(Builtin().load(None))[:_KNOWN]
    report, _, wall_s = asyncio.run(run(Demo(), problems, order["folder"], order["samples"], order["at_once"]))
    tokens = {"tokens": report.completion_tokens, "prompt_tokens": report.prompt_tokens}
    return {"passed": report.counts.stored, "wall": wall_s} | tokens


def floor(order: dict[str, Any]) -> dict[str, Any]:
    """The recorded requests: so many loops, each of which takes the next episode when its last one is through."""
    whole: dict[int, list[bytes]] = {}
    for line in Path(order["record"]).read_bytes().splitlines():
        whole.setdefault(json.loads(line)["seed"], []).append(line)
    todo = iter(list(whole.values())[: order["count"]])
    return {"passed": asyncio.run(_bare(todo, order["url"], order["at_once"])), "peak_mb": peak_mb()}


async def _bare(todo: Iterator[list[bytes]], url: str, at_once: int) -> int:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}

    async def loop(session: aiohttp.ClientSession) -> int:
        done = 0
        for bodies in todo:
            for body in bodies:
                last = b""
                async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                    async for chunk in response.content.iter_any():
                        last = chunk
                if not last.endswith(b"data: [DONE]\n\n"):
                    return -1
            done += len(bodies) == TURNS
        return done

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return sum(await asyncio.gather(*(loop(session) for _ in range(at_once))))


def peak_mb() -> float:
    """Largest resident set of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    return psutil.Process().memory_info().rss / 1e6


if __name__ == "__main__":
    serve(sys.argv[1], {"floor": floor, "ours": ours, "demo": demo}[sys.argv[1]])
