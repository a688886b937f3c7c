"""Columns of messages, read from a file: every text where it was, and one object for messages that rows share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.core.message_columns import ChatText, list_text_columns, read_messages

SYSTEM = ChatText("system", "You watch an agent.")
ROWS = [[SYSTEM, ChatText("user", "é")], [], [SYSTEM, ChatText("user", ""), ChatText("assistant", "")], [SYSTEM]]


def read_column(path: Path, rows: list[Any]) -> Any:
    texts = pa.struct([("role", pa.string()), ("content", pa.string())])
    pq.write_table(pa.table({"prompt": pa.array(rows, pa.list_(texts))}), path)
    return pq.ParquetFile(path, read_dictionary=list_text_columns(["prompt"])).read()["prompt"]


def test_messages_are_those_that_were_written(tmp_path: Path) -> None:
    column = read_column(tmp_path / "a.parquet", [[m._asdict() for m in row] for row in ROWS])
    found = read_messages(column)
    assert found == ROWS
    assert found[0][0] is found[2][0] is found[3][0]
    assert read_messages(column[1:3]) == ROWS[1:3]


def test_a_text_that_is_missing_is_no_other_text(tmp_path: Path) -> None:
    column = read_column(tmp_path / "a.parquet", [[SYSTEM._asdict(), {"role": "user", "content": None}]])
    with pytest.raises(pa.ArrowInvalid):
        read_messages(column)
