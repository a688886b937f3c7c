"""Filters of whole traces: what is left out gives no row and teaches nothing, merged groups are one, all is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.little import corpus, rows
from foretrace.api.datasets import load
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import BuildError
from foretrace.core.store import write_traces
from foretrace.core.trace import Trace
from foretrace.dataset import plan, shard_job
from foretrace.dataset.build import build
from foretrace.dataset.filters.base import Decision, ExaminedTrace, TraceFilter
from foretrace.dataset.filters.copies import CopyFilter
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.trace_filters import merge_groups

SETTINGS = BuildSettings(statistical_gates=False, outcomes="all", split=(0.4, 0.3, 0.3))


def is_chosen(trace: Trace) -> bool:
    return hash_fraction(trace.key) < 0.3


class Chosen:
    """Leaves out traces by their keys, and puts three of the other groups into one."""

    name = "chosen"

    def examine(self, trace: Trace, evidence: object) -> bool | None:
        return is_chosen(trace) or None

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        assert [trace.key for trace in traces] == sorted(trace.key for trace in traces)
        chosen = {trace.key: "by its key" for trace in traces if trace.findings.get("chosen")}
        groups = sorted({trace.group for trace in traces if trace.key not in chosen})
        return Decision(left_out=chosen, merged_groups=[tuple(groups[:3])], figures={"groups": len(groups)})


class NoneAtAll:
    """Leaves out what another filter left."""

    name = "none"

    def examine(self, trace: Trace, evidence: object) -> None:
        return None

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        return Decision(left_out=dict.fromkeys((trace.key for trace in traces), "all"))


def use(monkeypatch: pytest.MonkeyPatch, *filters: TraceFilter) -> None:
    """Have a build ask these filters, and that of copies, of which a gate reads what it found."""

    def make(settings: BuildSettings, benchmarks: Path) -> list[TraceFilter]:
        return [*filters, CopyFilter()]

    for module in (plan, shard_job):
        monkeypatch.setattr(module, "make_trace_filters", make)


def test_rows_come_from_what_is_left_in_its_merged_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the merged group has the empty name."""
    traces = corpus(24)
    for n, one in enumerate(traces[:3]):
        traces[n] = msgspec.structs.replace(one, task=msgspec.structs.replace(one.task, group=""))
    write_traces(traces, tmp_path / "t")
    use(monkeypatch, Chosen())
    manifest = build([tmp_path / "t"], tmp_path / "d", SETTINGS).manifest
    gone = {trace.key for trace in traces if is_chosen(trace)}
    assert gone and len(gone) < len(traces)
    built = list(rows(tmp_path / "d", "trajectories"))
    assert {row["key"] for row in built} == {trace.key for trace in traces} - gone
    before = sorted({trace.task.group for trace in traces if trace.key not in gone})
    assert before[0] == "" and {row["group"] for row in built} == {*before} - {*before[1:3]}
    found = manifest["filters"]["chosen"]
    assert (found["traces"], found["left_out"], found["groups"]) == (len(traces), len(gone), len(before))
    assert sum(n for reasons in found["by_source"].values() for n in reasons.values()) == len(gone)
    assert manifest["counts"]["traces"] == len(traces) - len(gone)
    assert (manifest["inputs"]["traces"], manifest["inputs"]["groups"]) == (len(traces), len(before) - 2)
    assert json.loads((tmp_path / "d/manifest.json").read_text())["filters"] == manifest["filters"]
    for split in ("train", "validation", "test"):
        streamed = load(tmp_path / "t", "trajectories", split, outcomes="all", shares=SETTINGS.split)
        assert [row["key"] for row in streamed] == [row["key"] for row in built if row["split"] == split]


def test_each_filter_sees_what_those_before_it_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_traces(corpus(12), tmp_path / "t")
    use(monkeypatch, Chosen(), NoneAtAll())
    why = r"all 36 traces are left out by .*: chosen \(whole traces\) 7, none \(whole traces\) 29"
    with pytest.raises(BuildError, match=why):
        build([tmp_path / "t"], tmp_path / "d", SETTINGS)
    assert not (tmp_path / "d").exists()


def test_one_key_under_two_tasks_is_refused(tmp_path: Path) -> None:
    """The decision about one would hold for the other."""
    one = corpus(1)[0]
    other = msgspec.structs.replace(one, task=msgspec.structs.replace(one.task, id="another"))
    write_traces([one], tmp_path / "a")
    write_traces([other], tmp_path / "b")
    with pytest.raises(BuildError, match=f"{one.key} stands in two folders, as a trace of the task .* and of "):
        build([tmp_path / "a", tmp_path / "b"], tmp_path / "d", SETTINGS)
    assert not (tmp_path / "d").exists()


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3), max_size=6))
def test_groups_that_hang_together_get_one_name(merges: list[list[str]]) -> None:
    names = merge_groups(merges)
    assert names == merge_groups(merges[::-1])
    for groups in merges:
        assert len({names.get(group, group) for group in groups}) == 1
    assert all(new < old and new not in names for old, new in names.items())
