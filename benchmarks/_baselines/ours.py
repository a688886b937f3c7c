"""One form of foretrace's sandbox as a process that takes orders: `python -m _baselines.ours KIND [--level N] ...`."""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _baselines.orders import (
    ANSWER,
    AT_ONCE,
    LAST_TOTAL,
    NUMPY_ANSWER,
    NUMPY_WRONG,
    TEST,
    WRONG,
    blocks,
    serve,
    serve_checks,
)
from foretrace.core.problem import Test
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox

Once = Callable[[str], Awaitable[bool]]


async def at_once(once: Once, code: str, count: int) -> int:
    """How many of so many checks pass; each of two loops starts its next check when its last one is through."""

    async def loop(turns: int) -> int:
        return sum([await once(code) for _ in range(turns)])

    return sum(await asyncio.gather(*(loop(len(range(n, count, AT_ONCE))) for n in range(AT_ONCE))))


def checks(runner: asyncio.Runner, sandbox: LocalSandbox, label: str, options: argparse.Namespace) -> None:
    """Serve orders to check the answer: as a test that is judged, or as a program that ends in the assert."""
    answer, wrong = (NUMPY_ANSWER, NUMPY_WRONG) if options.preload == "numpy" else (ANSWER, WRONG)
    tests = [Test(code=TEST)]

    async def judge(code: str) -> bool:
        return (await sandbox.judge(code, tests, entry_point="f")).passed

    async def run(code: str) -> bool:
        return (await sandbox.run(f"{code}\n{TEST}\n")).ok

    once = judge if options.kind == "judge" else run
    if options.workers > 1:
        serve_checks(label, lambda code, count: runner.run(at_once(once, code, count)), answer, wrong)
        return

    async def one_by_one(order: dict[str, Any]) -> dict[str, Any]:
        times, passed = list[float](), 0
        for _ in range(order["count"]):
            begun = time.perf_counter()
            passed += await once(answer)
            times.append(time.perf_counter() - begun)
        return {"passed": passed, "times": times}

    serve(f"{label}, one by one", lambda order: runner.run(one_by_one(order)))


def ten_asserts(runner: asyncio.Runner, sandbox: LocalSandbox, label: str, options: argparse.Namespace) -> None:
    """Serve orders to judge by one test with ten asserts: in the fast form, or in the general one, which a name in the
    test asks for."""
    answer, wrong = "def f(x): return [x * n for n in range(3)]", "def f(x): return [x, x, x]"
    first = "" if options.kind == "asserts-fast" else "zero = 0\n"
    lines = [f"assert f({n}) == [{'zero' if first else '0'}, {n}, {2 * n}]" for n in range(1, 11)]
    tests = [Test(code=first + "\n".join(lines))]
    form = "calls" if first else "values"

    async def once(code: str) -> bool:
        verdict = await sandbox.judge(code, tests, entry_point="f")
        assert verdict.integrity == form and len(verdict.tests) == 10, verdict
        return verdict.passed

    serve_checks(label, lambda code, count: runner.run(at_once(once, code, count)), answer, wrong)


def sessions(runner: asyncio.Runner, sandbox: LocalSandbox, label: str, options: argparse.Namespace) -> None:
    """Serve orders for one session, or for the same blocks with no state kept: each step runs all blocks so far."""

    async def session(given: list[str]) -> tuple[list[float], str]:
        steps, out = list[float](), ""
        async with await sandbox.session() as opened:
            for block in given:
                begun = time.perf_counter()
                out = (await opened.run(block)).stdout
                steps.append(time.perf_counter() - begun)
        return steps, out

    async def replay(given: list[str]) -> tuple[list[float], str]:
        steps, out = list[float](), ""
        for number in range(len(given)):
            begun = time.perf_counter()
            out = (await sandbox.run("".join(given[: number + 1]))).stdout
            steps.append(time.perf_counter() - begun)
        return steps, out

    def act(order: dict[str, Any]) -> dict[str, Any]:
        follow = session if options.kind == "session" else replay
        steps, out = runner.run(follow(blocks(order["working"])))
        return {"passed": int(out.split()[-1:] == [str(LAST_TOTAL)]), "steps": steps}

    serve(label, act)


def human_eval(runner: asyncio.Runner, sandbox: LocalSandbox, label: str, options: argparse.Namespace) -> None:
    """Serve orders to judge all reference solutions of a HumanEval file in one pass."""
    with gzip.open(options.path, "rt") as file:
        rows = [json.loads(line) for line in file if line.strip()]

    async def one(row: dict[str, Any]) -> Any:
        code, tests = row["prompt"] + row["canonical_solution"], [Test(code=row["test"])]
        return await sandbox.judge(code, tests, entry_point=row["entry_point"], setup=row["prompt"])

    async def all_rows() -> list[Any]:
        return await asyncio.gather(*map(one, rows))

    def act(_: dict[str, Any]) -> dict[str, Any]:
        verdicts = runner.run(all_rows())
        forms = Counter(verdict.integrity for verdict in verdicts)
        return {"passed": sum(v.passed for v in verdicts), "total": len(rows), "forms": dict(forms)}

    serve(label, act)


def main() -> None:
    """Start a sandbox and serve until stdin ends."""
    parser = argparse.ArgumentParser()
    kinds = ["judge", "run", "asserts-fast", "asserts-general", "session", "replay", "human-eval"]
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--level", type=int, help="default: the highest")
    parser.add_argument("--workers", type=int, default=AT_ONCE)
    parser.add_argument("--preload", default="none")
    parser.add_argument("--path", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # a bare fork server is measured on purpose
    weak = options.level is not None and options.level < 2
    settings = SandboxSettings(
        workers=options.workers,
        level=options.level,
        preload=options.preload,
        allow_weak_isolation=weak,
        min_level=0 if weak else 2,
    )
    with asyncio.Runner() as runner:
        sandbox = LocalSandbox(settings)
        level = runner.run(sandbox.start()).level
        label = f"foretrace {options.kind}, level {level}" + (", numpy preloaded" if options.preload == "numpy" else "")
        others = {"session": sessions, "replay": sessions, "human-eval": human_eval}
        others |= {"asserts-fast": ten_asserts, "asserts-general": ten_asserts}
        try:
            others.get(options.kind, checks)(runner, sandbox, label, options)
        finally:
            runner.run(sandbox.close())


if __name__ == "__main__":
    main()
