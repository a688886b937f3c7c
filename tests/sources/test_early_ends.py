"""Imports that end before their last row: files that are gone, reading that fails, Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.cli.main import main
from foretrace.core.errors import SourceError
from foretrace.core.store import TraceStore
from foretrace.rows.files import FileRows
from foretrace.sources import taking
from foretrace.sources.chat import Chat
from foretrace.sources.importing import import_rows
from sources.raw_rows import write_jsonl

HUB: dict[str, str | None] = {}


def write_chats(path: Path, count: int) -> Path:
    turns = [{"role": "user", "content": path.stem}, {"role": "assistant", "content": "Yes."}]
    return write_jsonl(path, [{"id": f"{path.stem}{n}", "messages": turns} for n in range(count)])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are sealed every ten rows."""
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)


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


@pytest.mark.usefixtures("few")
def test_an_error_says_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [FileRows(write_chats(tmp_path / name, 15)) for name in ("a.jsonl", "b.jsonl")]
    out = tmp_path / "out"
    break_at(monkeypatch, "a.jsonl", 4, OSError(5, "Input/output error"))
    with pytest.raises(SourceError, match=r"a.jsonl: .*error; nothing was sealed before, and nothing is kept; mend it"):
        import_rows(Chat(), inputs, out)
    assert not out.exists()
    monkeypatch.undo()
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)
    break_at(monkeypatch, "b.jsonl", 7, OSError(5, "Input/output error"))
    with pytest.raises(SourceError, match=r"; 20 traces are sealed in .*out, and the same import goes on from there; "):
        import_rows(Chat(), inputs, out)
    assert TraceStore(out).manifest.counts["traces"] == 20


@pytest.mark.usefixtures("few")
def test_an_interrupt_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write_chats(tmp_path / "a.jsonl", 300), tmp_path / "out"
    break_at(monkeypatch, "a.jsonl", 4, KeyboardInterrupt())
    assert main(["import", "chat", str(file), "--out", str(out), "--workers", "1"]) == 130
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == "foretrace: interrupted; nothing was sealed before, and nothing is kept" and not out.exists()
    monkeypatch.undo()
    monkeypatch.setattr(taking, "CHECKPOINT_ROWS", 10)
    break_at(monkeypatch, "a.jsonl", 299, KeyboardInterrupt())
    assert main(["import", "chat", str(file), "--out", str(out), "--workers", "1"]) == 130
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == f"foretrace: interrupted; 250 traces are sealed in {out}, and the same import goes on from there"
