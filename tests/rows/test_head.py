"""What recognition sees: whole records, cut documents, names in folders; bounded whatever the file holds."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from foretrace.core.errors import SourceError
from foretrace.rows.head import read_head


def write(tmp_path: Path, data: bytes, name: str = "file") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_packed(tmp_path: Path) -> None:
    assert read_head(write(tmp_path, gzip.compress(b'{"a": 1}\n'), "x.jsonl.gz")).records == ({"a": 1},)


def test_a_folder_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, b"", "b.json")
    assert read_head(tmp_path).names == ("b.json", "sub/")
    with pytest.raises(SourceError, match="cannot read"):
        read_head(tmp_path / "none")


def test_a_text_that_quotes_rows_holds_no_records(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text('# How to\n\nA row:\n\n{"messages": [{"role": "user", "content": "Hi."}]}\n\nThen import it.\n')
    assert read_head(path).records == ()
