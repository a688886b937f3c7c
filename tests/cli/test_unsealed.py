"""Whoever reads a folder in which a run of `generate` was killed is told what it does not read."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from cli.conftest import Run
from core.test_journal import journal_of, seal
from core.test_store import make
from foretrace.core.journal import JournalEntry, count_unsealed

SAID = "finished traces of an interrupted generate (or of one that still runs) are not sealed yet and not read"


@pytest.fixture
def torn(traces: Path) -> Path:
    """A folder with four traces, and a journal of two more, of one that was left out, and of half of another."""
    left_out = JournalEntry(key="k", left_out="not_success")
    path = journal_of(traces, make(1), make(2), make(2), left_out)
    whole = path.stat().st_size
    journal_of(traces, make(3))
    with path.open("r+b") as file:
        file.truncate((whole + path.stat().st_size) // 2)
    return traces


@pytest.mark.parametrize("verb", ["show", "label --out l.csv", "build --out d --outcomes all --overwrite"])
def test_told_in_one_line_on_stderr(run: Run, torn: Path, verb: str) -> None:
    done = run(verb, torn, "--json", "--quiet")
    assert done.code == 0 and done.json
    assert done.err.splitlines()[0] == f"warning: {torn}: 2 {SAID}; run the same generate command again"
    assert "not sealed" not in done.out
    seal(torn)
    assert "not sealed" not in run(verb, torn).err
    assert count_unsealed(torn) == 0 and run("show", torn, "--json").json["traces"] == 6


@pytest.mark.parametrize("verb", ["label", "export --format jsonl"])
def test_a_file_is_not_written_of_a_folder_that_has_nothing_sealed(run: Run, tmp_path: Path, verb: str) -> None:
    out = Path("l.jsonl")
    journal_of(tmp_path / "none")
    done = run(f"{verb} none --out l.jsonl --quiet")
    assert done.code == 1 and "holds no finished trace of its interrupted generate" in done.err and not out.exists()
    journal_of(tmp_path / "t", make(1))
    out.write_text("what was there")
    done = run(f"{verb} t --out l.jsonl --json")
    assert (done.code, done.out, out.read_text()) == (1, "", "what was there")
    assert done.err.endswith("foretrace: t: none of its traces is sealed; l.jsonl was not written\n")
    seal(tmp_path / "t")
    assert run(f"{verb} t --out l.jsonl").code == 0 and out.read_text() != "what was there"


def test_a_journal_that_cannot_be_read_is_named_and_the_rest_is_read(run: Run, traces: Path) -> None:
    path = journal_of(traces, make(1))
    said = run("show", traces, "swe_smith").err.splitlines()[0]
    assert "1 finished trace of" in said and "is not sealed yet" in said
    path.write_bytes(zstandard.ZstdCompressor().compress(b"[]\n"))
    done = run("show", traces, "--json")
    assert (done.code, done.json["traces"]) == (0, 4)
    assert done.err.startswith(f"warning: {path}: is not a journal of this foretrace") and done.err.count("\n") == 1
