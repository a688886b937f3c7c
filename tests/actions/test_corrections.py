"""Tables of corrections: as a person or a spreadsheet leaves them, and what of them is applied."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from actions.traces import OK, say, sh, trace
from foretrace.actions.corrections import read_corrections
from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import SourceError

HEADER = "key,id,message_index,step,correct_action"
ROWS = [
    {"key": "t", "id": "x", "message_index": 0, "step": 'a "b",\nc', "correct_action": "retrieval"},
    {"key": "t", "id": "x", "message_index": 2, "step": "", "correct_action": "no_step"},
    {"key": "t", "id": "x", "message_index": 4, "step": "", "correct_action": ""},
    {"key": "u;", "id": "y", "message_index": 1, "step": "=1+1", "correct_action": "BLOCKED"},
]
AS_CSV = f"""{HEADER}
t,x,0,"a ""b"",
c",retrieval
t,x,2,,no_step
t,x,4,,
u;,y,1,'=1+1,BLOCKED
"""
AS_SEMICOLONS = 'correct_action;key;id;message_index\nretrieval;t;x;0\nno_step;t;x;2\n;t;x;4\nBLOCKED;"u;";y;1\n'


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    "data",
    [
        AS_CSV,
        AS_CSV.encode("utf-8-sig"),
        AS_CSV.replace("\n", "\r\n"),
        AS_CSV.replace("x,0,", "x,0.0,").replace("no_step", " no_step "),
        AS_CSV + ",,,,\n\n",
        AS_SEMICOLONS,
        AS_SEMICOLONS.replace(";", "\t").replace('u\t"', 'u;"'),
        AS_CSV.replace(HEADER, f'"{HEADER}"'.replace(",", '","')),
    ],
    ids=["plain", "bom", "crlf", "numbers", "empty rows", "semicolons", "tabs", "quoted header"],
)
def test_csv_as_spreadsheets_write_it(tmp_path: Path, data: str | bytes) -> None:
    found = read_corrections(write(tmp_path / "c.csv", data))
    expected = {("t", 0): ("x", "retrieval"), ("t", 2): ("x", None), ("u;", 1): ("y", "BLOCKED")}
    assert {place: (each.id, each.action) for place, each in found.steps.items()} == expected
    assert found.left_empty == 1


def test_what_keeps_a_key_from_being_a_formula_is_undone(tmp_path: Path) -> None:
    found = read_corrections(write(tmp_path / "c.csv", f"{HEADER}\n'@t/1,x,0,,repair\n"))
    assert [*found.steps] == [("@t/1", 0)]


def test_all_formats_say_the_same(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    files = [write(tmp_path / "c.csv", AS_CSV), write(tmp_path / "c.jsonl", lines)]
    digests = {read_corrections(path).compute_digest() for path in files}
    assert len(digests) == 1
    other = lines.replace("retrieval", "file_read")
    assert read_corrections(write(tmp_path / "o.jsonl", other)).compute_digest() not in digests


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("c.csv", "", "is empty"),
        ("c.csv", "key,id,message_index\nt,x,0\n", "row 2 has no column 'correct_action'"),
        ("c.csv", f"{HEADER}\nt,x,0,,reads\n", "row 2: 'reads' is not an action; write one of tool_call"),
        ("c.csv", f"{HEADER}\nt,x,0,,repair\nt,x,0,,BLOCKED\n", "row 3: step 0 of t is corrected in row 2 too"),
        ("c.csv", f"{HEADER}\nt,,0,,repair\n", "row 2: has no id"),
        ("c.csv", f"{HEADER}\n,x,0,,repair\n", "row 2: has no key"),
        ("c.csv", f"{HEADER}\nt,x,first,,repair\n", "row 2: message_index 'first' is not a whole number"),
        ("c.csv", f"{HEADER}\nt,x,-1,,repair\n", "is not a whole number"),
        ("c.csv", f'{HEADER}\nt,x,0,"torn', "row 2 cannot be read"),
        ("c.csv", f"{HEADER}\nt,x,0\n", "row 2 cannot be read: it has more or fewer cells"),
        ("c.csv", f"{HEADER}\nt,x,0,é,repair\n".encode("latin-1"), "is not in UTF-8"),
        ("c.jsonl", '{"key": "t"}\n', "row 1 has no column 'id'"),
        ("c.jsonl", json.dumps(ROWS[0]) + '\n{"key": "t', "row 2 cannot be read"),
        ("c.parquet", "PAR1", "name it .csv or .jsonl"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_the_row(
    tmp_path: Path, name: str, data: str | bytes, said: str
) -> None:
    with pytest.raises(SourceError) as caught:
        read_corrections(write(tmp_path / name, data))
    assert said in str(caught.value) and name in str(caught.value) and "\n" not in str(caught.value)


def test_a_correction_changes_the_action_alone(tmp_path: Path) -> None:
    corrections = read_corrections(write(tmp_path / "c.csv", AS_CSV))
    one = msgspec.structs.replace(trace(sh("touch a"), OK, sh("ls"), OK, say("Done.")), id="x")
    before = label_trace(one)
    after = corrections.apply(one, before)
    assert [label.action for label in after] == [ActionType.RETRIEVAL, None, ActionType.FINAL_ANSWER]
    assert [(label.rule, label.confidence) for label in after[:2]] == [("corrected", 1.0)] * 2
    assert [(b.effect, b.state_version) for b in before] == [(a.effect, a.state_version) for a in after]
    changed = msgspec.structs.replace(one, id="z")
    assert corrections.apply(changed, before) == before
