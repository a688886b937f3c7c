"""The free predictors: how right they are on real SWE-style rows, how long they learn, and how long a guess takes.

    python benchmarks/bench_predict.py [--traces 1500] [--rows FILE ... --source NAME] [--maker SCRIPT] [--share .4]

Two tables, with the bar of each figure beside it, and the misses named below. **How right**: real rows, split by
repository; `--rows` names rows of your own (several hundred traces or more, for intervals that say something), else it
is the few SWE-style rows of ../shared/data. **How fast**: `--traces` attempts that the row maker (`SCRIPT N OUT.jsonl`,
looked for in ../shared/bench) makes of a few real ones. How right a predictor is on those says nothing, since what is
tested was made of the same attempts as what is learned. All times are of this process's CPU, since others may use the
machine. 1,500 attempts give 20,000 rows to learn from; with fewer, a fit is said to take what it would if it grew with
the rows, which is more than it does.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"  # the bars are for one core, and threads that wait for work count as CPU time

import foretrace
from foretrace.evaluation.dataset_rows import DatasetRow, read_rows
from foretrace.registry import make_predictor

SHARED = Path(__file__).resolve().parents[2] / "shared"
MAKER = SHARED / "bench" / "make_rows.py"
REAL = ("swe_smith_tool", "swe_smith_xml", "swe_smith_ticks", "swe_gym_openhands", "swe_agent_traj", "swe_play")
"""Folders of real SWE-style rows in ../shared/data/traces."""
PREDICTORS = ("majority", "markov:1", "markov:2", "markov:3", "regression", "memory")
FIT_ROWS = 20_000
TURNS = 1000
"""Turns that are open at a time when the service is timed."""
GUESSES = 150
"""Rows at which guesses are timed."""


class Bar(NamedTuple):
    """What a figure should reach."""

    name: str
    limit: float
    at_most: bool = False

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit


TOP_1, TOP_3 = Bar("exact call, top-1", 0.20), Bar("exact call, top-3", 0.33)
FIT = Bar("fit of 20,000 rows, s", 60.0, at_most=True)
P50, P95 = (Bar(f"a guess {name}, ms", 5.0, at_most=True) for name in ("p50", "p95"))


def main() -> None:
    options = read_options()
    misses: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        if files := options.rows or [path for name in REAL for path in (SHARED / "data/traces" / name).glob("*.jsonl")]:
            dataset = build(Path(folder) / "real", options.source, files, options.share)
            measure_accuracy(dataset, misses)
            measure_service(dataset, Path(folder) / "socket", misses)
        else:
            print("no real rows: name some with --rows")
        if options.maker.exists():
            made = Path(folder) / "made.jsonl"
            subprocess.run([sys.executable, options.maker, str(options.traces), made], check=True)
            measure_times(build(Path(folder) / "made", "swe_smith", [made], 0.2), misses)
        else:
            print(f"no row maker at {options.maker}: how fast is not measured")
    print("\nmissed: " + ("; ".join(misses) if misses else "no bar"))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--traces", type=int, default=1500, help="attempts for the table of times")
    parser.add_argument("--rows", type=Path, nargs="+", default=[], help="files of real SWE-style rows")
    parser.add_argument("--source", default="auto", help="source of these rows")
    parser.add_argument("--share", type=float, default=0.4, help="share of the groups that are tested")
    parser.add_argument("--maker", type=Path, default=MAKER, help="script that makes rows")
    return parser.parse_args()


def build(folder: Path, source: str, files: list[Path], share: float) -> Path:
    """A dataset of these rows, split by repository."""
    foretrace.import_source(source, files, out=folder / "traces")
    recipes = ("proposer", "eval")
    split = (1 - share, 0.0, share)
    foretrace.build(folder / "traces", out=folder / "dataset", outcomes="all", split=split, recipes=recipes)
    return folder / "dataset"


def measure_accuracy(dataset: Path, misses: list[str]) -> None:
    """Print how right each predictor is; add the bars that are missed."""
    files = {name: foretrace.predict(dataset, predictor=name, out=dataset / f"{name}.jsonl") for name in PREDICTORS}
    scored = {name: foretrace.score(file.out, dataset) for name, file in files.items()}
    some = scored["memory"]
    print(
        f"how right, on real rows: {some.rows:,} eval steps of {some.groups} repositories, learned from "
        f"{files['memory'].learned_rows:,} rows of others\n"
    )
    print_row("predictor", "type", f"exact, top-1 (bar {TOP_1.limit:.2f})", f"exact, top-3 (bar {TOP_3.limit:.2f})")
    types: list[float] = []
    for name, report in scored.items():
        found = {row.metric: row for row in report.scores if row.slice == "natural"}
        types.append(found["type_accuracy"].value or 0.0)
        calls = [found.get("exact_call"), found.get("exact_call@3")] if report.predicted == "call" else [None, None]
        print_row(name, *(write_share(row) for row in (found["type_accuracy"], *calls)))
        for bar, row in zip((TOP_1, TOP_3), calls, strict=True):
            if row is not None and not bar.is_met(row.value):
                misses.append(f"{name}: {bar.name} {row.value:.3f} (bar {bar.limit:.2f})")
    compared = foretrace.score(files["regression"].out, dataset, against=files["markov:2"].out).against
    assert compared is not None
    found = next(row for row in compared.differences if (row.slice, row.metric) == ("natural", "type_accuracy"))
    print(f"\ntype, regression less markov:2, on the same draws of tasks: {write_share(found)}")
    order = [types[PREDICTORS.index(name)] for name in ("regression", "markov:2", "majority")]
    if order != sorted(order, reverse=True):
        misses.append("type accuracy: regression >= markov:2 >= majority does not hold")


def measure_service(dataset: Path, address: Path, misses: list[str]) -> None:
    """Print how long `foretrace serve` takes for each kind of line, with `TURNS` turns open; wall time of a client."""
    rows = read_rows(dataset, "eval", "test")
    command = [sys.executable, "-m", "foretrace", "serve", "memory", str(dataset), "--socket", str(address)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process, socket.socket(socket.AF_UNIX) as client:
        assert process.stderr is not None
        while b"serving" not in process.stderr.readline():
            pass
        client.connect(str(address))
        answers = client.makefile("rb")
        took: defaultdict[str, list[float]] = defaultdict(list)

        def send(kind: str, turn: int, **fields: Any) -> None:
            begun = time.perf_counter()
            client.sendall(json.dumps({"type": kind, "turn": str(turn), **fields}).encode() + b"\n")
            assert b'"error"' not in answers.readline()
            took[kind].append(1000 * (time.perf_counter() - begun))

        for turn in range(TURNS):
            send("turn_begins", turn, messages=[message._asdict() for message in rows[turn % len(rows)].prompt])
        for turn in range(TURNS):
            send("text", turn, text="Let me look.")
            send("call", turn, name="bash", arguments={"command": "ls"})
        process.send_signal(signal.SIGINT)
    shown = ", ".join(f"{kind} {statistics.median(each):.2f}" for kind, each in took.items())
    p50 = statistics.median(each for kind in took.values() for each in kind)
    print(f"\nforetrace serve memory, {TURNS:,} turns open, p50 in ms: {shown}; all {p50:.2f} (bar {P50.limit:g})")
    if not P50.is_met(p50):
        misses.append(f"serve: p50 {p50:.1f} ms (bar {P50.limit:g})")


def measure_times(dataset: Path, misses: list[str]) -> None:
    """Print how long each predictor learns and guesses; add the bars that are missed."""
    train, asked = read_rows(dataset, "proposer", "train")[:FIT_ROWS], read_rows(dataset, "eval", "test")[:GUESSES]
    print(f"\nhow fast, on made rows, in CPU time: {len(train):,} rows learned, {len(asked):,} guesses of 5\n")
    print_row(
        "predictor", "fit, s", f"of {FIT_ROWS:,} rows (bar {FIT.limit:g})", f"p50, ms (bar {P50.limit:g})", "p95, ms"
    )
    for name in PREDICTORS:
        fit_s, p50, p95 = time_predictor(name, train, asked)
        whole = fit_s * FIT_ROWS / len(train)
        print_row(name, f"{fit_s:.1f}", f"{whole:.0f}", f"{p50:.2f}", f"{p95:.2f}")
        for bar, value in ((FIT, whole), (P50, p50), (P95, p95)):
            if not bar.is_met(value):
                misses.append(f"{name}: {bar.name} {value:.1f} (bar {bar.limit:g})")


def time_predictor(name: str, train: list[DatasetRow], asked: list[DatasetRow]) -> tuple[float, float, float]:
    """CPU seconds to learn, and CPU milliseconds of a guess: p50 and p95."""
    make_predictor(name).fit(train[: len(train) // 10])  # what is imported at the first use is not part of it
    predictor = make_predictor(name)
    begun = time.process_time()
    predictor.fit(train)
    fit_s = time.process_time() - begun
    took: list[float] = []
    for row in asked:
        begun = time.process_time()
        predictor.predict(row.prompt, 5)
        took.append(1000 * (time.process_time() - begun))
    cuts = statistics.quantiles(took, n=20)
    return fit_s, statistics.median(took), cuts[-1]


def print_row(*cells: str) -> None:
    first, *rest = cells
    print(f"{first:<12}" + "".join(f"{cell:>28}" for cell in rest))


def write_share(row: Any) -> str:
    """A figure and its 95% interval; nothing for one that is not measured."""
    return "-" if row is None else f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]"


if __name__ == "__main__":
    main()
