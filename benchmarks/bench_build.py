"""Import, label and build beside a baseline converter and beside a floor: ratios taken in one run, interleaved.

    python benchmarks/bench_build.py [--rows 1000] [--curve 5000,20000] [--rounds 2] [--baseline SCRIPT --maker SCRIPT]

The baseline (`SCRIPT ROWS.jsonl OUTDIR`) and the row maker (`SCRIPT N OUT.jsonl`) are looked for in ../shared/bench;
without them the bench says so and ends. Memory is the resident set summed over the process tree, sampled every 100 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "bench"
FLOOR = """
import sys, msgspec, pyarrow as pa, pyarrow.parquet as pq
from foretrace.core.trace import encode_trace
from foretrace.rows.base import RowRef
from foretrace.sources.swe_smith import SweSmith
source, records = SweSmith(), []
for number, line in enumerate(open(sys.argv[1], "rb")):
    records.append(encode_trace(source.to_trace(msgspec.json.decode(line), RowRef(number))))
pq.write_table(pa.table({"record": pa.array(records, pa.binary())}), sys.argv[2], compression="zstd")
"""


class Run(NamedTuple):
    """What one command took."""

    wall: float
    cpu: float
    rss: float
    """MB, summed over the process tree, at its peak."""


def run(*command: str | Path) -> Run:
    """Run a command to its end and watch its process tree.

    It looks ten times a second: finding the descendants reads all of /proc, which takes time from commands that use
    all cores.
    """
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = psutil.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=errors)
        peak, before = 0, resource.getrusage(resource.RUSAGE_CHILDREN)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                tree = [process, *process.children(recursive=True)]
                peak = max(peak, sum(member.memory_info().rss for member in tree))
            time.sleep(0.1)
        wall = time.perf_counter() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(map(str, command))}\n{errors.read().decode()}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(wall, cpu, peak / 1e6)


def size(path: Path) -> int:
    """Bytes of a file or of all files in a folder."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_size for p in files)


def ours(rows: Path, out: Path, *, gates: bool, workers: int = 2) -> dict[str, Run]:
    """Import, label and build with the command line, as a user would."""
    shutil.rmtree(out, ignore_errors=True)
    command = Path(sys.executable).with_name("foretrace")
    config = out.with_suffix(".toml")
    config.write_text(f"statistical_gates = {'true' if gates else 'false'}\n")
    traces, dataset = out / "traces", out / "dataset"
    return {
        "import": run(command, "import", "swe_smith", rows, "--out", traces, "--quiet"),
        "label": run(command, "label", traces, "--out", out / "labels.parquet", "--quiet"),
        "build": run(
            command, "build", traces, "--out", dataset, "--workers", str(workers), "--quiet", "--config", config
        ),
    }


def one_command(rows: Path, out: Path) -> Run:
    """Rows to dataset with all gates, by one command."""
    shutil.rmtree(out, ignore_errors=True)
    command = Path(sys.executable).with_name("foretrace")
    return run(command, "build", f"swe_smith={rows}", "--out", out / "dataset", "--quiet")


def line(name: str, parts: Run, written: int = 0) -> str:
    """One row of the table."""
    megabytes = f"{written / 1e6:9.1f}" if written else " " * 9
    return f"{name:34s} {parts.wall:7.2f} {parts.cpu:7.2f} {parts.rss:8.0f} {megabytes}"


def together(parts: dict[str, Run]) -> Run:
    """Runs one after the other."""
    runs = parts.values()
    return Run(sum(r.wall for r in runs), sum(r.cpu for r in runs), max(r.rss for r in runs))


def main() -> None:
    """Print the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--curve", default="5000", help="more numbers of rows for the one command; empty for none")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--baseline", type=Path, default=SHARED / "seed_converter.py")
    parser.add_argument("--maker", type=Path, default=SHARED / "make_rows.py")
    options = parser.parse_args()
    for script in (options.baseline, options.maker):
        if not script.exists():
            sys.exit(f"{script} is not there: nothing to measure against (--baseline, --maker)")
    folder = ROOT / "bench-out"
    folder.mkdir(exist_ok=True)
    rows = folder / f"rows-{options.rows}.jsonl"
    run(sys.executable, options.maker, str(options.rows), rows)
    base: list[Run] = []
    fast: list[dict[str, Run]] = []
    full: list[Run] = []
    floors: list[Run] = []
    ones: list[Run] = []
    for _ in range(options.rounds):
        shutil.rmtree(folder / "baseline", ignore_errors=True)
        base.append(run(sys.executable, options.baseline, rows, folder / "baseline"))
        floors.append(run(sys.executable, "-c", FLOOR, rows, folder / "floor.parquet"))
        full.append(ours(rows, folder / "full", gates=True)["build"])
        fast.append(ours(rows, folder / "ours", gates=False))
        ones.append(one_command(rows, folder / "one"))
    imported = run(
        Path(sys.executable).with_name("foretrace"),
        "import",
        "swe_smith",
        rows,
        "--out",
        folder / "imported",
        "--quiet",
    )
    print(f"{options.rows} rows, {size(rows) / 1e6:.0f} MB; best of {options.rounds} rounds")
    print(f"{'':34s} {'wall s':>7s} {'CPU s':>7s} {'RSS MB':>8s} {'MB out':>9s}")
    written = {name: size(folder / name) for name in ("baseline", "ours")}
    best_base, best_floor = min(base), min(floors)
    best = min((together(parts), parts) for parts in fast)
    total, parts = best
    print(line("baseline converter", best_base, written["baseline"]))
    print(line("floor: parse, encode, one Parquet", best_floor, size(folder / "floor.parquet")))
    print(line("foretrace import + label + build", total, written["ours"]))
    for name, each in parts.items():
        print(line(f"  {name}", each))
    print(line("foretrace build swe_smith=ROWS", min(ones), size(folder / "one")))
    gates = min(full).wall - min(p["build"] for p in fast).wall
    figures: dict[str, Any] = {
        "wall_ratio": round(
            statistics.median(b.wall for b in base) / statistics.median(together(p).wall for p in fast), 2
        ),
        "one_command_wall_ratio": round(
            statistics.median(b.wall for b in base) / statistics.median(o.wall for o in ones), 2
        ),
        "bytes_ratio": round(written["baseline"] / written["ours"], 1),
        "rss_mb": round(max(together(p).rss for p in fast)),
        "statistical_gates_s": round(gates, 2),
        "import_traces_per_s": round(options.rows / imported.cpu),
    }
    for count in map(int, filter(None, options.curve.split(","))):
        many = folder / f"rows-{count}.jsonl"
        run(sys.executable, options.maker, str(count), many)
        large = one_command(many, folder / "large")
        print(line(f"foretrace build, {count} rows", large, size(folder / "large")))
        share = options.rows / count
        figures[f"{count}_rows"] = {
            "wall_per_row": round(large.wall * share / min(ones).wall, 3),
            "cpu_per_row": round(large.cpu * share / min(ones).cpu, 3),
            "rss": round(large.rss / max(o.rss for o in ones), 3),
        }
        many.unlink()
        shutil.rmtree(folder / "large")
    shutil.rmtree(folder)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
