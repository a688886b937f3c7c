"""Make the fingerprints of a benchmark: src/foretrace/dataset/filters/fingerprints/NAME.jsonl.

    python scripts/make_benchmark_fingerprints.py humaneval [--rows FILE] [--common FOLDER ...]

NAME is `humaneval` or `mbpp`, whose rows are read from FILE, else from the Hub. The file has no text: of each statement
and solution the hashes of every eight words in a row. Those that stand in the Python files of a FOLDER (by default the
standard library and what is installed beside it) are not looked up, since they tell nothing of the benchmark.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from foretrace.clean.benchmarks import Fingerprint, make_fingerprint
from foretrace.clean.word_runs import SEED_WORDS, Array, cut_windows, number_words
from foretrace.dataset.filters.benchmark_sets import (
    FINGERPRINTS,
    FingerprintHeader,
    FingerprintRow,
    read_benchmarks,
)
from foretrace.problems.humaneval import HumanEval
from foretrace.problems.mbpp import Mbpp

SETS = {each.name: each for each in (HumanEval, Mbpp)}
FIELDS = ("statement", "solution")


def find_common(hashes: Array, folders: Iterable[Path]) -> Array:
    """Which of some windows stand in the Python files of folders: their hashes, sorted."""
    common = np.empty(0, np.uint64)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            found = cut_windows(number_words(path.read_text(errors="replace"))).hashes
            common = np.union1d(common, found[np.isin(found, hashes)])
    return common


def leave_out(printed: Fingerprint, common: Array) -> Fingerprint:
    """The fingerprint that does not look up windows of which common ones cover half of the words."""
    windows = printed.read_windows()
    covered = np.zeros(printed.words, np.int64)
    for at in np.flatnonzero(np.isin(windows.hashes, common)).tolist():
        covered[at : at + SEED_WORDS] = 1
    sums = np.convolve(covered, np.ones(SEED_WORDS, np.int64), "valid") if len(windows.hashes) else covered[:0]
    tell = windows.tell & (sums * 2 < SEED_WORDS)
    return msgspec.structs.replace(printed, tell=np.packbits(tell).tobytes())


def main() -> None:
    """Write the file and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=sorted(SETS))
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--common", type=Path, nargs="*")
    args = parser.parse_args()
    paths = sysconfig.get_paths()
    folders = args.common if args.common is not None else sorted({Path(paths[k]) for k in ("stdlib", "purelib")})
    problems = read_benchmarks((f"{args.name}={args.rows}" if args.rows else args.name,))[0]
    printed = [{f: make_fingerprint(text) for f in FIELDS if (text := getattr(p, f))} for p in problems]
    hashes = np.concatenate([each.read_windows().hashes for fields in printed for each in fields.values()])
    common = find_common(hashes, folders)
    rows = [
        FingerprintRow(id=p.id, fingerprints={f: leave_out(each, common) for f, each in fields.items()})
        for p, fields in zip(problems, printed, strict=True)
    ]
    looked_up = sum(int(each.read_windows().tell.sum()) for row in rows for each in row.fingerprints.values())
    tells = sum(int(each.read_windows().tell.sum()) for fields in printed for each in fields.values())
    known = SETS[args.name]
    header = FingerprintHeader(
        benchmark=args.name, origin=known.hub.repo, license=known.license, left_out=tells - looked_up
    )
    path = FINGERPRINTS / f"{args.name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (header, *rows)))
    size = path.stat().st_size
    print(f"{path.name}: {len(rows)} problems, {len(hashes):,} windows, {tells - looked_up} left out, {size:,} bytes")


if __name__ == "__main__":
    main()
