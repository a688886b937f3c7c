"""Secrets on the command line: import, generate, scrub, build and push."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clean.planted import KINDS
from cli.conftest import Run, call, write_rows
from dataset.test_push import build as build_folder
from foretrace.clean import gate
from foretrace.core.store import TraceStore, read_traces
from foretrace.core.trace import encode_trace

SECRET = KINDS["github_classic"].make(random.Random(1))
OTHER = KINDS["stripe"].make(random.Random(2))


def row(number: int) -> dict[str, Any]:
    asked = {"role": "user", "content": f"Deploy {number} with {SECRET} from /home/annabel/app"}
    exported = call("bash", {"command": f"export T={SECRET}"})
    said = {"role": "assistant", "content": "I will.", "tool_calls": [exported]}
    return {"id": f"r{number}", "messages": [asked, said], "resolved": True}


def everything_in(folder: str) -> bytes:
    """All that stands in a folder, with its segments decompressed."""
    found = b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())
    return found + b"".join(encode_trace(trace) for trace in read_traces(folder))


@pytest.fixture
def rows() -> None:
    write_rows(Path("rows.jsonl"), [row(n) for n in range(4)])


@pytest.mark.usefixtures("rows")
def test_an_import_writes_no_secret(run: Run) -> None:
    done = run("import chat rows.jsonl --out t --json")
    assert done.code == 0 and SECRET not in done.out + done.err
    assert "taken out of the traces: 8 github_token, 4 user_name" in done.err
    assert SECRET.encode() not in everything_in("t") and b"annabel" not in everything_in("t")
    assert TraceStore("t").manifest.accounts["chat"]["redacted"] == {"github_token": 8, "user_name": 4}
    again = run("import chat rows.jsonl --out t --json").json
    assert (again["traces"], again["already_there"], again["drops"]) == (0, 4, {})


@pytest.mark.usefixtures("rows")
def test_without_redaction_it_says_so(run: Run) -> None:
    done = run("import chat rows.jsonl --out t --no-redact")
    assert done.code == 0 and "4 traces not looked through for secrets" in done.err
    assert SECRET.encode() in everything_in("t")
    assert TraceStore("t").manifest.accounts["chat"]["unredacted"] == 4
    refused = run("import chat rows.jsonl --out t2 --no-redact --redact-emails")
    assert refused.code == 2 and "--redact-emails takes out more than secrets; leave out --no-redact" in refused.err
    assert run("scrub t --out c --json").json["redacted"] == {"github_token": 8, "user_name": 4}
    assert SECRET.encode() not in everything_in("c")
    assert "foretrace view c2\n" in run("scrub t --out c2").out
    run("build chat=rows.jsonl --out d --no-redact --no-statistical-gates")
    assert SECRET.encode() in everything_in("d-traces")


@pytest.mark.usefixtures("rows")
def test_nothing_is_written_where_the_scanner_cannot_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "compile_pattern", Mock(side_effect=ImportError("no RE2 here")))
    failed = run("import chat rows.jsonl --out t")
    assert failed.code == 1 and "the scanner for secrets cannot start" in failed.err and not Path("t").exists()


def test_reasons_of_drops_hold_no_secret(run: Run) -> None:
    bad = {"id": "x", "messages": [{"role": f"token {SECRET}", "content": "x"}]}
    write_rows(Path("rows.jsonl"), [row(1), bad])
    done = run("import chat rows.jsonl --out t --json")
    assert done.code == 0 and SECRET not in done.out + done.err
    assert SECRET.encode() not in everything_in("t")


def test_what_was_generated_holds_no_secret(run: Run) -> None:
    tests = ["assert inc(0) == 1"]
    given = {"entry_point": "inc", "public_tests": tests, "tests": tests}
    write_rows(Path("problems.jsonl"), [{"id": "p", "statement": f"Add 1. The key is {OTHER}.", **given}])
    code = f"<think>I use {SECRET}.</think><code>\nprint('{SECRET}')\ndef inc(x):\n    return x + 1\n</code>"
    write_rows(Path("script.jsonl"), [{"turns": [code, "<verify>Done.</verify>"], "match": "Add 1"}])
    line = "generate --problems jsonl --path problems.jsonl --protocol tools --model scripted:script.jsonl --json --out"
    done = run(line, "t")
    assert done.code == 0, done.err
    assert done.json["stored"] == 1 and done.json["redacted"]["github_token"] >= 2
    assert SECRET.encode() not in everything_in("t") and OTHER.encode() not in everything_in("t")
    assert run(line, "t").json["already_done"] == 1
    assert run(line, "t2", "--no-redact").code == 0 and SECRET.encode() in everything_in("t2")


def test_push_refuses_secrets_and_says_where(run: Run, tmp_path: Path) -> None:
    dataset = build_folder(tmp_path / "d", configs={"proposer": ("train",)})
    assert run("push d --org acme --dry-run").code == 0
    path = dataset / "proposer/train-00000-of-00001.parquet"
    prompt = [[{"role": "user", "content": f"use {SECRET}"}]]
    pq.write_table(pa.table({"key": ["k7"], "step": pa.array([3], pa.int32()), "prompt": prompt}), path)
    manifest = json.loads((dataset / "manifest.json").read_text())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = {"rows": 1, "sha256": {path.relative_to(dataset).as_posix(): digest}}
    manifest["configs"]["proposer"]["train"].update(entry)
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    refused = run("push d --org acme --dry-run")
    assert refused.code == 1 and SECRET not in refused.err
    assert "1 github_token; first in proposer/train-00000-of-00001.parquet row 0 (key k7)" in refused.err


def test_a_session_that_goes_on_takes_the_place_of_the_stored_one(run: Run) -> None:
    """Its end gives away a secret that stood in its beginning."""
    secret = KINDS["secret"].make(random.Random(9))
    lines: list[Any] = []
    said = (f"look at {secret} in /home/annabel/x", f"I see {secret}", f"API_TOKEN={secret}", "Thanks.")
    for number, text in enumerate(said):
        kind = "assistant" if number % 2 else "user"
        message = {"id": f"m{number}", "role": kind, "content": [{"type": "text", "text": text}]}
        at = {"uuid": f"{number}", "parentUuid": f"{number - 1}" if number else None, "sessionId": "s"}
        lines.append({"type": kind, "timestamp": f"2026-01-01T00:00:0{number}Z", "message": message, **at})
    write_rows(Path("s.jsonl"), lines[:2])
    assert run("import auto s.jsonl --out t").code == 0
    write_rows(Path("s.jsonl"), lines)
    grown = run("import auto s.jsonl --out t --json").json
    assert (grown["grown"], grown["drops"]) == (1, {}) and secret.encode() not in everything_in("t")
