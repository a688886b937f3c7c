"""Counts, cursors, limits, conflicts and --replace of an import."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.core.errors import ForetraceError, SourceError
from foretrace.core.store import TraceStore, read_traces
from foretrace.engines.processes import Processes
from foretrace.rows.files import FileRows
from foretrace.sources import importing, inputs, taking
from foretrace.sources.chat import Chat
from foretrace.sources.importing import import_source
from foretrace.sources.report import ImportReport, check_not_empty
from foretrace.sources.swe_smith import SweSmith
from foretrace.sources.toolbench import ToolBench
from sources.raw_rows import act, answer, bench_row, swe_row, swe_rows, write_jsonl, xml_messages


def listing(folder: Path) -> dict[str, bytes]:
    paths = ["manifest.json", *(s.path for s in TraceStore(folder).manifest.segments)]
    return {path: (folder / path).read_bytes() for path in paths}


def mixed_rows(count: int) -> list[Any]:
    return [row if n % 5 else {"messages": None, "n": n} for n, row in enumerate(swe_rows(count))]


def test_counts_add_up_and_are_kept(tmp_path: Path) -> None:
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", mixed_rows(23)))
    report = import_source(SweSmith(), [rows], tmp_path / "out")
    assert (report.rows, report.traces, dict(report.drops), report.already_done) == (23, 18, {"null_messages": 5}, 0)
    assert report.success == {"true": 18} and len(report.examples["null_messages"]) == 3
    assert report.examples["null_messages"][1].startswith("r.jsonl row 5:")
    manifest = TraceStore(tmp_path / "out").manifest
    assert manifest.counts == {"rows": 23, "traces": 18} and manifest.drops == {"null_messages": 5}
    assert manifest.sources == {"swe_smith@local/xml": {"revision": None, "split": "xml", "license": "MIT"}}
    before = listing(tmp_path / "out")
    again = import_source(SweSmith(), [rows], tmp_path / "out")
    assert (again.rows, again.already_done, again.traces) == (23, 23, 0)
    assert listing(tmp_path / "out") == before


def test_counts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ForetraceError, match="do not add up"):
        ImportReport(rows=3, traces=1).check()


@pytest.mark.parametrize("limits", [[0, 7, 7, 3, 12, None, None], [23, None], [30, 40, None]])
def test_limits_that_grow_end_in_the_whole(tmp_path: Path, limits: list[int | None]) -> None:
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", mixed_rows(23)))
    seen = 0
    for limit in limits:
        report = import_source(SweSmith(), [rows], tmp_path / "out", limit=limit)
        asked = 23 if limit is None else min(limit, 23)
        assert report.rows == asked
        assert report.already_done == min(seen, asked)
        seen = max(seen, asked)
        manifest = TraceStore(tmp_path / "out").manifest
        assert manifest.counts.get("rows", 0) == seen
        assert manifest.counts["traces"] + sum(manifest.drops.values()) == seen
    import_source(SweSmith(), [rows], tmp_path / "whole")
    assert list(read_traces(tmp_path / "out")) == list(read_traces(tmp_path / "whole"))
    assert TraceStore(tmp_path / "out").manifest.drops == {"null_messages": 5}


class Breaking:
    """Rows whose reading fails after some of them."""

    def __init__(self, rows: FileRows, at: int) -> None:
        self._rows, self._at = rows, at
        self.label, self.fingerprint = rows.label, rows.fingerprint

    def read(self, start: int = 0) -> Any:
        for row in self._rows.read(start):
            if row.at.row == self._at:
                raise SourceError("the network is gone")
            yield row


def test_an_import_that_fails_in_the_middle_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", mixed_rows(57)))
    for at in (5, 34, 50):
        with pytest.raises(SourceError):
            import_source(SweSmith(), [Breaking(rows, at)], tmp_path / "out")
        if at > 10:
            assert TraceStore(tmp_path / "out").manifest.counts["rows"] == at // 10 * 10
    report = import_source(SweSmith(), [rows], tmp_path / "out")
    assert (report.rows, report.already_done, report.traces) == (57, 50, 5)
    manifest = TraceStore(tmp_path / "out").manifest
    assert [c.drops for c in manifest.inputs.values()] == [manifest.drops] == [{"null_messages": 12}]
    import_source(SweSmith(), [rows], tmp_path / "out", replace=True)
    assert TraceStore(tmp_path / "out").manifest.drops == {"null_messages": 12}
    import_source(SweSmith(), [rows], tmp_path / "whole")
    assert listing(tmp_path / "out") == listing(tmp_path / "whole")


def test_checkpoints_by_bytes_are_the_same_after_a_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "CHECKPOINT_BYTES", 20_000)
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", mixed_rows(90)))
    with pytest.raises(SourceError):
        import_source(SweSmith(), [Breaking(rows, 77)], tmp_path / "out")
    assert 0 < TraceStore(tmp_path / "out").manifest.counts["rows"] < 77
    import_source(SweSmith(), [rows], tmp_path / "out")
    import_source(SweSmith(), [rows], tmp_path / "whole")
    assert listing(tmp_path / "out") == listing(tmp_path / "whole")


def test_a_known_key_with_other_content_is_a_conflict_until_replace(tmp_path: Path) -> None:
    rows = [swe_row(xml_messages(["ls"]), n) for n in range(4)]
    import_source(SweSmith(), [FileRows(write_jsonl(tmp_path / "a.jsonl", rows))], tmp_path / "out")
    changed = FileRows(write_jsonl(tmp_path / "b.jsonl", [{**row, "resolved": False} for row in rows[:2]] + rows[2:]))
    report = import_source(SweSmith(), [changed], tmp_path / "out")
    assert (report.already_done, dict(report.drops)) == (2, {"key_conflict": 2})
    assert report.examples["key_conflict"][0].endswith("; take this one with replace=True")
    assert all(t.outcome.success for t in read_traces(tmp_path / "out"))
    # The same file again with --replace: its cursor is at the end, and yet its rows are read.
    report = import_source(SweSmith(), [changed], tmp_path / "out", replace=True)
    assert (report.rows, report.traces, report.replaced, report.already_done, dict(report.drops)) == (4, 0, 2, 2, {})
    assert sorted(t.outcome.success is True for t in read_traces(tmp_path / "out")) == [False, False, True, True]
    manifest = TraceStore(tmp_path / "out").manifest
    assert manifest.drops == {} and manifest.counts == {"rows": 8, "traces": 4}


def test_repeated_keys_inside_one_file(tmp_path: Path) -> None:
    row = swe_row(xml_messages(["ls"]))
    rows = FileRows(write_jsonl(tmp_path / "a.jsonl", [row, row, {**row, "resolved": False}]))
    report = import_source(SweSmith(), [rows], tmp_path / "out")
    assert (report.traces, report.already_done, dict(report.drops)) == (1, 1, {"key_conflict": 1})


def test_replace_counts_the_traces_that_stand_in_the_folder(tmp_path: Path) -> None:
    """Six rows of two keys: the last of each is there, and the other four were replaced."""
    rows = [{**row, "resolved": n == 2} for n in range(3) for row in swe_rows(2)]
    files = [FileRows(write_jsonl(tmp_path / f"{n}.jsonl", some)) for n, some in enumerate((rows[:3], rows[3:]))]
    report = import_source(SweSmith(), files, tmp_path / "out", replace=True)
    assert len(list(read_traces(tmp_path / "out"))) == 2
    assert (report.rows, report.traces, report.replaced, report.already_done) == (6, 2, 2, 2)
    assert +report.success == {"true": 2}


def test_a_failed_import_takes_its_empty_folder_away(tmp_path: Path) -> None:
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", [*swe_rows(1), *mixed_rows(4)]))
    with pytest.raises(SourceError):
        import_source(SweSmith(), [Breaking(rows, 0)], tmp_path / "new" / "out")
    assert not (tmp_path / "new" / "out").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(SourceError):
        import_source(SweSmith(), [Breaking(rows, 0)], tmp_path / "mine")
    assert (tmp_path / "mine").exists()
    import_source(SweSmith(), [rows], tmp_path / "full")
    before = listing(tmp_path / "full")
    with pytest.raises(SourceError):
        import_source(Chat(), [Breaking(rows, 0)], tmp_path / "full")
    assert listing(tmp_path / "full") == before


def test_an_import_that_found_nothing_takes_its_folder_away(tmp_path: Path) -> None:
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", [{"a": 1}]))
    for _ in range(2):
        report = import_source(SweSmith(), [rows], tmp_path / "out")
        with pytest.raises(SourceError, match="nothing was imported: 1 row, all dropped"):
            check_not_empty(report, "r.jsonl", tmp_path / "out")
        assert not (tmp_path / "out").exists()
    import_source(SweSmith(), [FileRows(write_jsonl(tmp_path / "good.jsonl", swe_rows(2)))], tmp_path / "out")
    with pytest.raises(SourceError, match="nothing was imported"):
        check_not_empty(import_source(SweSmith(), [rows], tmp_path / "out"), "r.jsonl", tmp_path / "out")
    assert len(list(read_traces(tmp_path / "out"))) == 2


def test_an_import_ends_in_few_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was interrupted or not, and a small import later leaves the large segments as they are."""
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)
    rows = FileRows(
        write_jsonl(
            tmp_path / "r.jsonl",
            [swe_row(xml_messages(["ls"]), n, instance_id=f"a__b.0123abcd.{n}") for n in range(200)],
        )
    )
    import_source(SweSmith(), [rows], tmp_path / "whole", shards=2)
    assert [s.path for s in TraceStore(tmp_path / "whole").manifest.segments] == [
        "shard-00/000021.parquet", "shard-01/000021.parquet",
    ]  # fmt: skip
    with pytest.raises(SourceError):
        import_source(SweSmith(), [Breaking(rows, 195)], tmp_path / "out", shards=2)
    assert len(TraceStore(tmp_path / "out").manifest.segments) > 30
    import_source(SweSmith(), [rows], tmp_path / "out")
    assert listing(tmp_path / "out") == listing(tmp_path / "whole")
    assert sum(1 for _ in (tmp_path / "out").rglob("*.parquet")) == 2
    few = FileRows(
        write_jsonl(tmp_path / "few.jsonl", [{**row, "traj_id": f"few-{n}"} for n, row in enumerate(swe_rows(3))])
    )
    import_source(SweSmith(), [few], tmp_path / "out")
    assert listing(tmp_path / "whole").keys() < listing(tmp_path / "out").keys()


def test_other_settings_read_the_same_rows_anew(tmp_path: Path) -> None:
    said = [{"role": "assistant", "content": "x"}]
    rows = FileRows(write_jsonl(tmp_path / "a.jsonl", [{"id": "1", "messages": said, "ok": True}]))
    import_source(Chat(), [rows], tmp_path / "out")
    report = import_source(Chat({"success": "ok"}), [rows], tmp_path / "out")
    assert dict(report.drops) == {"key_conflict": 1}
    assert import_source(Chat({"success": "ok"}), [rows], tmp_path / "out", replace=True).success == {"true": 1}


def test_an_input_that_changed_is_read_anew(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", swe_rows(3))
    import_source(SweSmith(), [FileRows(path)], tmp_path / "out")
    report = import_source(SweSmith(), [FileRows(write_jsonl(path, swe_rows(5)))], tmp_path / "out")
    assert (report.traces, report.already_done) == (2, 3)


def test_nothing_to_read_makes_a_folder_that_holds_nothing(tmp_path: Path) -> None:
    rows = FileRows(write_jsonl(tmp_path / "a.jsonl", []))
    assert import_source(SweSmith(), [rows], tmp_path / "a").rows == 0
    assert import_source(SweSmith(), [rows], tmp_path / "b", limit=0).rows == 0
    assert import_source(SweSmith(), [], tmp_path / "c").rows == 0
    assert all(list(read_traces(tmp_path / name)) == [] for name in "abc")


def test_progress_is_reported_with_the_number_of_rows(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    rows = FileRows(write_jsonl(tmp_path / "a.jsonl", swe_rows(130)))
    import_source(SweSmith(), [rows], tmp_path / "out", limit=100, progress=lambda *call: calls.append(call))
    import_source(SweSmith(), [rows], tmp_path / "out", progress=lambda *call: calls.append(call))
    first = [(count, 100) for count in range(65)]  # of few rows each may be large
    assert [call[1:] for call in calls] == [*first, (100, 130), (128, 130)]
    assert all("a.jsonl" in what for what, _, _ in calls)


def test_rows_are_counted_without_being_decoded(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", swe_rows(7))
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes().rstrip(b"\n")))
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text("[{}, {}]")
    (tmp_path / "empty.jsonl").write_text("")
    names = ("a.jsonl", "a.jsonl.gz", "a.parquet", "a.json", "empty.jsonl")
    assert [FileRows(tmp_path / name).count() for name in names] == [7, 7, 3, None, 0]


def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "_MIN_POOL_BYTES", 0)
    monkeypatch.setattr(inputs, "_MAX_ROWS", 8)
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 50)
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", [*mixed_rows(123), [1, 2]]))
    turns = [("system", "Act."), ("user", "Go."), act("look", {}), ("function", "{}"), answer("There.")]
    branches = FileRows(write_jsonl(tmp_path / "t.jsonl", [bench_row(turns[:3]), bench_row(turns)]))
    reports: list[ImportReport] = []
    for workers in (1, 2, 3):
        out = tmp_path / str(workers)
        reports.append(import_source(SweSmith(), [rows], out, engine=Processes(workers)))
        assert import_source(ToolBench(), [branches], out, engine=Processes(workers)).drops == {"prefix_row": 1}
        assert listing(out) == listing(tmp_path / "1")
        assert not list(out.glob(".source*"))
    assert reports[0] == reports[1] == reports[2]
    assert reports[0].drops == {"null_messages": 25, "not_an_object": 1}


def test_many_inputs_with_any_number_of_workers_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stands there twice, and the rows of another cannot be sent to workers."""
    monkeypatch.setattr(importing, "_MIN_POOL_BYTES", 0)
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)
    (tmp_path / "again").mkdir()
    said = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Gone."}]
    paths = [write_jsonl(tmp_path / f"{n}.jsonl", mixed_rows(3 + n)) for n in range(9)]
    paths.append(write_jsonl(tmp_path / "again" / "8.jsonl", mixed_rows(11)))
    talks = write_jsonl(tmp_path / "t.jsonl", [{"id": str(n), "messages": said} for n in range(40)])
    inputs = [
        importing.SourceInputs(SweSmith(), rows=[FileRows(path) for path in paths]),
        importing.SourceInputs(Unsendable(), rows=[FileRows(write_jsonl(tmp_path / "u.jsonl", mixed_rows(30)))]),
        importing.SourceInputs(Chat(), rows=[FileRows(talks)]),
    ]
    reports = [importing.import_inputs(inputs, tmp_path / str(n), engine=Processes(n)) for n in (1, 2, 3)]
    assert reports[0] == reports[1] == reports[2]
    assert listing(tmp_path / "1") == listing(tmp_path / "2") == listing(tmp_path / "3")
    assert reports[0].sources["swe_smith"].files_done == 1
    again = importing.import_inputs(inputs, tmp_path / "2", engine=Processes(2))
    assert again.already_done == again.rows == reports[0].rows
    assert listing(tmp_path / "1") == listing(tmp_path / "2")


class Unsendable(SweSmith):
    """A source that no process can be sent."""

    def __init__(self) -> None:
        self.wanted = lambda row: True


def test_inputs_are_sealed_together_at_the_same_rows_whatever_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_MIN_POOL_BYTES", 0)
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)
    rows = [FileRows(write_jsonl(tmp_path / f"{n}.jsonl", swe_rows(7 + n))) for n in range(5)]
    import_source(SweSmith(), rows, tmp_path / "whole")
    for workers in (1, 2):
        out = tmp_path / str(workers)
        with pytest.raises(SourceError, match="the network is gone"):
            import_source(SweSmith(), [*rows[:2], Breaking(rows[2], 8), *rows[3:]], out, engine=Processes(workers))
        assert TraceStore(out).manifest.counts["rows"] == 20, "of 7, 8 and 8"
        import_source(SweSmith(), rows, out, engine=Processes(workers))
        assert listing(out) == listing(tmp_path / "whole")


def test_the_account_of_rows_is_reported_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", mixed_rows(23)))
    with pytest.raises(SourceError):
        import_source(SweSmith(), [Breaking(rows, 15)], tmp_path / "out")
    report = import_source(SweSmith(), [rows], tmp_path / "out").sources["swe_smith"]
    assert (report.account.records, report.account.used, dict(report.account.dropped)) == (13, 10, {"null_messages": 3})
    counts = report.counts
    assert (counts.traces, counts.turns, counts.calls, counts.results) == (10, 30, 30, 20)
    kept = TraceStore(tmp_path / "out").manifest.accounts
    whole = {"records": 23, "used": 18, "dropped": {"null_messages": 5}}
    assert kept == {"swe_smith": {**whole, "traces": 18, "turns": 54, "calls": 54, "results": 36, "unredacted": 18}}
