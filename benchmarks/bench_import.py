"""`import auto` of a mixed folder beside `json.loads` of every line, and beside agentpile.

    python benchmarks/bench_import.py [--mb 200] [--data FOLDER] [--agentpile PYTHON]

The folder holds every shared source, session and fixture (looked for in ../shared/data), repeated with ids of their
own: rows within their file, sessions as files. agentpile is measured on the files that both read, and writes its runs
as JSON; `--agentpile` is the interpreter of an environment in which version 0.3.1 is installed (by default this one),
and where it is not, that part is left out and says so. Memory is the resident set summed over the process tree. On a
machine that others use, compare CPU seconds: the figures per core are by these.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_build import ROOT, Run, run, size

DATA = ROOT.parent / "shared" / "data"
FOLDERS = ("atif", "formats", "sessions", "traces")
ROW_IDS = ("id", "traj_id", "trajectory_id", "session_id", "run_id")
FLOOR = """
import json, sys
from pathlib import Path
for path in sorted(Path(sys.argv[1]).rglob("*")):
    if path.is_file():
        data = path.read_bytes()
        try:
            for line in data.splitlines():
                json.loads(line)
        except ValueError:
            try:
                json.loads(data)
            except ValueError:
                pass
"""
RECOGNITION = """
import sys, time
from pathlib import Path
from foretrace.registry import make_recognizers
from foretrace.sources.recognizing import find_files
sources, begun, cpu = list(make_recognizers().values()), time.perf_counter(), time.process_time()
find_files([Path(sys.argv[1])], sources)
print(time.perf_counter() - begun, time.process_time() - cpu)
"""
AGENTPILE = """
import sys
from pathlib import Path
import agentpile
out, runs, steps = Path(sys.argv[2]), 0, 0
with out.open("w") as file:
    for path in Path(sys.argv[1]).read_text().splitlines():
        for run in agentpile.load(path):
            file.write(run.to_json() + "\\n")
            runs += 1
            steps += len(run.steps)
print(runs, steps)
"""
TRY_AGENTPILE = """
import sys
from pathlib import Path
import agentpile
for path in sys.argv[1:]:
    try:
        if all(run.steps for run in agentpile.load(path)):
            print(path)
    except Exception:
        pass
"""


def repeat_rows(path: Path, out: Path, copies: int) -> None:
    """A file of rows with each of them so many times, each with an id of its own."""
    rows = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    with out.open("w") as file:
        for copy in range(copies):
            for row in rows:
                own: dict[str, Any] = {"copy": copy}
                for name in ROW_IDS:
                    if isinstance(value := row.get(name), str):
                        own[name] = f"{value} {copy}"
                    elif isinstance(value, int):
                        own[name] = value * 1000 + copy
                file.write(json.dumps({**row, **own}) + "\n")


def find_ids(folder: Path, work: Path) -> set[str]:
    """The ids of all sessions in a folder, as foretrace finds them."""
    import foretrace
    from foretrace.core.store import read_traces

    foretrace.import_source("auto", folder, out=work, redact=False)
    pieces = {piece for trace in read_traces(work) for piece in re.split(r"[@/:]", trace.key)[1:]}
    return {piece for piece in pieces if len(piece) >= 4 and not piece.startswith("row-")}


def copy_sessions(folder: Path, out: Path, ids: set[str], copies: int) -> None:
    """Copies of a folder; each id ends in another number in each of them, in names of files too."""
    pattern = re.compile("|".join(sorted(map(re.escape, ids), key=len, reverse=True)))
    for copy in range(copies):

        def rename(found: re.Match[str], copy: int = copy) -> str:
            return f"{found[0][:-3]}{copy:03x}"

        for path in folder.rglob("*"):
            if not path.is_file() or path.name == "README.md":
                continue
            target = out / f"{copy:03}" / pattern.sub(rename, str(path.relative_to(folder)))
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(errors="surrogateescape")
            renamed = pattern.sub(rename, text)
            if renamed == text and text.startswith("{"):
                renamed = f'{{"copy": {copy}, {text[1:]}'
            target.write_text(renamed, errors="surrogateescape")


def make_folder(data: Path, out: Path, megabytes: float) -> None:
    """The mixed folder."""
    originals = [data / name for name in FOLDERS]
    copies = round(megabytes * 1e6 / sum(map(size, originals)))
    for path in (data / "traces").glob("*/rows.jsonl"):
        target = out / "traces" / f"{path.parent.name}.jsonl"
        target.parent.mkdir(parents=True, exist_ok=True)
        repeat_rows(path, target, copies)
    for name in FOLDERS[:3]:
        copy_sessions(data / name, out / name, find_ids(data / name, out.parent / f"ids-{name}"), copies)


def list_files(folder: Path) -> Iterator[Path]:
    """All files, by name."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def import_folder(folder: Path | list[Path], out: Path, *options: str) -> tuple[Run, dict[str, Any]]:
    """Import by the command, and the counts that it gives."""
    shutil.rmtree(out, ignore_errors=True)
    paths = folder if isinstance(folder, list) else [folder]
    program = [sys.executable, "-m", "foretrace", "import", "auto", *paths, "--out", out, "--quiet", *options]
    spent = run(*program)
    manifest = json.loads((out / "manifest.json").read_text())
    return spent, manifest


def find_common(python: str, data: Path) -> list[str] | None:
    """Files of the originals that agentpile reads; `None` where it is not installed."""
    paths = [str(path) for name in FOLDERS for path in list_files(data / name) if path.suffix in (".json", ".jsonl")]
    tried = subprocess.run([python, "-c", TRY_AGENTPILE, *paths], capture_output=True, text=True, check=False)
    return None if tried.returncode else tried.stdout.split()


def make_common(data: Path, common: list[str], out: Path, megabytes: float) -> None:
    """A folder with copies of the files that both read, rows in files of their own."""
    copies = round(megabytes * 1e6 / sum(Path(path).stat().st_size for path in common))
    kept = out.parent / "common-originals"
    for path in map(Path, common):
        if path.name == "rows.jsonl":
            out.mkdir(parents=True, exist_ok=True)
            repeat_rows(path, out / f"{path.parent.name}.jsonl", copies)
        else:
            target = kept / path.relative_to(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    copy_sessions(kept, out / "files", find_ids(kept, out.parent / "ids-common"), copies)


def line(name: str, spent: Run, megabytes: float, traces: int | None = None) -> str:
    """One row of the table."""
    per_core = f"{traces / spent.cpu:9.0f}" if traces else " " * 9
    return (
        f"{name:34s} {spent.wall:7.2f} {spent.cpu:7.2f} {spent.rss:7.0f} {megabytes / spent.wall:7.1f} "
        f"{megabytes / spent.cpu:7.1f} {per_core}"
    )


def main() -> None:
    """Print the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--agentpile", default=sys.executable, metavar="PYTHON")
    options = parser.parse_args()
    if not (options.data / "traces").is_dir():
        sys.exit(f"{options.data} is not there: nothing to import (--data)")
    work = ROOT / "bench-out" / "import"
    shutil.rmtree(work, ignore_errors=True)
    mixed = work / "mixed"
    mixed.mkdir(parents=True)
    make_folder(options.data, mixed, options.mb)
    megabytes, files = size(mixed) / 1e6, sum(1 for _ in list_files(mixed))
    print(f"{files:,} files, {megabytes:.0f} MB")
    print(f"{'':34s} {'wall s':>7s} {'CPU s':>7s} {'RSS MB':>7s} {'MB/s':>7s} {'per core':>8s} {'traces/s':>8s}")
    floor = run(sys.executable, "-c", FLOOR, mixed)
    print(line("json.loads of every line", floor, megabytes))
    found = subprocess.run([sys.executable, "-c", RECOGNITION, mixed], capture_output=True, text=True, check=True)
    wall, cpu = map(float, found.stdout.split())
    known = Run(wall, cpu, 0.0)
    print(line("recognition", known, megabytes))
    plain, _ = import_folder(mixed, work / "plain", "--no-redact")
    spent, manifest = import_folder(mixed, work / "traces")
    traces = manifest["counts"]["traces"]
    print(line("foretrace import auto --no-redact", plain, megabytes, traces))
    print(line("foretrace import auto", spent, megabytes, traces))
    figures = {
        "mb_per_s_two_cores": round(megabytes / spent.wall, 1),
        "mb_per_cpu_s": round(megabytes / spent.cpu, 1),
        "mb_per_cpu_s_no_redact": round(megabytes / plain.cpu, 1),
        "traces_per_cpu_s": round(traces / spent.cpu),
        "share_of_json_loads": round(floor.cpu / spent.cpu, 2),
        "recognition_share": round(known.cpu / spent.cpu, 3),
        "rss_mb": round(spent.rss),
    }
    common = find_common(options.agentpile, options.data)
    if common is None:
        print(f"agentpile is not installed for {options.agentpile}: left out (--agentpile PYTHON)")
    else:
        both = work / "both"
        make_common(options.data, common, both, options.mb / 4)
        listed = work / "both.txt"
        listed.write_text("\n".join(map(str, list_files(both))))
        megabytes = size(both) / 1e6
        theirs = run(options.agentpile, "-c", AGENTPILE, listed, work / "agentpile.jsonl")
        ours, manifest = import_folder(both, work / "both-traces")
        plain, _ = import_folder(both, work / "both-plain", "--no-redact")
        print(f"{megabytes:.0f} MB of {len(common)} files that both read, repeated")
        print(line("agentpile 0.3.1, runs as JSON", theirs, megabytes))
        print(line("foretrace import auto --no-redact", plain, megabytes, manifest["counts"]["traces"]))
        print(line("foretrace import auto", ours, megabytes, manifest["counts"]["traces"]))
        figures["agentpile_wall_ratio"] = round(theirs.wall / ours.wall, 2)
        figures["agentpile_cpu_ratio"] = round(theirs.cpu / ours.cpu, 2)
        figures["agentpile_cpu_ratio_no_redact"] = round(theirs.cpu / plain.cpu, 2)
    shutil.rmtree(work)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
