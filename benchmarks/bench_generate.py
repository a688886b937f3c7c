"""`foretrace generate` beside a bare loop that sends the same requests, alternating in one run, at a server that waits.

    python benchmarks/bench_generate.py [--quick] [--rounds 2] [--window 256] [--json]

The server (a process of its own, see _baselines/canned_server.py) computes nothing: it streams canned replies of about
92 tokens with logprobs, one event a token, over 0.5 to 2 s, which follow from the request. Eight episodes of four turns
a slot. The floor sends the bytes that the engine sent, and reads the streams without looking into them. The engine is
`generate` with its real adapter, protocol, journal and traces folder, and a sandbox that runs nothing. Each is a
process of its own, CPU time and memory are those of that process. Everything goes to bench-out/generate.json.
A missed bar does not change the exit code. The CPU figures grow when others use the cores, whose load is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from _baselines.canned_server import REPLIES, TURNS, events
from _baselines.driver import Driver, Reply
from bench_sandbox import OUT, Bar, at_most, busy_s, own_s, shown_bars

LATENCY_S = (0.5, 2.0)
_FULL = 0.95
_MIDDLE = (0.1, 0.8)
"""Of the time between the first request and the last answer: slots are filled before it, and run out of work behind."""
_VERIFIERS_MS = 6.6
"""CPU of a turn in the verifiers library 0.4.0, with an in-process harness: measured before, elsewhere."""

Seen = list[list[float]]
"""Times at which the number of requests in flight changed, and the number from then on, as pairs."""


class Run(NamedTuple):
    """One run at the server."""

    wall: float
    """Seconds; of the engine without its probe."""
    turn_ms: float
    """CPU milliseconds a turn, of the whole process tree."""
    peak_mb: float
    whole: float
    """Busy slot-seconds of the server over window x wall."""
    middle: float
    """The same over the middle of the run alone."""
    full: float
    """Share of the wall in which at least 95% of the window was busy."""
    reached_s: float | None
    """When that was first so, seconds after the first request; null for never."""
    probe_s: float


def spans(seen: Seen) -> list[tuple[float, float, float]]:
    """Begin, end and requests in flight, for each time between two changes."""
    return [(begin, end, number) for (begin, number), (end, _) in pairwise(seen)]


def share(seen: Seen, window: int) -> float:
    """Share of the window that is busy in the middle of the run."""
    first, length = seen[0][0], seen[-1][0] - seen[0][0]
    low, high = (first + length * part for part in _MIDDLE)
    busy = sum(max(0.0, min(end, high) - max(begin, low)) * number for begin, end, number in spans(seen))
    return busy / (window * (high - low))


def run_of(reply: Reply, seen: Seen, episodes: int, window: int) -> Run:
    """The figures of one run."""
    busy = sum((end - begin) * number for begin, end, number in spans(seen))
    full = sum(end - begin for begin, end, number in spans(seen) if number >= _FULL * window)
    reached = next((at - seen[0][0] for at, number in seen if number >= _FULL * window), None)
    return Run(
        wall=reply.wall,
        turn_ms=reply.cpu * 1000 / (episodes * TURNS),
        peak_mb=reply.said["peak_mb"],
        whole=busy / (window * reply.wall),
        middle=share(seen, window),
        full=full / reply.wall,
        reached_s=reached,
        probe_s=reply.said.get("probe_s", 0.0),
    )


class Bench:
    """The server, the programs, and a folder for what they write."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, window: int) -> None:
        def program(*command: str) -> Driver:
            return stack.enter_context(Driver(sys.executable, *command))

        self.folder, self.window = folder, window
        self.server = program("_baselines.canned_server")
        self.floor, self.ours, self.demo = (
            program("_baselines.generating", kind) for kind in ("floor", "ours", "demo")
        )
        self.record = str(folder / "requests.jsonl")
        self.url = self.server.order(1, do="where").said["url"]

    def warm(self, episodes: int) -> None:
        """Let the engine send everything once, to a server that answers at once, and record it."""
        self.server.order(1, do="begin", latency_s=[0.0, 0.0], record=True)
        self._ours(episodes, self.window)
        self.server.order(1, do="end", record=self.record)

    def one(self, program: str, episodes: int, at_once: int | None) -> Run:
        """One run of `floor` or `ours` at a slow server."""
        self.server.order(1, do="begin", latency_s=LATENCY_S)
        if program == "ours":
            reply = self._ours(episodes, at_once)
        else:
            reply = self.floor.order(episodes, count=episodes, url=self.url, at_once=at_once, record=self.record)
        return run_of(reply, self.server.order(1, do="end").said["seen"], episodes, self.window)

    def _ours(self, episodes: int, at_once: int | None) -> Reply:
        return self.ours.order(episodes, count=episodes, url=self.url, at_once=at_once, folder=str(self.folder))

    def demo_tokens(self, at_once: int, samples: int) -> float:
        """Tokens a second that the demo model writes."""
        reply = self.demo.order(10 * samples, at_once=at_once, samples=samples, folder=str(self.folder))
        return reply.said["tokens"] / reply.wall


def middle_of(runs: list[Run]) -> Run:
    """The median run, figure by figure."""
    return Run(*(None if None in part else statistics.median(part) for part in zip(*runs, strict=True)))


def bars(runs: dict[str, list[Run]], episodes: int, window: int) -> list[Bar]:
    """What was measured beside its target."""
    floor, ours, auto = (middle_of(runs[name]) for name in ("floor", "ours", "auto"))
    ratio = statistics.median(a.wall / b.wall for a, b in zip(runs["ours"], runs["floor"], strict=True))
    tail = "" if episodes >= 8 * window else "; too few episodes a slot for the bar"
    busy = Bar(
        "server busy, middle of the run", ">= 95%", ours.middle * 100, None, "%", f"floor {floor.middle:.1%}{tail}"
    )
    return [
        at_most("wall beside the floor", 1.05, ratio, "x"),
        busy if tail else busy._replace(ok=ours.middle >= _FULL),
        Bar("server busy, whole run", "-", ours.whole * 100, None, "%", f"floor {floor.whole:.1%}: work runs out"),
        at_most(
            "CPU a turn",
            1.5,
            ours.turn_ms,
            " ms",
            f"floor {floor.turn_ms:.2f} ms; the verifiers library's {_VERIFIERS_MS} ms is a cited figure",
        ),
        Bar("concurrency auto: until the window is busy", "-", auto.reached_s, None, " s"),
        Bar("concurrency auto: wall beside the floor", "-", auto.wall / floor.wall, None, "x"),
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures, as they are written to the file."""
    episodes = options.window * (2 if options.quick else 8)
    few = 2 if options.quick else 4
    load_before, begun, busy, own = os.getloadavg(), time.monotonic(), busy_s(), own_s()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=OUT))
        bench = Bench(stack, Path(folder), options.window)
        bench.warm(episodes)
        runs: dict[str, list[Run]] = {"floor": [], "ours": []}
        for number in range(options.rounds):
            for name in ("floor", "ours") if number % 2 == 0 else ("ours", "floor"):
                runs[name].append(bench.one(name, episodes, options.window))
        runs["auto"] = [bench.one("ours", episodes, None)]
        serial = bench.one("ours", few, 1)
        bench.demo_tokens(16, 1)
        demo = {str(at_once): round(bench.demo_tokens(at_once, samples)) for at_once, samples in ((1, 2), (16, 4))}
        others = ((busy_s() - busy) - (own_s() - own)) / (time.monotonic() - begun)
    tokens = [len(events(reply)) - 3 for reply in REPLIES]
    return {
        "machine": f"Python {platform.python_version()}, {platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "load_before": [round(part, 2) for part in load_before],
        "load_after": [round(part, 2) for part in os.getloadavg()],
        "others_cores": round(max(0.0, others), 2),
        "episodes": episodes,
        "turns": TURNS,
        "window": options.window,
        "latency_s": LATENCY_S,
        "tokens_a_reply": statistics.mean(tokens),
        "rounds": options.rounds,
        "runs": {name: [run._asdict() for run in made] for name, made in runs.items()},
        "serial": {"episodes": few, "wall": serial.wall, "extrapolated_s": serial.wall * episodes / few},
        "demo_tokens_per_s": demo,
        "bars": [bar._asdict() for bar in bars(runs, episodes, options.window)],
    }


def line(name: str, run: Run) -> str:
    """One row of the table."""
    reached = "never" if run.reached_s is None else f"{run.reached_s:.2f}"
    return (
        f"{name:26s} {run.wall:7.2f} {run.whole:7.1%} {run.middle:7.1%} {run.full:7.1%} {reached:>8s} "
        f"{run.turn_ms:8.2f} {run.peak_mb:8.0f}"
    )


def table(result: dict[str, Any]) -> str:
    """What is printed for people."""
    window, serial, demo = result["window"], result["serial"], result["demo_tokens_per_s"]
    runs = {name: [Run(**each) for each in made] for name, made in result["runs"].items()}
    slow = "{} to {} s".format(*result["latency_s"])
    lines = [
        f"{result['episodes']:,} episodes x {result['turns']} turns, {slow} a turn, {window} in flight; "
        f"{result['tokens_a_reply']:.0f} tokens a reply",
        f"{result['machine']}, {result['cores']} cores; load average before {result['load_before']}, after "
        f"{result['load_after']}; others used {result['others_cores']} cores meanwhile",
        "",
        f"{'':26s} {'':>7s} {'server busy':>15s} {'>= 95%':>7s} {'reached':>8s} {'CPU ms':>8s} {'peak':>8s}",
        f"{'':26s} {'wall s':>7s} {'whole':>7s} {'middle':>7s} {'busy':>7s} {'s':>8s} {'a turn':>8s} {'MB':>8s}",
    ]
    for name, label in (("floor", "floor: bare aiohttp"), ("ours", "generate"), ("auto", "generate, auto")):
        lines += [
            line(f"{label}, round {n + 1}" if len(runs[name]) > 1 else label, r) for n, r in enumerate(runs[name])
        ]
    lines += [
        f"one after the other: {serial['extrapolated_s']:,.0f} s, extrapolated from {serial['episodes']} episodes",
        f"not in the walls: the engine's probe of the server, once a command: {runs['ours'][0].probe_s:.1f} s here",
        f"the demo model writes {demo['1']:,} tokens/s in one episode at a time, {demo['16']:,} in 16 at once",
        "",
    ]
    return "\n".join([*lines, *shown_bars(result["bars"], without="never")])


def main() -> None:
    """Measure, print, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="default: 2, and 1 with --quick")
    parser.add_argument("--window", type=int, default=256, help="episodes in flight")
    parser.add_argument("--quick", action="store_true", help="two episodes a slot: the server is busy for less of it")
    parser.add_argument("--json", action="store_true", help="print the file's JSON instead of the table")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 2)
    if options.rounds < 1 or options.window < 8 or options.window % 8:
        parser.error("--rounds must be at least 1, and --window a multiple of 8")
    OUT.mkdir(exist_ok=True)
    result = measure(options)
    (OUT / "generate.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
