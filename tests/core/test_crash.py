"""kill -9 and a full disk: what was whole stays whole, and running again ends in the same bytes.

The imports run in forked children of one small script, so that SIGKILL and RLIMIT_FSIZE are real.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from core.killing import KILLING
from sources.raw_rows import swe_rows, write_jsonl

_SCRIPT = KILLING + textwrap.dedent("""
    import random, resource
    import numpy, pyarrow.dataset, pyarrow.parquet  # once, before the forks
    from foretrace.core import segments
    from foretrace.sources import importing, taking
    from foretrace.rows.files import FileRows
    from foretrace.sources.swe_smith import SweSmith
    taking.CHECKPOINT_ROWS, segments.MAX_UNMERGED = 9, 0
    old, new, work, mode = map(pathlib.Path, sys.argv[1:5])

    def run(out, path, replace=False):
        return importing.import_rows(SweSmith(), [FileRows(path)], out, shards=3, replace=replace)

    def job(out, replace):
        if replace:
            run(out, old)
            run(out, new, replace=True)
        else:
            run(out, old)

    def killed(out, replace, at):
        if replace:
            shutil.copytree(work / "whole-False", out)
        def stopped():
            bomb(at)
            run(out, new if replace else old, replace)
        return child(stopped)
""")

_KILL = _SCRIPT + textwrap.dedent("""
    results = []
    for replace in (False, True):
        whole = work / f"whole-{replace}"
        assert child(lambda: job(whole, replace)) == 0
        at = 0
        while True:
            at += 1 if at < 4 else random.Random(at).randint(30, 60)
            out = work / f"killed-{replace}-{at}"
            code = killed(out, replace, at)
            before = listed(out) if (out / "manifest.json").exists() else {}  # what is listed is always there
            assert child(lambda: run(out, new if replace else old, replace)) == 0
            files = [str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()]
            left = sorted(set(files) - {".lock", *listed(out)})
            results.append([replace, at, code, len(before), listed(out) == listed(whole), left])
            if code == 0:
                break
    print(json.dumps(results))
""")

_FULL = _SCRIPT + textwrap.dedent("""
    out = work / "out"
    assert child(lambda: run(out, old)) == 0
    before = listed(out)
    def tight():
        sys.dont_write_bytecode = True  # it would be cut short too
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[5]), resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        run(out, new)
    code = child(tight)
    left = [str(p) for p in out.rglob("*.partial")]
    print(json.dumps([code, listed(out) == before, left, child(lambda: run(out, new))]))
""")


def _run(script: str, old: Path, new: Path, work: Path, *more: str) -> list[str]:
    command = [sys.executable, "-c", script, str(old), str(new), str(work), "x", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_kill_nine_anywhere_then_again_gives_the_same_bytes(tmp_path: Path) -> None:
    rows = swe_rows(28)
    changed = [{**row, "model": "model-2"} if n % 3 == 0 else row for n, row in enumerate(swe_rows(36))]
    old, new = write_jsonl(tmp_path / "old.jsonl", rows), write_jsonl(tmp_path / "new.jsonl", changed)
    results = json.loads(_run(_KILL, old, new, tmp_path)[-1])
    assert len([r for r in results if r[2] == -9]) >= 12
    assert {r[0] for r in results if r[2] == -9} == {False, True}
    for replace, at, _, _, same, left in results:
        assert same, f"killed at write {at} (replace: {replace}): other bytes after the second run"
        assert left == [], f"killed at write {at}: files are left that nobody lists"
    assert any(r[3] > 1 for r in results if r[2] == -9), "no kill came after a checkpoint"


@pytest.mark.parametrize("limit", [100, 3000])
def test_full_disk_is_one_clear_error_and_loses_nothing(tmp_path: Path, limit: int) -> None:
    more = [{**row, "traj_id": f"other-{n}"} for n, row in enumerate(swe_rows(30))]
    old, new = write_jsonl(tmp_path / "old.jsonl", swe_rows(20)), write_jsonl(tmp_path / "new.jsonl", more)
    message, last = _run(_FULL, old, new, tmp_path, str(limit))
    assert "cannot write" in message and str(tmp_path / "out") in message
    assert json.loads(last) == [1, True, [], 0]
