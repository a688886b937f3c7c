"""Session files in a traces folder: done ones are skipped, grown ones go on, every record has one fate."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.errors import ForetraceError, SourceError, UsageError
from foretrace.core.store import TraceStore, read_traces
from foretrace.core.trace import Trace
from foretrace.sources import taking
from foretrace.sources.account import Account
from foretrace.sources.importing import SourceInputs, import_inputs
from foretrace.sources.report import ImportReport
from sources.session_formats import Breaking, EventFolder, Talks, talk, write_talk


def run(out: Path, *files: Path, source: Any = None, **options: Any) -> ImportReport:
    return import_inputs([SourceInputs(source or Talks(), files=files)], out, **options)


def listing(folder: Path) -> dict[str, bytes]:
    paths = ["manifest.json", *(s.path for s in TraceStore(folder).manifest.segments)]
    return {path: (folder / path).read_bytes() for path in paths}


def stored(out: Path) -> dict[str, Trace]:
    return {trace.key: trace for trace in read_traces(out)}


def test_an_import_has_an_account_of_every_record(tmp_path: Path) -> None:
    records = [*talk("1", 2), {"kind": "progress"}, {"kind": "progress"}, {"kind": "novelty"}, *talk("2", 1)]
    file = write_talk(tmp_path / "a.jsonl", records, tail='no json\n{"talk": "2", "ki')
    report = run(tmp_path / "out", file)
    own = report.sources["talks"]
    assert (report.rows, report.traces, own.files) == (2, 2, 1)
    account = own.account
    assert (account.records, account.used, account.waiting) == (13, 8, 1)
    assert (dict(account.ignored), dict(account.unknown)) == ({"progress": 2}, {"novelty": 1})
    assert dict(account.dropped) == {"bad_json": 1}
    counts = own.counts
    assert (counts.traces, counts.turns, counts.calls, counts.results) == (2, 3, 3, 3)
    assert (dict(counts.timed_turns), dict(counts.timed_calls)) == ({"stamps": 3}, {"stamps": 3})
    assert TraceStore(tmp_path / "out").manifest.accounts == {"talks": account.to_dict() | counts.to_dict()}
    assert TraceStore(tmp_path / "out").manifest.counts == {"rows": 2, "traces": 2}


def test_a_file_that_is_done_is_not_read_again(tmp_path: Path) -> None:
    file = write_talk(tmp_path / "a.jsonl", talk("1", 2))
    run(tmp_path / "out", file)
    before = listing(tmp_path / "out")
    report = run(tmp_path / "out", file)
    assert listing(tmp_path / "out") == before
    assert (report.rows, report.already_done, report.sources["talks"].files_done) == (1, 1, 1)
    assert report.sources["talks"].account.records == 0
    os.utime(file, (1, 1))
    report = run(tmp_path / "out", file)
    assert (report.already_done, report.sources["talks"].files) == (1, 1)
    assert run(tmp_path / "out", file, source=Breaking()).traces == 1  # another source has a cursor of its own


def test_a_file_that_grows_goes_on_without_doubling(tmp_path: Path) -> None:
    records, file, out = talk("1", 5), tmp_path / "a.jsonl", tmp_path / "out"
    cut = json.dumps(records[4])
    run(out, write_talk(file, records[:4], tail=cut[:20]))
    assert len(stored(out)["talks@1"].messages) == 4
    report = run(out, write_talk(file, records[:6], tail=json.dumps(records[6])[:-1]))
    assert (report.traces, report.grown, report.drops.total()) == (0, 1, 0)
    assert report.sources["talks"].account.waiting == 1
    report = run(out, write_talk(file, records))
    assert (report.rows, report.grown) == (1, 1)
    assert run(out, file).grown == 0
    run(tmp_path / "whole", file)
    assert list(read_traces(out)) == list(read_traces(tmp_path / "whole"))
    manifest = TraceStore(out).manifest
    assert manifest.counts == {"rows": 1, "traces": 1} and manifest.accounts["talks"]["records"] == 11


def test_the_last_turn_may_have_gone_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = [{"talk": "1", "kind": "user", "text": "Go."}, {"talk": "1", "kind": "agent", "text": "I go"}]
    run(out, write_talk(tmp_path / "a.jsonl", first))
    longer = [first[0], {**first[1], "text": "I go there."}]
    assert run(out, write_talk(tmp_path / "a.jsonl", longer)).grown == 1
    other = [first[0], {**first[1], "text": "You go there, and I stay."}]
    report = run(out, write_talk(tmp_path / "a.jsonl", other))
    assert dict(report.drops) == {"key_conflict": 1} and stored(out)["talks@1"].messages[1].content == "I go there."
    assert run(out, tmp_path / "a.jsonl", replace=True).replaced == 1


def test_one_session_in_two_files(tmp_path: Path) -> None:
    """The longer one stays, in whatever order they come; what is not a continuation is a conflict."""
    files = [write_talk(tmp_path / f"{n}.jsonl", talk("1", n)) for n in (1, 2, 3)]
    for name, order in (("up", files), ("down", files[::-1]), ("mixed", [files[1], files[2], files[0]])):
        report = run(tmp_path / name, *order)
        assert report.traces == 1 and report.grown + report.already_done == 2 and not report.drops
        counts = report.sources["talks"].counts
        assert (counts.traces, counts.turns, counts.results) == (1, 3, 3), name
        assert len(stored(tmp_path / name)["talks@1"].messages) == 7
        cut = write_talk(tmp_path / "cut.jsonl", talk("1", 3)[:-1])  # before the last result
        assert run(tmp_path / name, cut).already_done == 1 and len(stored(tmp_path / name)["talks@1"].messages) == 7
    other = write_talk(tmp_path / "other.jsonl", [{**r, "text": r["text"] + "!"} for r in talk("1", 9)])
    report = run(tmp_path / "up", other)
    assert dict(report.drops) == {"key_conflict": 1}
    assert "take this one with replace=True" in report.examples["key_conflict"][0]


def test_a_file_without_an_agent_turn_shows_what_it_holds(tmp_path: Path) -> None:
    user = write_talk(tmp_path / "user.jsonl", [*talk("1", 1)[:1], {"kind": "progress"}, {"kind": "later"}])
    nothing = write_talk(tmp_path / "nothing.jsonl", [{"kind": "novelty"}] * 3)
    empty = write_talk(tmp_path / "empty.jsonl", [])
    report = run(tmp_path / "out", user, nothing, empty, write_talk(tmp_path / "good.jsonl", talk("2", 1)))
    assert dict(report.drops) == {"no_agent_turn": 3} and report.traces == 1
    shown = "\n".join(report.examples["no_agent_turn"])
    assert "1 used, 1 of type progress, 1 of type later" in shown
    assert "no agent turn in 3 records (3 of type novelty)" in shown
    assert "empty.jsonl: no agent turn in 0 records (none)" in shown


def test_a_reader_that_breaks_costs_its_file_alone(tmp_path: Path) -> None:
    files = [write_talk(tmp_path / f"{n}.jsonl", talk(str(n), 1)) for n in range(3)]
    report = run(tmp_path / "out", *files, tmp_path / "gone.jsonl", source=Breaking())
    assert (report.traces, dict(report.drops)) == (3, {"internal_error": 3, "unreadable_file": 1})
    assert "KeyError: 'no such thing'" in report.examples["internal_error"][0]


class Locked(Talks):
    def read_traces(self, path: Path, account: Account) -> Any:
        raise SourceError(f"{path}: the database is locked")


def test_a_file_that_its_reader_refuses_is_named_once(tmp_path: Path) -> None:
    file = write_talk(tmp_path / "a.jsonl", talk("1", 1))
    report = run(tmp_path / "out", file, source=Locked())
    assert report.examples == {"unreadable_file": [f"{file}: the database is locked"]}


class Miscounting(Talks):
    def read_traces(self, path: Path, account: Account) -> Any:
        yield from super().read_traces(path, account)
        account.records += 1


def test_an_account_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetraceError, match="do not add up"):
        run(tmp_path / "out", write_talk(tmp_path / "a.jsonl", talk("1", 1)), source=Miscounting())


class Careless(Talks):
    def read_traces(self, path: Path, account: Account) -> Any:
        for trace in super().read_traces(path, account):
            assert isinstance(trace, Trace)
            yield Trace(key="\ud800", task=trace.task, messages=trace.messages, provenance=trace.provenance)
            yield 17
            yield trace


def test_what_is_no_trace_is_dropped(tmp_path: Path) -> None:
    report = run(tmp_path / "out", write_talk(tmp_path / "a.jsonl", talk("1", 1)), source=Careless())
    assert dict(report.drops) == {"internal_error": 1, "not_utf8": 1}
    assert report.traces == 1  # what follows is read


class Stopping(Talks):
    """Is killed when it reads a file again and again, each time later."""

    left = 0

    def read_traces(self, path: Path, account: Account) -> Any:
        for trace in super().read_traces(path, account):
            Stopping.left -= 1
            if Stopping.left < 0:
                raise KeyboardInterrupt
            yield trace


@pytest.mark.parametrize(("limit", "size"), [("CHECKPOINT_BYTES", 9_000), ("CHECKPOINT_ROWS", 7)])
def test_an_interrupted_import_goes_on_and_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, size: int
) -> None:
    monkeypatch.setattr(taking, limit, size)
    files = [write_talk(tmp_path / f"{n:03}.jsonl", talk(str(n), 1 + n % 9)) for n in range(40)]
    files.append(write_talk(tmp_path / "many.jsonl", [r for n in range(200, 230) for r in talk(str(n), n % 4)]))
    run(tmp_path / "whole", *files)
    kept = [0]
    for stop in (10, 15, 12, 25):
        Stopping.left = stop
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "out", *files, source=Stopping())
        kept.append(TraceStore(tmp_path / "out").manifest.counts["rows"])
    assert kept == sorted(set(kept)) and kept[-1] > 42, kept
    report = run(tmp_path / "out", *files)
    assert report.rows == 70 == report.traces + report.already_done + report.drops.total()
    assert report.already_done == kept[-1] and TraceStore(tmp_path / "out").manifest.drops == {"no_agent_turn": 8}
    assert listing(tmp_path / "out") == listing(tmp_path / "whole")


def test_limits_count_the_conversations_of_a_source(tmp_path: Path) -> None:
    files = [write_talk(tmp_path / f"{n}.jsonl", [r for m in range(4) for r in talk(f"{n}-{m}", 1)]) for n in range(3)]
    seen = 0
    for limit in (1, 3, 6, 6, 9, None):
        report = run(tmp_path / "out", *files, limit=limit)
        asked = limit or 12
        assert (report.rows, report.already_done) == (asked, min(seen, asked)), limit
        seen = asked
        assert TraceStore(tmp_path / "out").manifest.counts == {"rows": seen, "traces": seen}
    run(tmp_path / "whole", *files)
    assert list(read_traces(tmp_path / "out")) == list(read_traces(tmp_path / "whole"))


def test_since_leaves_out_what_ended_before(tmp_path: Path) -> None:
    records = [*talk("old", 2, start=1_600_000_000), *talk("new", 2, start=1_700_000_000)]
    file, out = write_talk(tmp_path / "a.jsonl", records), tmp_path / "out"
    report = run(out, file, since="2023-01-01")
    assert (report.rows, report.traces, report.before_since, report.drops.total()) == (2, 1, 1, 0)
    assert run(out, file, since="2023-01-01").already_done == 2
    report = run(out, file)  # what was left out is taken without the date
    assert (report.traces, report.already_done) == (1, 1)
    assert run(out, file, since="2024-01-01").already_done == 2
    with pytest.raises(UsageError, match="write a date"):
        run(out, file, since="yesterday")


def test_a_folder_is_one_input(tmp_path: Path) -> None:
    write_talk(tmp_path / "run" / "events" / "1.jsonl", talk("1", 1))
    folder = tmp_path / "run"
    assert run(tmp_path / "out", folder, source=EventFolder()).traces == 1
    assert run(tmp_path / "out", folder, source=EventFolder()).sources["event_folder"].files_done == 1
    write_talk(folder / "events" / "2.jsonl", talk("2", 1))
    report = run(tmp_path / "out", folder, source=EventFolder())
    assert (report.traces, report.already_done) == (1, 1)
