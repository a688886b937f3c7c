"""The journal: durable line by line, cut where a crash tore it, sealed once whatever kills the sealing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from core.killing import KILLING
from core.test_store import listing, make
from foretrace.core.errors import StoreError
from foretrace.core.journal import FOLDER, Journal, JournalEntry, JournalIndex, encode_entry, group_keys, ungroup_keys
from foretrace.core.store import TraceStore, TraceWriter, read_traces, write_traces
from foretrace.core.trace import Outcome, Trace, add_trace_id

RUN = "0123456789abcdef"


def journal_of(folder: Path, *entries: Trace | JournalEntry, run: str = RUN) -> Path:
    """A journal that a killed run has left behind."""
    folder.mkdir(exist_ok=True)
    if not (folder / "manifest.json").exists():
        write_traces([], folder)
    journal = Journal(folder, run)
    for entry in entries:
        journal.append(
            [encode_entry(entry if isinstance(entry, JournalEntry) else JournalEntry(key=entry.key, trace=entry))]
        )
    journal.close()
    return journal.path


def seal(folder: Path) -> None:
    with TraceWriter(folder):
        pass


def test_it_reads_as_json_lines_with_any_zstd_tool(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "t", make(1), JournalEntry(key="k", left_out="not_success"))
    with zstandard.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert [line["key"] for line in lines] == ["key-001", "k"]
    assert lines[0]["trace"]["task"]["id"] == "task-1" and lines[1]["left_out"] == "not_success"


def test_a_tail_that_was_torn_off_anywhere_is_no_entry(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "t", make(1), make(2))
    two = path.read_bytes()
    journal = Journal(tmp_path / "t", RUN)
    journal.append([encode_entry(JournalEntry(key="key-003", trace=make(3)))])
    journal.close()
    whole = path.read_bytes()
    for end in [*range(len(two), len(whole), 7), len(whole) - 1]:
        path.write_bytes(whole[:end])
        assert JournalIndex(path).stored == {"key-001", "key-002"}
        path.write_bytes(whole[:end] + bytes(len(whole) - end))  # blocks that the file system never wrote
        assert JournalIndex(path).stored == {"key-001", "key-002"}
    path.write_bytes(whole)
    assert JournalIndex(path).stored == {"key-001", "key-002", "key-003"}


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = journal_of(tmp_path / "t", make(1))
    journal = Journal(tmp_path / "t", RUN)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            journal.append([encode_entry(JournalEntry(key="key-002", trace=make(2)))])
    assert path.read_bytes() == before
    with pytest.raises((UnicodeError, msgspec.MsgspecError)):  # it could not be read
        encode_entry(JournalEntry(key="k", trace=make(1, extra={"text": "\ud800"})))
    journal.append([encode_entry(JournalEntry(key="key-003", trace=make(3)))])
    journal.close()
    assert JournalIndex(path).stored == {"key-001", "key-003"}


@pytest.mark.parametrize("how", ["flipped", "zeroed", "torn out"])
def test_entries_behind_a_damaged_one_are_read(tmp_path: Path, how: str) -> None:
    path = journal_of(tmp_path / "t", *map(make, range(6)))
    ends = [0]
    for n in range(6):
        ends.append(ends[-1] + len(frame_of(make(n))))
    whole = path.read_bytes()
    assert ends[-1] == len(whole)
    for hit in range(6):
        start, end = ends[hit], ends[hit + 1]
        for at in range(start, end, 37):
            data = bytearray(whole)
            if how == "flipped":
                data[at] ^= 0xFF
            elif how == "zeroed":
                data[at:end] = bytes(end - at)
            else:
                del data[max(at, start + 1) : end]
            path.write_bytes(data)
            index = JournalIndex(path)
            assert index.stored >= {f"key-{n:03d}" for n in range(6) if n != hit}, (hit, at)
            assert index.damaged == (hit < 5 and len(index.stored) < 6)


def frame_of(trace: Trace) -> bytes:
    line = encode_entry(JournalEntry(key=trace.key, trace=trace))
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(line)


def test_a_damaged_journal_is_sealed_and_kept_aside(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    for number, name in enumerate(["damaged", "damaged1"]):
        path = journal_of(folder, *(make(10 * number + n) for n in range(3)))
        data = bytearray(path.read_bytes())
        data[len(frame_of(make(10 * number))) + 20] ^= 0xFF
        path.write_bytes(data)
        with TraceWriter(folder) as writer:
            assert writer.damaged == [folder / FOLDER / f"{RUN}.jsonl.zst.{name}"]
        assert writer.damaged[0].read_bytes() == data and not path.exists()
    assert sorted(t.key for t in read_traces(folder)) == ["key-000", "key-002", "key-010", "key-012"]
    with TraceWriter(folder) as writer:
        assert writer.damaged == []


def test_the_next_writer_seals_what_a_dead_run_left(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    path = journal_of(folder, *map(make, range(20)), JournalEntry(key="set/a/7", left_out="not_success"))
    seal(folder)
    assert not path.exists()
    assert sorted(read_traces(folder), key=lambda t: t.key) == [add_trace_id(make(n)) for n in range(20)]
    with TraceWriter(folder) as writer:
        assert writer.left_out == {"set/a/7": "not_success"}
    assert {s.run for s in TraceStore(folder).manifest.segments} == {RUN}
    assert TraceStore(folder).manifest.counts["traces"] == 20


def test_a_run_in_parts_ends_in_the_bytes_of_a_run_in_one(tmp_path: Path) -> None:
    for name, parts in {"one": [range(40)], "parts": [range(0, 40, 3), range(1, 40, 3), range(2, 40, 3)]}.items():
        write_traces([make(n) for n in range(100, 110)], tmp_path / name)
        for part in parts:
            journal_of(tmp_path / name, *(make(n) for n in part))
            seal(tmp_path / name)
    assert listing(tmp_path / "one") == listing(tmp_path / "parts")


def test_an_attempt_made_again_takes_the_place_of_its_error(tmp_path: Path) -> None:
    failed = make(3, outcome=Outcome(status="error"), messages=())
    journal_of(tmp_path / "t", make(2), failed)
    seal(tmp_path / "t")
    journal_of(tmp_path / "t", make(3))
    seal(tmp_path / "t")
    assert [t.outcome.status for t in sorted(read_traces(tmp_path / "t"), key=lambda t: t.key)] == ["done", "done"]
    write_traces([make(5, outcome=Outcome(status="error"))], tmp_path / "t")  # in a segment of no run
    journal_of(tmp_path / "t", make(5), JournalEntry(key="key-006", left_out="not_ideal"))
    seal(tmp_path / "t")
    journal_of(tmp_path / "t", make(6))
    seal(tmp_path / "t")
    store = TraceStore(tmp_path / "t")
    assert sorted(t.key for t in store.read()) == ["key-002", "key-003", "key-005", "key-006"]
    assert store.manifest.counts["traces"] == 4 and store.manifest.left_out == {}


def test_a_strange_journal_is_named(tmp_path: Path) -> None:
    path = journal_of(tmp_path / "t", make(1))
    path.write_bytes(zstandard.ZstdCompressor().compress(b'{"neither": 1}\n'))
    with pytest.raises(StoreError, match=rf"{FOLDER}/{RUN}.*move it away"):
        seal(tmp_path / "t")


@given(st.sets(st.text("ab/019", min_size=1, max_size=6).map(lambda t: f"{t}/{len(t)}") | st.text("xyz", min_size=1)))
def test_folded_keys_come_back(keys: set[str]) -> None:
    assert set(ungroup_keys(group_keys(keys))) == keys


_KILLED = KILLING + textwrap.dedent("""
    import pandas, pyarrow.parquet  # once, before the forks: pyarrow looks for pandas when it first makes an array
    start, work = map(pathlib.Path, sys.argv[1:3])

    def seal(out):
        with TraceWriter(out):
            pass

    def keys(out):
        return sorted(t.key for t in TraceStore(out).read())

    whole = shutil.copytree(start, work / "whole")
    assert child(lambda: seal(whole)) == 0
    results, at, code = [], 0, -9
    while code:
        at += 1
        out = shutil.copytree(start, work / f"killed-{at}")
        code = child(lambda: (bomb(at, writes=False), seal(out)))
        between = keys(out)
        assert child(lambda: seal(out)) == 0
        left = [str(p) for p in out.rglob("*") if "partial" in p.name or "jsonl" in p.name]
        results.append([at, code, between, listed(out) == listed(whole), left])
    print(json.dumps([keys(start), results]))
""")


@pytest.mark.slow
def test_kill_nine_anywhere_in_the_sealing(tmp_path: Path) -> None:
    start = tmp_path / "start"
    write_traces([make(n) for n in range(100, 104)], start, replace=False)
    journal_of(start, *(make(n) for n in range(0, 30, 2)), make(1, outcome=Outcome(status="error")))
    seal(start)
    journal_of(start, *(make(n) for n in range(1, 30, 2)), JournalEntry(key="x/1", left_out="not_success"))
    command = [sys.executable, "-c", _KILLED, str(start), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    before, results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) > 20 and results[-1][1] == 0
    for at, code, between, same, left in results:
        assert code in (0, -9) and same and not left, f"killed at write {at}: {left}"
        assert set(before) <= set(between), f"killed at write {at}: a reader misses {set(before) - set(between)}"


def test_what_was_taken_out_of_sealed_traces_stands_in_the_manifest(tmp_path: Path) -> None:
    def make_redacted(number: int, count: int) -> Trace:
        origin = msgspec.structs.replace(make(number).provenance, transforms=("redact@1",))
        return make(number, provenance=origin, extra={"redacted": {"password": count}})

    folder = tmp_path / "t"
    journal_of(folder, make_redacted(1, 2), make_redacted(6, 1), make(3))  # 1 and 6 are attempts at one task
    seal(folder)
    assert TraceStore(folder).manifest.redacted == {"password": 3}
    journal_of(folder, make_redacted(1, 5), make_redacted(6, 3))
    seal(folder)
    assert TraceStore(folder).manifest.redacted == {"password": 8}
