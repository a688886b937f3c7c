"""Counts, cursors, limits, conflicts and --replace of an import."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.cli.main import main
from foretrace.core.errors import ForetraceError, SourceError
from foretrace.core.store import TraceStore, read_traces
from foretrace.engines.processes import Processes
from foretrace.rows.files import FileRows
from foretrace.sources import importing, taking
from foretrace.sources.chat import Chat
from foretrace.sources.importing import import_rows
from foretrace.sources.report import ImportReport, check_import
from foretrace.sources.swe_smith import SweSmith
from foretrace.sources.toolbench import ToolBench
from sources.raw_rows import act, answer, bench_row, swe_row, swe_rows, write_jsonl, xml_messages
from sources.session_formats import Talks, talk, write_talk


def listing(folder: Path) -> dict[str, bytes]:
    paths = ["manifest.json", *(s.path for s in TraceStore(folder).manifest.segments)]
    return {path: (folder / path).read_bytes() for path in paths}


def mixed_rows(count: int) -> list[Any]:
    return [row if n % 5 else {"messages": None, "n": n} for n, row in enumerate(swe_rows(count))]


def test_counts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ForetraceError, match="do not add up"):
        ImportReport(rows=3, traces=1).check()


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
            import_rows(SweSmith(), [Breaking(rows, at)], tmp_path / "out")
        if at > 10:
            assert TraceStore(tmp_path / "out").manifest.counts["rows"] == at // 10 * 10
    report = import_rows(SweSmith(), [rows], tmp_path / "out")
    assert (report.rows, report.already_done, report.traces) == (57, 50, 5)
    manifest = TraceStore(tmp_path / "out").manifest
    assert [c.drops for c in manifest.inputs.values()] == [manifest.drops] == [{"null_messages": 12}]
    import_rows(SweSmith(), [rows], tmp_path / "out", replace=True)
    assert TraceStore(tmp_path / "out").manifest.drops == {"null_messages": 12}
    import_rows(SweSmith(), [rows], tmp_path / "whole")
    assert listing(tmp_path / "out") == listing(tmp_path / "whole")


def test_a_known_key_with_other_content_is_a_conflict_until_replace(tmp_path: Path) -> None:
    rows = [swe_row(xml_messages(["ls"]), n) for n in range(4)]
    import_rows(SweSmith(), [FileRows(write_jsonl(tmp_path / "a.jsonl", rows))], tmp_path / "out")
    changed = FileRows(write_jsonl(tmp_path / "b.jsonl", [{**row, "resolved": False} for row in rows[:2]] + rows[2:]))
    report = import_rows(SweSmith(), [changed], tmp_path / "out")
    assert (report.already_done, dict(report.drops)) == (2, {"key_conflict": 2})
    assert report.examples["key_conflict"][0].endswith("; take this one with replace=True")
    assert all(t.outcome.success for t in read_traces(tmp_path / "out"))
    # The same file again with --replace: its cursor is at the end, and yet its rows are read.
    report = import_rows(SweSmith(), [changed], tmp_path / "out", replace=True)
    assert (report.rows, report.traces, report.replaced, report.already_done, dict(report.drops)) == (4, 0, 2, 2, {})
    assert sorted(t.outcome.success is True for t in read_traces(tmp_path / "out")) == [False, False, True, True]
    manifest = TraceStore(tmp_path / "out").manifest
    assert manifest.drops == {} and manifest.counts == {"rows": 8, "traces": 4}


def test_replace_counts_the_traces_that_stand_in_the_folder(tmp_path: Path) -> None:
    """Six rows of two keys: the last of each is there, and the other four were replaced."""
    rows = [{**row, "resolved": n == 2} for n in range(3) for row in swe_rows(2)]
    files = [FileRows(write_jsonl(tmp_path / f"{n}.jsonl", some)) for n, some in enumerate((rows[:3], rows[3:]))]
    report = import_rows(SweSmith(), files, tmp_path / "out", replace=True)
    assert len(list(read_traces(tmp_path / "out"))) == 2
    assert (report.rows, report.traces, report.replaced, report.already_done) == (6, 2, 2, 2)
    rows = [FileRows(write_jsonl(tmp_path / "r.jsonl", [*swe_rows(2), *swe_rows(2)]))]
    assert import_rows(SweSmith(), rows, tmp_path / "twice").total.counts.traces == 2, "equal rows are one trace"
    assert +report.success == {"true": 2}


def test_an_import_that_found_nothing_takes_its_folder_away(tmp_path: Path) -> None:
    rows = FileRows(write_jsonl(tmp_path / "r.jsonl", [{"a": 1}]))
    for _ in range(2):
        report = import_rows(SweSmith(), [rows], tmp_path / "out")
        with pytest.raises(SourceError, match="nothing was imported: 1 row, all dropped"):
            check_import(report, "r.jsonl", tmp_path / "out")
        assert not (tmp_path / "out").exists()
    import_rows(SweSmith(), [FileRows(write_jsonl(tmp_path / "good.jsonl", swe_rows(2)))], tmp_path / "out")
    with pytest.raises(SourceError, match="nothing was imported"):
        check_import(import_rows(SweSmith(), [rows], tmp_path / "out"), "r.jsonl", tmp_path / "out")
    assert len(list(read_traces(tmp_path / "out"))) == 2


def test_a_file_that_is_cut_short_is_a_failure(tmp_path: Path) -> None:
    whole = gzip.compress(write_jsonl(tmp_path / "r.jsonl", swe_rows(9)).read_bytes())
    (tmp_path / "r.jsonl.gz").write_bytes(whole[:-20])
    report = import_rows(SweSmith(), [FileRows(tmp_path / "r.jsonl.gz")], tmp_path / "out")
    assert report.traces
    with pytest.raises(SourceError, match=r"r: 1 file was cut short or damaged; what could be read is imported"):
        check_import(report, "r", tmp_path / "out")


def test_other_settings_read_the_same_rows_anew(tmp_path: Path) -> None:
    said = [{"role": "assistant", "content": "x"}]
    rows = FileRows(write_jsonl(tmp_path / "a.jsonl", [{"id": "1", "messages": said, "ok": True}]))
    import_rows(Chat(), [rows], tmp_path / "out")
    report = import_rows(Chat({"success": "ok"}), [rows], tmp_path / "out")
    assert dict(report.drops) == {"key_conflict": 1}
    assert import_rows(Chat({"success": "ok"}), [rows], tmp_path / "out", replace=True).success == {"true": 1}


def test_many_inputs_with_any_number_of_workers_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stands there twice, one is scanned first, and the rows of another cannot be sent to workers."""
    monkeypatch.setattr(importing, "_MIN_POOL_BYTES", 0)
    monkeypatch.setattr(importing, "_MAX_ROWS", 8)
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)
    (tmp_path / "again").mkdir()
    said = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Gone."}]
    paths = [write_jsonl(tmp_path / f"{n}.jsonl", mixed_rows(3 + n)) for n in range(9)]
    paths.append(write_jsonl(tmp_path / "again" / "8.jsonl", mixed_rows(11)))
    talks = write_jsonl(tmp_path / "t.jsonl", [{"id": str(n), "messages": said} for n in range(40)])
    files = [write_talk(tmp_path / f"talk{n}.jsonl", talk(str(n), n % 9)) for n in range(45)]
    files.append(write_talk(tmp_path / "many.jsonl", [r for n in range(200, 220) for r in talk(str(n), 3)]))
    turns = [("system", "Act."), ("user", "Go."), act("look", {}), ("function", "{}"), answer("There.")]
    branches = write_jsonl(tmp_path / "b.jsonl", [bench_row(turns[:3]), bench_row(turns)])
    given = [
        importing.SourceInputs(SweSmith(), rows=[FileRows(path) for path in paths]),
        importing.SourceInputs(Unsendable(), rows=[FileRows(write_jsonl(tmp_path / "u.jsonl", mixed_rows(30)))]),
        importing.SourceInputs(Chat(), rows=[FileRows(talks)]),
        importing.SourceInputs(ToolBench(), rows=[FileRows(branches)]),
        importing.SourceInputs(Talks(), files=files),
    ]
    reports = [importing.import_inputs(given, tmp_path / str(n), engine=Processes(n)) for n in (1, 2, 3)]
    assert reports[0] == reports[1] == reports[2]
    assert listing(tmp_path / "1") == listing(tmp_path / "2") == listing(tmp_path / "3")
    assert reports[0].sources["swe_smith"].files_done == 1 and reports[0].drops["prefix_row"] == 1
    assert (reports[0].sources["talks"].counts.traces, reports[0].drops["no_agent_turn"]) == (60, 5)
    assert not list((tmp_path / "3").glob(".source*"))
    again = importing.import_inputs(given, tmp_path / "2", engine=Processes(2))
    assert again.already_done == again.rows == reports[0].rows
    assert listing(tmp_path / "1") == listing(tmp_path / "2")


class Unsendable(SweSmith):
    """A source that no process can be sent."""

    def __init__(self) -> None:
        self.wanted = lambda row: True


def write_chats(path: Path, count: int) -> Path:
    turns = [{"role": "user", "content": path.stem}, {"role": "assistant", "content": "Yes."}]
    return write_jsonl(path, [{"id": f"{path.stem}{n}", "messages": turns} for n in range(count)])


def break_at(monkeypatch: pytest.MonkeyPatch, name: str, row: int, error: BaseException) -> None:
    whole = FileRows._read_values  # pyright: ignore[reportPrivateUsage]

    def read(self: FileRows) -> Iterator[Any]:
        for number, value in enumerate(whole(self)):
            if self.path.name == name and number == row:
                raise error
            yield value

    monkeypatch.setattr(FileRows, "_read_values", read)


def test_a_file_of_rows_that_is_gone_ends_the_import(tmp_path: Path) -> None:
    inputs = [FileRows(write_chats(tmp_path / name, 3)) for name in ("a.jsonl", "b.jsonl")]
    inputs[1].path.unlink()
    with pytest.raises(SourceError, match=r"b.jsonl: cannot read: No such file or directory; .* run again"):
        import_rows(Chat(), inputs, tmp_path / "out")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_what_ends_an_import_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    files, out = [write_chats(tmp_path / name, 15) for name in ("a.jsonl", "b.jsonl")], tmp_path / "out"
    is_interrupt = isinstance(error, KeyboardInterrupt)
    wrong, sealed = ("interrupted; ", 10) if is_interrupt else (f"{error.args[1]}; ", 20)  # what was read is taken
    kept = {"a.jsonl": "nothing was sealed before, and nothing is kept"}
    kept["b.jsonl"] = f"{sealed} traces are sealed in {out}, and the same import goes on from there"
    for name, said in kept.items():
        with monkeypatch.context() as patch:
            patch.setattr(taking, "CHECKPOINT_ROWS", 10)
            break_at(patch, name, 7, error)
            code = main(["import", "chat", *map(str, files), "--out", str(out), "--workers", "1"])
        assert code == (130 if is_interrupt else 1)
        assert wrong + said in capsys.readouterr().err.replace("\n", " ") and out.exists() == (name == "b.jsonl")
    assert TraceStore(out).manifest.counts["traces"] == sealed
