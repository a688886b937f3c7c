"""`foretrace effects` on the command line; what it collects is tested in tests/evaluation."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import foretrace
from cli.conftest import Run
from evaluation.timed import DEPLOY, READ, RUN, WRITE, Timed, make_trace
from foretrace.core.errors import UsageError
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
        "4 calls of 1 trace: 3 tools, 3 patterns",
        f"file: {out}",
    ]
    written = json.loads(out.read_text())
    again = run("effects", tmp_path / "t", "--out", out, "--json").json
    assert again.pop("file") == str(out) and again.pop("replaced") is True and again == written
    assert foretrace.effects(tmp_path / "t").tools == foretrace.effects(traces).tools
    refused = run("effects", tmp_path / "nothing", "--out", tmp_path / "e.csv")
    assert (refused.code, refused.err) == (
        2,
        f"foretrace: {tmp_path}/e.csv: name it .json, the format that is written\n",
    )


@pytest.mark.parametrize(
    ("call", "more", "says"),
    [
        (("bash", {"command": "ls src"}), [], "may run ahead: pure_read"),
        (("bash", '{"command": "rm a"}'), [], "may not run ahead: local_write"),
        (RUN, [], "may not run ahead: sandbox_exec; seen 1 times: unsafe"),
        (RUN, ["--allow", "sandbox_exec"], "may run ahead: sandbox_exec; seen 1 times: unsafe"),
        (READ, [], "may run ahead: pure_read; seen 2 times: read_only"),
        (DEPLOY, [], "may not run ahead: external_write"),
    ],
)
def test_a_call_is_checked(run: Run, tmp_path: Path, call: tuple[str, Any], more: list[str], says: str) -> None:
    manifest = tmp_path / "effects.json"
    foretrace.effects([make_trace([Timed(call=READ), Timed(call=RUN), Timed(call=READ)])], manifest)
    text = json.dumps({"name": call[0], "arguments": call[1]})
    done = run("effects", "--check", text, "--manifest", manifest, *more)
    assert (done.code, done.out) == (0, f"{says}\n")
    checked = foretrace.check_call(*call, manifest=manifest, allow=more[1:])
    assert checked.may_run_ahead == says.startswith("may run")
    assert foretrace.check_call(json.loads(text), manifest=manifest, allow=more[1:]) == checked


@pytest.mark.parametrize("call", [7, "", {}, {"name": 7}, {"name": "bash", "arguments": ["ls"]}])
def test_what_is_no_call_is_refused_from_python(call: Any) -> None:
    with pytest.raises(UsageError, match="not a call: give the name of a tool"):
        foretrace.check_call(call)


def test_calls_are_checked_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.StringIO('{"name": "bash", "arguments": {"command": "ls"}}\nx\n{"name": "x"}\n')
    )
    done = run("effects", "--check", "-")
    first, wrong, last = map(json.loads, done.out.splitlines())
    assert (first["may_run_ahead"], last["may_run_ahead"]) == (True, False) and "is not a call" in wrong["error"]


def test_what_is_not_a_call_or_a_manifest(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text("{}")
    for arguments in (["--check", "ls"], ["--check", '{"tool": "ls"}'], ["--check", "{}", "--out", "x"], [tmp_path]):
        assert run("effects", *arguments).code == 2
    done = run("effects", "--check", '{"name": "x"}', "--manifest", tmp_path / "m.json")
    assert done.code != 0 and "is not a manifest of effects" in done.err
