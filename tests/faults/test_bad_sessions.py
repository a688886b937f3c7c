"""Bad session files, one test each, through `auto`: what is whole is imported, what is not is counted and named."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

import foretrace
from foretrace.core import plugins
from foretrace.core.errors import SourceError
from foretrace.core.store import TraceStore, read_traces
from foretrace.rows import files
from foretrace.sources.report import ImportReport
from sources.raw_rows import swe_rows, write_jsonl
from sources.session_formats import talk, write_talk


@pytest.fixture(autouse=True)
def talks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up format is one of ours."""
    monkeypatch.setitem(plugins.BUILT_IN["source"], "talks", "sources.session_formats")


def run(folder: Path, **options: Any) -> ImportReport:
    report = foretrace.import_source("auto", folder, out=folder.with_name("out"), **options)
    assert (
        len(list(read_traces(folder.with_name("out")))) == TraceStore(folder.with_name("out")).manifest.counts["traces"]
    )
    return report


def test_two_formats_in_one_folder_and_foreign_files(tmp_path: Path) -> None:
    write_talk(tmp_path / "in" / "a.jsonl", talk("1", 2))
    write_jsonl(tmp_path / "in" / "rows.jsonl", swe_rows(3))
    (tmp_path / "in" / "photo.jpg").write_bytes(b"\xff\xd8\xff\x00" * 100)
    (tmp_path / "in" / "empty.jsonl").write_text("")
    report = run(tmp_path / "in")
    assert report.traces == 4 and {name: own.files for name, own in report.sources.items()} == {
        "swe_smith": 1,
        "talks": 1,
    }


def test_records_of_another_format_in_one_file(tmp_path: Path) -> None:
    write_talk(tmp_path / "in" / "a.jsonl", [*talk("1", 2), *swe_rows(3), {"talk": "1"}])
    report = run(tmp_path / "in")
    assert (report.traces, dict(report.sources["talks"].account.unknown)) == (1, {"None": 4})


def test_a_folder_of_nothing_but_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "photo.jpg").write_bytes(b"\xff\xd8\xff\x00" * 100)
    with pytest.raises(SourceError, match=r"nothing in a known format \(photo.jpg: binary\); the command `sources` "):
        run(tmp_path / "in")
    (tmp_path / "in" / "photo.jpg").unlink()
    with pytest.raises(SourceError, match="holds no files"):
        run(tmp_path / "in")
    assert not (tmp_path / "out").exists()


def test_lines_that_are_no_records(tmp_path: Path) -> None:
    path = write_talk(
        tmp_path / "in" / "a.jsonl", talk("1", 1), tail="[" * 200_000 + "\n" + '{"talk": ' * 50_000 + "\n"
    )
    path.write_bytes(path.read_bytes() + b'{"talk": "\xff\xfe"}\n\x00\x00\n')
    report = run(tmp_path / "in")
    assert report.traces == 1
    assert dict(report.sources["talks"].account.dropped) == {"nested_too_deep": 2, "not_utf8": 1, "bad_json": 1}


def test_zst_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    text = b"".join(
        json.dumps({**r, "noise": f"{hash((n, r['at']))}" * 50}).encode() + b"\n"
        for n in range(99)
        for r in talk(f"{n}", 3)
    )
    data = zstandard.compress(text)
    (tmp_path / "in" / "a.jsonl.zst").write_bytes(data[: len(data) // 2])
    report = run(tmp_path / "in")
    assert 20 < report.traces < 80 and dict(report.sources["talks"].account.dropped) == {"truncated_file": 1}


def test_a_file_that_is_gone_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_talk(tmp_path / "in" / "a.jsonl", talk("1", 1))
    write_talk(tmp_path / "in" / "b.jsonl", talk("2", 1))
    from sources.session_formats import Talks

    real = Talks.read_traces

    def vanish(self: Talks, path: Path, account: Any) -> Iterator[Any]:
        if path.name == "a.jsonl":
            path.unlink()
        return real(self, path, account)

    monkeypatch.setattr(Talks, "read_traces", vanish)
    report = run(tmp_path / "in")
    assert (report.traces, dict(report.drops)) == (1, {"unreadable_file": 1})
    assert "No such file" in report.examples["unreadable_file"][0]


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written behind the reader's back is taken next time."""
    records = talk("1", 4)
    path = write_talk(tmp_path / "in" / "a.jsonl", records[:3])
    real = files.decode_row

    def grow(line: bytes) -> Any:
        if path.stat().st_size < 400:
            with path.open("a") as file:
                file.write("".join(json.dumps(record) + "\n" for record in records[3:]))
        return real(line)

    with monkeypatch.context() as patch:
        patch.setattr(files, "decode_row", grow)
        first = run(tmp_path / "in")
    assert first.traces == 1
    second = run(tmp_path / "in")
    assert second.grown + second.already_done == 1 and second.sources["talks"].files == 1
    (trace,) = read_traces(tmp_path / "out")
    assert len(trace.messages) == 9


def test_kill_nine_and_again(tmp_path: Path) -> None:
    for number in range(30):
        write_talk(tmp_path / "in" / f"{number}.jsonl", talk(str(number), 4))
    script = textwrap.dedent("""
        import os, sys
        from foretrace.sources import taking
        from foretrace.sources.importing import SourceInputs, import_inputs
        from sources.session_formats import Talks
        from pathlib import Path
        taking.CHECKPOINT_BYTES = 6000
        class Dying(Talks):
            def read_traces(self, path, account):
                if path.name == "29.jsonl":
                    os.kill(os.getpid(), 9)
                return super().read_traces(path, account)
        files = sorted(Path(sys.argv[1]).iterdir(), key=lambda p: int(p.stem))
        import_inputs([SourceInputs(Dying(), files=files)], sys.argv[2])
    """)
    command = [sys.executable, "-c", script, tmp_path / "in", tmp_path / "out"]
    assert subprocess.run(command, env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode == -9
    before = TraceStore(tmp_path / "out").manifest.counts["traces"]
    assert 20 <= before < 30
    report = run(tmp_path / "in")
    assert (report.already_done, report.traces) == (before, 30 - before)
