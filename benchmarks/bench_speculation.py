"""Live speculation, measured, beside the forecast of `replay` on the traces of the same run.

    python benchmarks/bench_speculation.py [--quick] [--protocol NAME]

A scripted model takes 1 s for each reply, and its code runs for 0.5 s before it defines anything, as do the blocks and
judgments of it. On the built-in problems, in each protocol: with the guesses of `tests`, with those of an
earlier run of which every second one is made wrong (`half`), with wrong ones only (`wrong`), and without any.
Everything goes to bench-out/speculation.json. A missed bar does not change the exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from bench_sandbox import OUT, Bar, at_least, at_most, shown_bars

import foretrace
from foretrace.core.completion import Completion, Request
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.core.problem import Problem
from foretrace.core.store import read_traces
from foretrace.episodes.generate.engine import generate
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.episodes.proposers import NextTests, Proposer, RecordedGuesses
from foretrace.episodes.speculation import Speculation
from foretrace.episodes.speculation_report import GUESSES_FILE, SpeculationReport, SpeculationSettings
from foretrace.models.servers.scripted import Script, Scripted
from foretrace.registry import load_usable_problems, make_protocol, make_sandbox
from foretrace.sandbox.base import SandboxSettings

REPLY_S, TOOL_S = 1.0, 0.5
PROTOCOLS = ("interleaved_tools", "interleaved_forced", "tools", "structured", "inline")
WIDTH = TOP = 2


class Slow(Scripted):
    """A model that takes its time."""

    async def complete(self, request: Request) -> Completion:
        await asyncio.sleep(REPLY_S)
        return msgspec.structs.replace(await super().complete(request), seconds=REPLY_S)


def write_turns(problem: Problem, protocol: str) -> list[str]:
    """What a model says that errs once and then solves the problem, in small steps where the protocol has such."""
    waits = f"import time\ntime.sleep({TOOL_S})\n"
    right, wrong = waits + (problem.reference or ""), waits + f"def {problem.entry_point}(*_):\n    return None"
    codes = [f"<think>I try.</think><code>\n{code}\n</code>" for code in (wrong, right)]
    if protocol == "tools":
        return [*codes, "<verify>It passes.</verify>"]
    if protocol == "structured":
        return ["<plan>So.</plan>", codes[0], "<reflect>No.</reflect>", "<plan>So.</plan>", codes[1], "<reflect/>"]
    if protocol == "interleaved_tools":
        return [codes[0], "<verify></verify>", codes[1], "<verify></verify>"]
    if protocol == "interleaved_forced":
        lines = (problem.reference or "").splitlines()
        pieces = [waits, *("\n".join(lines[at : at + 3]) for at in range(0, len(lines), 3))]
        return [*(f"<think>On.</think><code>\n{piece}\n</code>" for piece in pieces), "<verify></verify>"]
    calls = [json.dumps({"name": "python", "arguments": {"code": code}}) for code in (wrong, right)]
    return [*(f"<think>I try.<tool_call>{call}" for call in calls), f"Good.</think>\n```python\n{right}\n```"]


class Run(NamedTuple):
    """One run."""

    wall_s: float
    report: SpeculationReport | None


async def run_once(problems: Sequence[Problem], protocol: str, proposer: Proposer | None, out: Path) -> Run:
    """Generate once, one attempt after the other, so that the wall is that of the attempts."""
    scripts = [Script(turns=list(write_turns(each, protocol)), match=each.statement[:200]) for each in problems]
    own, early = (make_sandbox("local", SandboxSettings(workers=WIDTH)) for _ in range(2))
    speculation = None
    if proposer is not None:
        speculation = Speculation(proposer, early, SpeculationSettings(width=WIDTH, top=TOP))
    async with own, early:
        started = time.perf_counter()
        report = await generate(
            problems,
            make_protocol(protocol),
            Slow("slow", scripts=scripts),
            own,
            out,
            GenerateSettings(concurrency=1),
            speculation=speculation,
        )
        wall_s = time.perf_counter() - started
    return Run(wall_s, report.speculation)


def forecast(out: Path) -> float:
    """Seconds that `replay` says these guesses save."""
    report = foretrace.replay(out, out / GUESSES_FILE, top=TOP, allow=("sandbox_exec",))
    return report.saved_s or 0.0


def guess_again(out: Path, protocol: str, *, right: int) -> RecordedGuesses:
    """What each step of a run called as guesses; but every second one (`right` 1), or each of them (0), is wrong."""
    rows: dict[tuple[str, int], list[Prediction]] = {}
    for trace in read_traces(out):
        for step, message in enumerate(trace.messages):
            for call in message.tool_calls:
                guess = PredictedCall(call.name, call.arguments)
                if not right or len(rows) % 2:
                    code = json.dumps({"code": f"import time\ntime.sleep({TOOL_S})\nx = {len(rows)}"})
                    guess = PredictedCall("run_tests" if protocol in ("tools", "structured") else "python", code)
                rows[trace.key, step] = [Prediction(key=trace.key, step=step, action="verifier", calls=(guess,))]
    return RecordedGuesses("half" if right else "wrong", rows)


def measure(problems: Sequence[Problem], protocol: str, folder: Path) -> dict[str, dict[str, float | None]]:
    """The figures of all runs in one protocol, by what guesses."""
    plain = asyncio.run(run_once(problems, protocol, None, folder / "plain"))
    figures: dict[str, dict[str, float | None]] = {}
    proposers = (
        NextTests(),
        guess_again(folder / "plain", protocol, right=1),
        guess_again(folder / "plain", protocol, right=0),
    )
    for proposer in proposers:
        out = folder / proposer.name
        run = asyncio.run(run_once(problems, protocol, proposer, out))
        assert run.report is not None
        told, saved = forecast(out) if run.report.guesses else 0.0, run.report.saved_s
        figures[proposer.name] = {
            "wall_s": run.wall_s,
            "slower": run.wall_s / plain.wall_s,
            "tool_s": run.report.tool_s,
            "hidden_s": saved,
            "hidden": run.report.share,
            "forecast_s": told,
            "forecast_error": abs(told - saved) / saved if saved > TOOL_S else None,
            "judging_s": run.report.judging_saved_s,
            "wasted_s": run.report.wasted_s,
            "wasted_cpu_s": run.report.wasted_cpu_s,
        }
    return figures


def list_bars(figures: dict[str, dict[str, dict[str, float | None]]]) -> list[Bar]:
    """What is wanted of the figures."""
    hidden = {protocol: kinds["tests"]["hidden"] or 0.0 for protocol, kinds in figures.items()}
    best = max(hidden, key=lambda protocol: hidden[protocol])
    bars = [at_least(f"share of tool time hidden by tests, {best}", 0.25, hidden[best])]
    for protocol, kinds in figures.items():
        bars.append(at_most(f"wall with wrong guesses only, {protocol}", 1.03, kinds["wrong"]["slower"], "x"))
        for name, each in kinds.items():
            if each["forecast_error"] is not None:
                bars.append(at_most(f"forecast off by, {protocol}, {name}", 0.1, each["forecast_error"], "x"))
    return bars


def main() -> None:
    """Run all, print the figures beside the bars, and write them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="3 problems")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append")
    chosen = parser.parse_args()
    problems = load_usable_problems("builtin", None, 3 if chosen.quick else 10)
    figures: dict[str, dict[str, dict[str, float | None]]] = {}
    with tempfile.TemporaryDirectory() as name:
        for protocol in chosen.protocol or PROTOCOLS:
            figures[protocol] = measure(problems, protocol, Path(name, protocol))
            for guesses, each in figures[protocol].items():
                told = (f"{key} {value:.3g}" for key, value in each.items() if value is not None)
                print(f"{protocol}, {guesses}: {', '.join(told)}", flush=True)
    bars = [bar._asdict() for bar in list_bars(figures)]
    print("\n".join(shown_bars(bars, "not measured")))
    OUT.mkdir(exist_ok=True)
    (OUT / "speculation.json").write_text(json.dumps({"figures": figures, "bars": bars}, indent=2))


if __name__ == "__main__":
    main()
