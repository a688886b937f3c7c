"""`foretrace effects` on the command line; what it collects is tested in tests/evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import foretrace
from cli.conftest import Run
from evaluation.timed import READ, RUN, WRITE, Timed, make_trace
from foretrace.core.store import write_traces


def test_a_table_and_a_file(run: Run, tmp_path: Path) -> None:
    traces = [make_trace([Timed(call=READ), Timed(call=RUN), Timed(call=WRITE), Timed(call=READ)])]
    write_traces(traces, tmp_path / "t")
    out = tmp_path / "new" / "effects.json"
    done = run("effects", tmp_path / "t", "--out", out)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "tool, pattern         class       calls  traces  effects",
        "read_file             read_only       2       1  pure_read 2",
        "bash                  unsafe          1       1  sandbox_exec 1",
        "  command: pytest -q  unsafe          1       1  sandbox_exec 1",
        "write_file            idempotent      1       1  local_write 1",
        "",
        "4 calls of 1 traces: 3 tools, 3 patterns",
        f"file: {out}",
    ]
    written = json.loads(out.read_text())
    again = run("effects", tmp_path / "t", "--out", out, "--json").json
    assert again.pop("file") == str(out) and again.pop("replaced") is True and again == written
    assert foretrace.effects(tmp_path / "t").tools == foretrace.effects(traces).tools


def test_a_place_inside_the_traces_is_refused(run: Run, traces: Path) -> None:
    done = run("effects", traces, "--out", traces / "effects.json")
    assert done.code == 2 and "lies inside the traces folder" in done.err
