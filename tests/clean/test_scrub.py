"""A folder that was written with its secrets, and its clean copy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from clean.planted import KINDS
from foretrace.clean.redact import Redactor
from foretrace.clean.scrub import scrub
from foretrace.core.errors import UsageError
from foretrace.core.store import TraceStore, read_traces, write_traces
from foretrace.core.trace import Message, Provenance, Task, Trace, encode_trace

SECRET = KINDS["github_classic"].make(random.Random(1))


def make_trace(number: int) -> Trace:
    content = f"token {SECRET}" if number % 2 else "nothing"
    return Trace(
        key=f"k{number}",
        task=Task(id=f"t{number}", group="g"),
        messages=(Message(role="assistant", author="model", content=content),),
        provenance=Provenance(origin="imported", source="x"),
    )


def test_the_copy_is_clean_and_the_folder_as_it_was(tmp_path: Path) -> None:
    write_traces([make_trace(n) for n in range(40)], tmp_path / "t")
    before = TraceStore(tmp_path / "t").compute_fingerprint()
    report = scrub(tmp_path / "t", tmp_path / "c", Redactor())
    assert (report.traces, report.written, report.changed, report.redacted) == (40, 40, 20, {"github_token": 20})
    assert not any(SECRET.encode() in encode_trace(trace) for trace in read_traces(tmp_path / "c"))
    assert TraceStore(tmp_path / "c").manifest.redacted == {"github_token": 20}
    assert TraceStore(tmp_path / "t").compute_fingerprint() == before
    again = scrub(tmp_path / "t", tmp_path / "c", Redactor())
    assert (again.written, again.already_there) == (0, 40)
    assert TraceStore(tmp_path / "c").manifest.redacted == {"github_token": 20}


def test_a_folder_is_not_scrubbed_into_itself(tmp_path: Path) -> None:
    write_traces([make_trace(1)], tmp_path / "t")
    with pytest.raises(UsageError, match="choose another one"):
        scrub(tmp_path / "t", tmp_path / "t", Redactor())
