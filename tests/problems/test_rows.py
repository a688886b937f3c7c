"""Reading problem files: all endings, and what is wrong with one is said in one line with file and row."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from foretrace.core.errors import ProblemError, UsageError
from foretrace.problems.base import ProblemRow, UnusableRow
from foretrace.problems.rows import read_problem_rows
from foretrace.rows.base import Hub

ROWS = [{"n": number, "text": f"row {number} é"} for number in range(30)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


def values(path: Path) -> list[dict[str, Any]]:
    return [row.value for row in whole(path)]


def whole(path: Path, hub: Hub | None = None) -> list[ProblemRow]:
    found = list(read_problem_rows(path, hub))
    assert all(isinstance(row, ProblemRow) for row in found)
    return found  # type: ignore[return-value]


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def parquet(path: Path) -> bytes:
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=7)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("ending", "packed"),
    [
        *itertools.product([".jsonl", ".ndjson", ".json", "list.json", "data.json", "problems.json"], PACK),
        (".parquet", ""),
    ],
)
def test_all_endings(ending: str, packed: str, tmp_path: Path) -> None:
    data = {
        "list.json": json.dumps(ROWS).encode(),
        "data.json": json.dumps({"version": 1, "data": ROWS}).encode(),
        "problems.json": json.dumps({"problems": ROWS}).encode(),
    }.get(ending, LINES)
    data = parquet(tmp_path / "made.parquet") if ending == ".parquet" else data
    path = written(tmp_path / f"set{ending}{packed}", PACK[packed](data))
    found = whole(path)
    assert [row.value for row in found] == ROWS
    assert found[3].at == f"{path} row 3"
    assert found[3].name == f"set{ending.rpartition('.')[0]}/3"


def test_blank_lines_count_as_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "set.jsonl", b'{"n": 0}\n\n  \n{"n": 3}\n[1]\n{"n": 5}')
    assert [row.at[-5:] for row in read_problem_rows(path, None)] == ["row 0", "row 3", "row 4", "row 5"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.jsonl", b'{"n": 1}\n{"n": \n{"n": 3}\n', "not JSON"),
        ("a.jsonl", b'{"n": 1}\n{"n": "\xff"}\n{"n": 3}\n', "not JSON"),
        ("a.jsonl", b'{"n": 1}\n{"a": ' + b"[" * 100_000 + b'\n{"n": 3}', "not JSON"),
        ("a.json", b'[{"n": 1}, 2, {"n": 3}]', "JSON number, not an object"),
    ],
)
def test_what_is_no_row_is_passed_over(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    path = written(tmp_path / name, data)
    first, drop, last = read_problem_rows(path, None)
    assert (
        isinstance(first, ProblemRow) and isinstance(last, ProblemRow) and [first.value["n"], last.value["n"]] == [1, 3]
    )
    assert isinstance(drop, UnusableRow) and drop.at == f"{path} row 1"
    assert said in drop.reason and "\n" not in drop.reason


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)[:-20], "the file was cut short"),
        ("a.jsonl.gz", LINES, "is not a .gz file, whatever its name says"),
        ("a.jsonl.zst", LINES, "is not a .zst file, whatever its name says"),
        ("a.parquet", b"PAR1 nothing PAR1", "row 0: parquet"),
        ("a.tsv", b"n\n1\n", "cannot tell the format; name it with one of .jsonl"),
    ],
)
def test_what_is_wrong_is_one_line(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError) as caught:
        values(written(tmp_path / name, data))
    assert f"{tmp_path / name}" in str(caught.value) and said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_and_no_place(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"none\.jsonl: no such file"):
        values(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="path="):
        list(read_problem_rows(None, None))


@pytest.fixture
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.usefixtures("_own_cache")
def test_a_dataset_folder_is_streamed_like_the_hub(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "data").mkdir(parents=True)
    parquet(folder / "data" / "test-00000-of-00001.parquet")
    found = whole(folder, Hub("owner/name", "test", "full"))
    assert [row.value for row in found] == ROWS
    assert found[3].at == f"{folder} split test row 3" and found[3].name == "mine/3"
    with pytest.raises(ProblemError, match="split nope: cannot open") as caught:
        list(read_problem_rows(folder, Hub("owner/name", "nope")))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("_own_cache")
def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi, constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert HfApi().endpoint == "http://127.0.0.1:9"
    with pytest.raises(ProblemError, match=r"owner/name: cannot reach .*name a local file with path=") as caught:
        list(read_problem_rows(None, Hub("owner/name", "test")))
    assert "\n" not in str(caught.value) and str(caught.value).count("local file") == 1
