"""The Hub path: the real `datasets` streaming code on local folders with exactly the hub's column types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretrace.core.errors import SourceError, UsageError
from foretrace.core.store import read_traces
from foretrace.rows.base import Hub
from foretrace.rows.hub import HubRows
from foretrace.sources.importing import import_rows
from foretrace.sources.swe_smith import SweSmith
from foretrace.sources.toolbench import ToolBench
from sources.raw_rows import FINISH, act, answer, bench_prefixes, swe_row, ticks_messages, tool_messages, xml_messages

SWE = pa.schema(
    [
        ("messages", pa.string()), ("instance_id", pa.string()), ("resolved", pa.bool_()), ("model", pa.string()),
        ("traj_id", pa.string()), ("patch", pa.string()),
    ]
)  # fmt: skip
PAIRS = pa.struct([("from", pa.list_(pa.string())), ("value", pa.list_(pa.string()))])
BENCH = pa.schema([("id", pa.string()), ("conversations", PAIRS)])
BRANCH = [act("find_for_maps", {"q": 1}), answer("a"), act("find_for_maps", {"q": 2}), answer("b"), FINISH]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def swe(tmp_path: Path) -> Path:
    """Splits tool, xml and ticks of the default config, as the card declares them; tool in two files."""
    folder = tmp_path / "trajectories"
    (folder / "data").mkdir(parents=True)
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    makers: dict[str, Any] = {"tool": tool_messages, "xml": xml_messages, "ticks": ticks_messages}
    for split, make in makers.items():
        rows = [swe_row(json.dumps(make([f"echo {n}"])), n, resolved=bool(n % 2)) for n in range(20)]
        for part, some in enumerate((rows[:13], rows[13:])):
            table = pa.Table.from_pylist(some, schema=SWE)
            pq.write_table(table, folder / "data" / f"{split}-{part:05d}-of-00002.parquet", row_group_size=5)
        lines += [f"  - split: {split}", f"    path: data/{split}-*"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return folder


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """Config default with a data/ layout and no card; prefixes of two queries, the longest rows first."""
    folder = tmp_path / "toolbench"
    (folder / "data").mkdir(parents=True)
    rows = [*reversed(bench_prefixes(BRANCH)), *bench_prefixes(BRANCH[:3], "Other?")]
    for split, some in (("train", rows), ("validation", rows[:1])):
        pq.write_table(pa.Table.from_pylist(some, schema=BENCH), folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def hub(folder: Path, split: str, config: str | None = None) -> HubRows:
    return HubRows(Hub(str(folder), split, config))


def test_toolbench_struct_of_two_lists(bench: Path, tmp_path: Path) -> None:
    rows = hub(bench, "train", "default")
    report = import_rows(ToolBench(), [rows], tmp_path / "out")
    assert (report.rows, report.traces, dict(report.drops)) == (5, 2, {"prefix_row": 3})
    assert sorted(len(t.messages) for t in read_traces(tmp_path / "out")) == [5, 7]
    assert import_rows(ToolBench(), [rows], tmp_path / "out").already_done == 5
    limited = import_rows(ToolBench(), [hub(bench, "train", "default")], tmp_path / "few", limit=2)
    assert (limited.rows, limited.traces, dict(limited.drops)) == (2, 1, {"prefix_row": 1})


def test_a_split_or_config_that_does_not_exist_is_one_line(swe: Path, tmp_path: Path) -> None:
    for rows in (hub(swe, "nope"), hub(swe, "train", "tool")):
        with pytest.raises(SourceError, match="cannot open") as caught:
            import_rows(SweSmith(), [rows], tmp_path / "out")
        assert "\n" not in str(caught.value)


def test_a_damaged_file_stops_with_what_to_do(swe: Path, tmp_path: Path) -> None:
    path = swe / "data" / "tool-00001-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"row 13.*run it again"):
        import_rows(SweSmith(), [hub(swe, "tool")], tmp_path / "out")


def test_offline_is_said_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UsageError, match="HF_HUB_OFFLINE"):
        HubRows(SweSmith.hub)
