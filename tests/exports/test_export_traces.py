"""A folder in every format: families, what was lost, real sessions, flat memory, and outputs that do not fit."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from exports.any_traces import SAID
from exports.reading import as_carried
from exports.test_atif import started
from exports.test_row_formats import CALLING, RESULT, USER, make
from foretrace.api.traces import export, import_source
from foretrace.core.errors import ForetraceError, StoreError, UsageError
from foretrace.core.plugins import BUILT_IN
from foretrace.core.store import TraceStore, read_traces, write_traces
from foretrace.core.trace import Trace, add_trace_id
from foretrace.exports.base import describe_losses
from foretrace.exports.export_traces import MAX_DEPTH, read_families

FOLDERS = ("atif", "pi")
FORMATS = list(BUILT_IN["format"])


def store(folder: Path, *traces: Trace) -> Path:
    write_traces(map(add_trace_id, traces), folder)
    return folder


def out_of(name: str, folder: Path) -> Path:
    """An output that fits the format."""
    return folder / (name if name in FOLDERS else f"{name}.jsonl")


def files(out: Path) -> dict[str, bytes]:
    found = sorted(out.iterdir()) if out.is_dir() else [out]
    return {path.name: path.read_bytes() for path in found}


def named(key: str, by: str | None = None) -> Trace:
    trace = make(USER, CALLING, RESULT, SAID) if by is None else started(key, by)
    return msgspec.structs.replace(trace, key=key)


def test_losses_by_what_had_them() -> None:
    counts = {"messages.logprobs": 1200, "results.tool_s": 40, "messages.model_s": 3, "traces.reward": 1}
    wanted = {"traces": "reward 1", "messages": "logprobs 1,200, model_s 3", "results": "tool_s 40"}
    assert describe_losses(counts) == wanted and list(describe_losses(counts)) == list(wanted)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "inline"])
def test_bytes_are_the_same_each_time(name: str, tmp_path: Path) -> None:
    traces = store(tmp_path / "t", named("k"), named("k2", "k"), named("k3", "k2"), named("other"))
    found: list[dict[str, bytes]] = []
    for folder in ("one", "two"):
        out = out_of(name, tmp_path / folder)
        report = export(traces, format=name, out=out)
        assert report.traces == 4 == report.written + sum(report.dropped.values())
        found.append(files(out))
    assert found[0] == found[1]


def test_an_export_without_a_row_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    traces = store(tmp_path / "t", named("k"), named("k2"))
    with pytest.raises(ForetraceError, match=r"inline can hold none of 2 \(thinking_apart 2\): nothing was written"):
        export(traces, format="inline", out=tmp_path / "o.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_families_hold_each_trace_once_whatever_their_parents_are(tmp_path: Path) -> None:
    chain = [named(f"c{n}", f"c{n - 1}" if n else None) for n in range(2 * MAX_DEPTH + 4)]
    circle = [named("a", "b"), named("b", "a"), named("own", "own"), named("below", "a")]
    orphan = named("orphan", "nobody")
    families = list(read_families(TraceStore(store(tmp_path / "t", *chain, *circle, orphan))))
    found = Counter(trace.key for family in families for trace in family.list_traces())
    assert found == Counter(t.key for t in (*chain, *circle, orphan))
    assert {f.trace.key for f in families} >= {"c0", f"c{MAX_DEPTH + 1}", "own", "orphan"}
    report = export(tmp_path / "t", format="atif", out=tmp_path / "a")
    assert report.written == len(found)
    again = import_source("auto", tmp_path / "a", out=tmp_path / "back")
    assert again.traces == len(found) and not sum(again.drops.values())
    parents = {t.key: t.parent and t.parent.key for t in read_traces(tmp_path / "back")}
    assert parents["atif@c1"] == "atif@c0" and parents[f"atif@c{MAX_DEPTH + 1}"] is None is parents["atif@own"]


@pytest.mark.slow
def test_real_sessions_come_back_whole(shared: Path, tmp_path: Path) -> None:
    data = shared / "data"
    import_source("auto", [data / "sessions", data / "atif", data / "formats"], out=tmp_path / "t")
    before = {t.key: as_carried(t) for t in read_traces(tmp_path / "t")}
    assert len(before) > 40
    assert export(tmp_path / "t", format="otlp", out=tmp_path / "o.jsonl").written == len(before)
    import_source("auto", tmp_path / "o.jsonl", out=tmp_path / "back")
    assert {t.key: as_carried(t) for t in read_traces(tmp_path / "back")} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chat", "openai", "sharegpt", "verifiers_sft"])
def test_real_sessions_are_rows_that_come_back(name: str, shared: Path, tmp_path: Path) -> None:
    data = shared / "data"
    import_source("auto", [data / "sessions", data / "atif", data / "formats"], out=tmp_path / "t")
    out = tmp_path / "o.jsonl"
    report = export(tmp_path / "t", format=name, out=out)
    rows = out.read_bytes().splitlines()
    assert len(rows) == report.written > 40
    back = import_source("chat", out, out=tmp_path / "back")
    same = len(rows) - len(set(rows))
    assert back.traces + same == report.written and not sum(back.drops.values())


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path) -> None:
    def peak(count: int, name: str) -> int:
        folder = store(
            tmp_path / f"{name}{count}", *(named(f"{n}", None if n % 9 else f"{n + 1}") for n in range(count))
        )
        gc.collect()
        tracemalloc.start()
        export(folder, format=name, out=out_of(name, tmp_path / f"out{count}"))
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    for name in ("atif", "otlp", "openai"):
        few, many = peak(300, name), peak(1500, name)
        assert many < few + 1500 * 2000, (name, few, many)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    traces = store(tmp_path / "t", named("k"))
    with pytest.raises(UsageError, match="is a file for each trace; name a folder"):
        export(traces, format=name, out=tmp_path / "o.jsonl")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="is a folder that is not empty; name another one"):
        export(traces, format=name, out=tmp_path / "full")
    assert (tmp_path / "full" / "mine.txt").read_text() == "x"
    (tmp_path / "empty").mkdir()
    assert export(traces, format=name, out=tmp_path / "empty").files == 1
    (tmp_path / "file").write_text("x")
    with pytest.raises((UsageError, StoreError)):
        export(traces, format=name, out=tmp_path / "file" / "below")


def test_keys_that_are_no_file_names(tmp_path: Path) -> None:
    keys = ["../../x", "a/b", "a-b", "é" * 300, ".", "\u0000"]
    traces = store(tmp_path / "t", *map(named, keys))
    assert export(traces, format="pi", out=tmp_path / "h").files == len(keys)
    found = list((tmp_path / "h").iterdir())
    assert len(found) == len(keys) and all(path.is_file() for path in found)
    assert {json.loads(path.read_text().splitlines()[0])["id"] for path in found} == set(keys)
