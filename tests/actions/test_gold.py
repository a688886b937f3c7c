"""Labels of the hand-labelled development rows, where those are at hand."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from actions.gold_rows import READERS, load
from foretrace.actions.label_steps import label_trace

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
GOLD = SHARED / "gold" / "dev.jsonl"

pytestmark = pytest.mark.skipif(not GOLD.is_file(), reason="the development rows are not beside the repository")

NAMED = ("swe_smith_tool", "swe_smith_xml", "swe_smith_ticks", "toolbench_v1")
"""Sources with importers of their own: the floor is higher there."""


@pytest.fixture(scope="module")
def hits() -> dict[str, list[tuple[bool, bool]]]:
    """Source -> (strictly right, right with the accepted alternates) of each gold row."""
    gold: dict[str, dict[tuple[str, int], dict[str, object]]] = defaultdict(dict)
    for line in GOLD.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        gold[row["source"]][row["trace_id"], row["step_index"]] = row
    found: dict[str, list[tuple[bool, bool]]] = {}
    for source, rows in gold.items():
        if source not in READERS:
            continue
        predicted: dict[tuple[str, int], str] = {}
        for trace in load(SHARED / "traces", source):
            for label in label_trace(trace):
                at = trace.messages[label.index].raw_index
                if at is not None and label.action is not None:
                    predicted[trace.key, at] = label.action.value
        found[source] = [
            (predicted.get(at) == row["gold"], predicted.get(at) in (row["gold"], *row["alt"]))  # type: ignore[misc]
            for at, row in rows.items()
        ]
    return found


@pytest.mark.parametrize("source", NAMED)
def test_named_source(hits: dict[str, list[tuple[bool, bool]]], source: str) -> None:
    strict, lenient = (sum(each) / len(hits[source]) for each in zip(*hits[source], strict=True))
    assert strict >= 0.95
    assert lenient >= 0.98


def test_all_sources(hits: dict[str, list[tuple[bool, bool]]]) -> None:
    rows = [hit for source in hits.values() for hit in source]
    strict, lenient = (sum(each) / len(rows) for each in zip(*rows, strict=True))
    assert strict >= 0.95
    assert lenient >= 0.98


def test_one_trace_in_three_encodings_gets_the_same_labels() -> None:
    spelled: dict[str, list[list[tuple[object, ...]]]] = {}
    for source in NAMED[:3]:
        spelled[source] = [
            [(each.action, each.rule, each.effect, each.state_version, each.failed) for each in label_trace(trace)]
            for trace in load(SHARED / "traces", source)
        ]
    (ticks,) = spelled["swe_smith_ticks"]
    assert ticks in spelled["swe_smith_tool"]
    assert ticks in spelled["swe_smith_xml"]
    assert all(labels in spelled["swe_smith_xml"] for labels in spelled["swe_smith_tool"])
