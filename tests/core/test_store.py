"""The store: what it gives back, and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.any_traces import traces
from foretrace.core import segments
from foretrace.core.errors import StoreError, UsageError
from foretrace.core.segments import Segment
from foretrace.core.store import TraceStore, TraceWriter, encode_row, read_traces, write_traces
from foretrace.core.trace import Message, Outcome, Provenance, Sampled, Task, Trace, add_trace_id

replace = msgspec.structs.replace


def make(number: int, **changes: object) -> Trace:
    sampled = Sampled(token_ids=(number, 7), logprobs=(-0.25, -1.5), prompt_token_ids=(1,), exact="token")
    said = Message(role="assistant", author="model", content=f"answer {number}", sampled=sampled)
    trace = Trace(
        key=f"key-{number:03d}",
        task=Task(id=f"task-{number % 5}", group="g"),
        messages=(Message(role="user", author="user", content="q"), said),
        outcome=Outcome(success=number % 2 == 0),
        provenance=Provenance(origin="imported", source="test", model="m", license="MIT"),
    )
    return replace(trace, **changes)


def listing(folder: Path) -> dict[str, bytes]:
    """Bytes of the manifest and of all segments that it lists."""
    paths = ["manifest.json", *(s.path for s in TraceStore(folder).manifest.segments)]
    return {path: (folder / path).read_bytes() for path in paths}


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    given_traces = [make(n) for n in range(40)]
    assert write_traces(given_traces, tmp_path / "s")["new"] == 40
    found = list(read_traces(tmp_path / "s"))
    assert sorted(found, key=lambda t: t.key) == [add_trace_id(t) for t in given_traces]
    store = TraceStore(tmp_path / "s")
    shards = [[*store.read(shard)] for shard in store.shards]
    assert [trace for own in shards for trace in own] == found
    tasks = [{t.task.id for t in own} for own in shards]
    assert sum(map(len, tasks)) == len(set.union(*tasks)) == 5, "attempts at one task lie together"
    assert store.read_columns("success", "key")["success"].to_pylist().count(True) == 20
    (segment, *_) = store.manifest.segments
    row = pq.read_table(tmp_path / "s" / segment.path).to_pylist()[0]
    assert "token_ids" not in json.loads(row["record"])["messages"][1]["sampled"] and row["tokens"]


@settings(max_examples=15)
@given(st.lists(traces, max_size=6, unique_by=lambda t: t.key))
def test_any_trace_comes_back(tmp_path_factory: pytest.TempPathFactory, some: list[Trace]) -> None:
    folder = tmp_path_factory.mktemp("any") / "s"
    write_traces(some, folder)
    assert {t.key: t for t in read_traces(folder)} == {t.key: add_trace_id(t) for t in some}


def test_same_input_same_bytes_and_order_has_no_say(tmp_path: Path) -> None:
    given_traces = [make(n) for n in range(700)]
    write_traces(given_traces, tmp_path / "a")
    write_traces(given_traces, tmp_path / "b")
    assert listing(tmp_path / "a") == listing(tmp_path / "b")
    random.Random(1).shuffle(given_traces)
    write_traces(given_traces, tmp_path / "c")
    assert list(read_traces(tmp_path / "a")) == list(read_traces(tmp_path / "c"))


def test_present_conflict_and_replace(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_traces([make(1), make(2), make(3)], folder)
    other = make(2, outcome=Outcome(success=None), task=Task(id="moved", group="g"))
    before = listing(folder)
    assert write_traces([make(1), other], folder) == {"new": 0, "present": 1, "conflict": 1, "replaced": 0}
    assert listing(folder) == before
    assert write_traces([other, make(4)], folder, replace=True) == {
        "new": 1, "present": 0, "conflict": 0, "replaced": 1,
    }  # fmt: skip
    assert {t.key: t.task.id for t in read_traces(folder)} == {
        "key-001": "task-1", "key-002": "moved", "key-003": "task-3", "key-004": "task-4",
    }  # fmt: skip
    again = [make(1, extra={"v": 1}), make(1, extra={"v": 2})]  # twice before a checkpoint
    assert write_traces(again, folder, replace=True)["replaced"] == 2
    assert [t.extra for t in read_traces(folder) if t.key == "key-001"] == [{"v": 2}]
    on_disk = {str(p.relative_to(folder)) for p in folder.glob("shard-*/*")}
    assert on_disk == {s.path for s in TraceStore(folder).manifest.segments}


def test_get_by_key_id_or_beginning(tmp_path: Path) -> None:
    write_traces([*(make(n) for n in range(20)), make(7, key="key-0071")], tmp_path / "s")
    store = TraceStore(tmp_path / "s")
    wanted = add_trace_id(make(7))
    assert store.get("key-007") == store.get(wanted.id) == store.get(wanted.id[:12]) == wanted
    assert store.get_many(["key-007", "nobody"]) == {"key-007": wanted}
    with pytest.raises(StoreError, match="begins 11 keys"):
        store.get("key-00")
    with pytest.raises(StoreError, match="no trace with key"):
        store.get("nothing")


def test_few_bytes_and_few_rows_lie_in_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader holds one of them."""
    monkeypatch.setattr(segments, "_ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(segments, "_ROW_GROUP_BYTES", 50_000)
    said = ["x"] * 25 + ["y" * 20_000] * 7
    rows = [
        make(n, task=Task(id=f"{n:02}", group="g"), messages=(Message(role="user", author="user", content=text),))
        for n, text in enumerate(said)
    ]
    segments.write_segment(tmp_path / "s.parquet", map(encode_row, map(add_trace_id, rows)))
    metadata = pq.ParquetFile(tmp_path / "s.parquet").metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [10, 10, 8, 3, 1]
    assert [row["task_id"] for row in segments.read_segment_rows(tmp_path / "s.parquet")] == [t.task.id for t in rows]


def test_second_writer_is_refused(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "s"), pytest.raises(StoreError, match="another process is writing"):
        TraceWriter(tmp_path / "s").__enter__()
    with TraceWriter(tmp_path / "s") as writer:
        writer.add(make(1))
        writer.checkpoint()


def test_what_was_not_listed_is_garbage_and_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    write_traces([make(1)], folder)
    whole = listing(folder)
    (segment,) = TraceStore(folder).manifest.segments
    (folder / "manifest.json").unlink()
    (folder / segment.path).write_bytes(b"half a segment")
    left = [
        folder / segment.path.replace("/", "/.").replace("parquet", "parquet.partial"),
        folder / ".manifest.json.partial",
    ]
    left.append(left[0].with_name(".000009.parquet.partial"))  # of a number that is not written again
    for path in left:
        path.write_bytes(b"x")
    write_traces([make(1)], folder)
    assert listing(folder) == whole
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize(
    "manifest",
    [
        b"", b"{", b"\xff\xfe", b"[]", b'{"shards": "many"}', b"[" * 100_000,
        b'{"segments": [{"path": "../../etc/passwd", "rows": 1}]}', b'{"schema_version": 99}',
    ],
)  # fmt: skip
def test_damaged_manifest(tmp_path: Path, manifest: bytes) -> None:
    folder = tmp_path / "s"
    write_traces([make(1)], folder)
    (folder / "manifest.json").write_bytes(manifest)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        TraceStore(folder)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        write_traces([make(2)], folder)


@pytest.mark.parametrize("damage", ["gone", "cut", "noise"])
def test_missing_or_damaged_segment(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "s"
    write_traces([make(1)], folder)
    (segment,) = TraceStore(folder).manifest.segments
    path = folder / segment.path
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else b"PAR1" + b"\x99" * (len(data) - 8) + b"PAR1")
    for attempt in (
        lambda: list(read_traces(folder)),
        lambda: TraceStore(folder).get("key-001"),
        lambda: TraceStore(folder).read_columns("key"),
        lambda: write_traces([make(2)], folder),
    ):
        with pytest.raises(StoreError, match=path.name):
            attempt()


def test_what_is_no_traces_folder_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    for folder, said in (
        (tmp_path, r"letters\.txt"),
        (tmp_path / "letters.txt", "is a file; name a folder"),
        (tmp_path / "letters.txt/deeper", "cannot write"),
    ):
        with pytest.raises(StoreError, match=said):
            write_traces([make(1)], folder)
    for folder, said in ((tmp_path / "none", "no such folder"), (tmp_path, r"no manifest\.json")):
        with pytest.raises(StoreError, match=said):
            TraceStore(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["letters.txt"]


def test_what_cannot_be_read_back_is_never_written(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "s") as writer:
        writer.add(make(1))
        for bad in (make(2, task=Task(id="t", group=5)), make(3, outcome=Outcome(metrics={"x": float("nan")}))):  # type: ignore[arg-type]
            with pytest.raises(msgspec.ValidationError):
                writer.add(bad)
        with pytest.raises(UnicodeEncodeError):
            writer.add(make(4, key="\ud800"))
        assert not (tmp_path / "s" / "manifest.json").exists(), "nothing is there before the first checkpoint"
        writer.checkpoint()
    assert [t.key for t in read_traces(tmp_path / "s")] == ["key-001"]


def test_shards_are_for_a_new_folder(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "s", shards=2) as writer:
        for number in range(20):
            writer.add(make(number))
        writer.checkpoint()
    assert set(TraceStore(tmp_path / "s").shards) <= {0, 1}
    with pytest.raises(StoreError, match="has 2 shards"):
        TraceWriter(tmp_path / "s", shards=3).__enter__()
    for shards in (0, -1, 10**6):
        with pytest.raises(UsageError, match="shards="):
            TraceWriter(tmp_path / "t", shards=shards)


def test_a_dataset_is_no_traces_folder(tmp_path: Path) -> None:
    """Nor is a lock put there, which `push` would find to be no part of it."""
    manifest = {"configs": {}, "gates": [], "settings": {}, "counts": {}, "drops": {"proposer": {"repeated_step": 1}}}
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    said = f"{tmp_path}: is a dataset, not a traces folder"
    for attempt in (lambda: TraceStore(tmp_path), lambda: write_traces([make(1)], tmp_path)):
        with pytest.raises(StoreError) as refused:
            attempt()
        assert str(refused.value) == said
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("at_once", [2, 32])
def test_small_segments_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Also where more are merged than are read side by side; all of it under one name, and nothing else is left."""
    monkeypatch.setattr(segments, "_MERGED_AT_ONCE", at_once)
    monkeypatch.setattr(segments, "MAX_UNMERGED", 4)
    folder = tmp_path / "s"
    with TraceWriter(folder, shards=1) as writer:
        for number in range(5):
            writer.add(make(number))
            writer.checkpoint()
            if number == 3:
                writer.compact()
                assert len(TraceStore(folder).manifest.segments) == 4, "few are left as they are"
        writer.compact()
    (left,) = TraceStore(folder).manifest.segments
    assert left == Segment("shard-00/000006.parquet", 5)
    assert [p.name for p in (folder / "shard-00").iterdir()] == [Path(left.path).name]
    assert [t.key for t in read_traces(folder)] == [f"key-{n:03d}" for n in range(5)]


def test_a_trace_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    broken = make(1, messages=(Message(role="user", author="user", content="a \ud800 b"),))
    with pytest.raises(StoreError, match=r"trace 'key-001' cannot be written .* without lone surrogates"):
        write_traces([broken], tmp_path / "s")
