"""Dataset files: what is written reads back as plain rows everywhere, in the order of the seed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.errors import BuildError
from foretrace.core.message_columns import ChatText
from foretrace.dataset import parquet
from foretrace.dataset.parquet import ACTIONS, TableWriter, find_rank, read_groups
from foretrace.dataset.prompt_digests import digest_prompt, digest_prompts
from foretrace.dataset.recipes.base import ColumnType, Config, Row

COLUMNS: dict[str, ColumnType] = {
    "prompt": "messages",
    "text": "string",
    "names": "strings",
    "count": "int",
    "good": "bool",
    "action": "action",
    "next": "actions",
    "messages": "json_list",
    "key": "string",
    "step": "int",
}
CONFIG = Config("little", COLUMNS, "for tests")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)
VALUES = st.fixed_dictionaries(
    {
        "prompt": st.lists(st.builds(ChatText, st.sampled_from(["system", "user"]), TEXTS), max_size=4),
        "text": TEXTS,
        "names": st.lists(TEXTS, max_size=3),
        "count": st.integers(-(2**31), 2**31 - 1),
        "good": st.none() | st.booleans(),
        "action": st.sampled_from(ACTIONS),
        "next": st.lists(st.sampled_from(ACTIONS), max_size=3),
        "messages": st.lists(VALUE, max_size=3),
    }
)


def as_rows(values: list[dict[str, Any]]) -> list[Row]:
    return [Row("little", f"k{n}", n, "", v | {"key": f"k{n}", "step": n}) for n, v in enumerate(values)]


def write(path: Path, given: list[Row], config: Config = CONFIG, seed: int = 0) -> Path:
    path.unlink(missing_ok=True)
    writer = TableWriter(path, config, seed)
    for row in given:
        writer.add(row)
    assert writer.close() == len(given)
    return path


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """The values as any reader should give them."""
    return values | {
        "prompt": [{"role": role, "content": text} for role, text in values["prompt"]],
        "action": ACTIONS.index(values["action"]),
        "next": [ACTIONS.index(a) for a in values["next"]],
        "messages": [msgspec.json.encode(value).decode() for value in values["messages"]],
    }


@given(st.lists(VALUES, min_size=1, max_size=9), st.integers(1, 4))
def test_rows_read_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, values: Any, window: int) -> None:
    """Any text, empty lists, nulls, several row groups: by pyarrow as it is, and by our own reader."""
    given = as_rows(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "WINDOW_ROWS", window)
        path = write(tmp_path_factory.mktemp("t") / "a.parquet", given)
    assert pq.ParquetFile(path).num_row_groups == -(-len(given) // window)
    found = {row["key"]: row for row in pq.read_table(path).to_pylist()}
    assert found == {r.key: plain(r.values) for r in given}
    again = {}
    for group in read_groups(path, CONFIG):
        assert digest_prompts(group.open("prompt")) == [digest_prompt(prompt) for prompt in group.read("prompt")]
        for row in zip(*map(group.read, COLUMNS), strict=True):
            again[row[list(COLUMNS).index("key")]] = dict(zip(COLUMNS, row, strict=True))
    assert again == {r.key: r.values for r in given}


def sample(count: int = 40) -> list[Row]:
    shared = [ChatText("user", "é shared " * 9), ChatText("assistant", "")]
    same: dict[str, Any] = {"names": [], "count": 1, "good": None, "action": ACTIONS[0], "next": [], "messages": []}
    prompts = [[*shared[: n % 3], ChatText("user", f"own {n}")] for n in range(count)]
    return as_rows([{**same, "prompt": prompt, "text": "t\n\0"} for prompt in prompts])


def test_order_is_that_of_the_rank_and_not_of_arrival(tmp_path: Path) -> None:
    given = sample()
    first = write(tmp_path / "a.parquet", given).read_bytes()
    ranked = [r.key for r in sorted(given, key=lambda r: find_rank(0, r))]
    assert pq.read_table(tmp_path / "a.parquet")["key"].to_pylist() == ranked != [r.key for r in given]
    random.Random(1).shuffle(given)
    assert write(tmp_path / "a.parquet", given).read_bytes() == first
    assert write(tmp_path / "a.parquet", given, seed=1).read_bytes() != first


def test_a_text_of_many_rows_is_stored_once(tmp_path: Path) -> None:
    """A hundred prompts that share a long text cost little more than one."""
    text = "".join(random.Random(0).choices("abcdefghijklmnop ", k=200_000))
    given = sample(100)
    for row in given:
        row.values["prompt"] = [ChatText("user", text), ChatText("user", row.key)]
    size = write(tmp_path / "many.parquet", given).stat().st_size
    one = write(tmp_path / "one.parquet", given[:1]).stat().st_size
    assert size < 1.1 * one + 20_000
    assert {r["prompt"][0]["content"] for r in pq.read_table(tmp_path / "many.parquet").to_pylist()} == {text}


def test_a_file_that_two_jobs_write_at_one_time_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a worker that seemed to be lost lives on beside the one that does its job again."""
    monkeypatch.setattr(parquet, "WINDOW_ROWS", 30)  # so that both have begun before one is done
    alone = write(tmp_path / "alone.parquet", sample(100)).read_bytes()
    path = tmp_path / "twice.parquet"
    first, second = (TableWriter(path, CONFIG, 0) for _ in range(2))
    for row in sample(100):
        first.add(row)
        second.add(row)
    second.close()
    assert path.read_bytes() == alone
    first.close()
    assert path.read_bytes() == alone and len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = TableWriter(tmp_path / "file" / "a.parquet", CONFIG, 0)
    writer.add(sample(1)[0])
    with pytest.raises(BuildError, match="cannot write"):
        writer.close()
