"""What every source keeps: no row breaks the import, and every row is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrace.clean.redact import Redactor
from foretrace.core import plugins
from foretrace.core.store import TraceStore, read_traces
from foretrace.core.trace import Trace
from foretrace.registry import is_own_source
from foretrace.rows.base import Drop, RowRef
from foretrace.sources.converting import Cleaner
from foretrace.sources.importing import import_rows
from sources.raw_rows import FINISH, TRACE_ROW, Given, bench_row, swe_row, xml_messages

ALL = plugins.plugin_names("source")
SOURCES = [name for name in ALL if hasattr(plugins.load_plugin("source", name), "to_trace")]
VALUES: list[Any] = [
    None,
    True, 0, -1, 1.5, 10**30, "", "x", "[]", "{}", "[{}]", '[{"role": "assistant"}]', "[" * 9999, "\x00", [], [None],
    [[]],
    [1, "a"], {}, {"from": [], "value": []}, {"from": ["assistant"], "value": [None]}, {"from": None}, float("nan"),
    [{"role": "assistant", "content": "x", "tool_calls": [None, {"function": {"name": "f", "arguments": 5}}]}],
    [{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": 5}}, {"text": 3}, 7]}],
    [{"role": "assistant", "content": "x", "tool_calls": "f(x)"}], [{"from": "gpt", "value": ["x"]}],
    [{"role": "assistant", "content": "x"}, {"role": "tool", "content": "y", "tool_call_ids": "call_1"}],
    [{"role": "assistant", "content": "x"}, {"role": "tool", "content": "y", "tool_call_ids": 5}],
    [{"role": ["assistant"], "content": "x"}], [{"role": "assistant", "content": "\ud800"}],
    [{"role": "assistant", "name": {}}],
]  # fmt: skip
COLUMNS = [
    "messages", "conversations", "instance_id", "id", "traj_id", "resolved", "model", "tools", "reward", "success",
    "key", "task", "provenance", "outcome", "extra", "patch", "group", "schema_version",
]  # fmt: skip
GOOD = [swe_row(xml_messages(["ls"])), bench_row([FINISH]), TRACE_ROW]


def check(source: Any, rows: list[Any], folder: Path) -> None:
    report = import_rows(source, [Given(rows)], folder)
    assert report.rows == len(rows) == report.traces + sum(report.drops.values()) + report.already_done
    found = list(read_traces(folder))  # nothing was written that cannot be read
    assert len(found) == report.traces
    assert all(t.id and t.messages is not None for t in found)
    manifest = TraceStore(folder).manifest
    assert manifest.counts == {"rows": len(rows), "traces": report.traces}
    assert manifest.drops == report.drops
    assert all(detail for details in report.examples.values() for detail in details)


@pytest.mark.parametrize("name", SOURCES)
def test_every_kind_of_value_in_every_column(name: str, tmp_path: Path) -> None:
    rows: list[Any] = [{column: value} for column in COLUMNS for value in VALUES]
    rows += [{**row, column: value} for row in GOOD for column in COLUMNS for value in VALUES]
    rows += [Drop("bad_json", "made up"), {}, {"messages": VALUES}]
    check(plugins.load_plugin("source", name)(), rows, tmp_path / "out")


class Wild:
    """A plugin of somebody else, which returns and raises anything."""

    name = "wild"
    license = None
    hub = None

    def to_trace(self, row: dict[str, Any], at: RowRef) -> Any:
        if row["do"] == "raise":
            raise KeyError("x")
        if row["do"] == "nothing":
            return None
        good = plugins.load_plugin("source", "chat")().to_trace(
            {"messages": [{"role": "assistant", "content": "x"}]}, at
        )
        assert isinstance(good, Trace)
        if row["do"] == "bad type":
            return Trace(key=5, task=good.task, messages=good.messages, provenance=good.provenance)  # type: ignore[arg-type]
        if row["do"] == "unencodable":
            return Trace(
                key="k", task=good.task, messages=good.messages, provenance=good.provenance, extra={"x": object()}
            )
        return good


class Unchanged:
    """Cleans many traces together."""

    def apply(self, traces: Any) -> list[Any]:
        return list(traces)

    def redact_texts(self, texts: Any) -> Any:
        return texts


@pytest.mark.parametrize("cleaner", [None, Unchanged(), Redactor()])
def test_a_plugin_may_do_anything(tmp_path: Path, cleaner: Cleaner | None) -> None:
    rows: list[Any] = [{"do": do} for do in ("raise", "nothing", "bad type", "well", "unencodable")]
    report = import_rows(Wild(), [Given(rows)], tmp_path / "out", cleaner=cleaner)
    assert report.traces == 1 and report.drops == {"internal_error": 4}
    assert len(list(read_traces(tmp_path / "out"))) == 1
    places = [text.partition(":")[0] for text in report.examples["internal_error"]]
    assert places == [f"given.jsonl row {number}" for number in range(3)]


def test_code_from_outside_is_told_by_its_name() -> None:
    """Only then may it need pandas, which a small process does without."""
    own = ["chat", "swe_smith:xml", "auto"]
    assert [name for name in [*own, "mine:Source", "my.sources:chat", "unknown"] if is_own_source(name)] == own
