"""Filters of whole traces: what is left out gives no row and teaches nothing, merged groups are one, all is counted.

Beside those of tests: licenses, where what is not known to be allowed does not stay, and successes with a cheat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset.little import build, corpus, examine, rows, runs, says, seen, trace, user
from foretrace.api.datasets import load
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import BuildError, UsageError
from foretrace.core.store import write_traces
from foretrace.core.trace import Trace
from foretrace.dataset import plan, shard_job
from foretrace.dataset.build import build as build_dataset
from foretrace.dataset.filters.base import Decision, ExaminedTrace, TraceFilter
from foretrace.dataset.filters.benchmark_sets import write_benchmarks
from foretrace.dataset.filters.copies import CopyFilter
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.trace_filters import FlagFilter, LicenseFilter, make_trace_filters, merge_groups, select_traces

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
    manifest = build_dataset([tmp_path / "t"], tmp_path / "d", SETTINGS).manifest
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
        build_dataset([tmp_path / "t"], tmp_path / "d", SETTINGS)
    assert not (tmp_path / "d").exists()


def test_one_key_under_two_tasks_is_refused(tmp_path: Path) -> None:
    """The decision about one would hold for the other."""
    one = corpus(1)[0]
    other = msgspec.structs.replace(one, task=msgspec.structs.replace(one.task, id="another"))
    write_traces([one], tmp_path / "a")
    write_traces([other], tmp_path / "b")
    with pytest.raises(BuildError, match=f"{one.key} stands in two folders, as a trace of the task .* and of "):
        build_dataset([tmp_path / "a", tmp_path / "b"], tmp_path / "d", SETTINGS)
    assert not (tmp_path / "d").exists()


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3), max_size=6))
def test_groups_that_hang_together_get_one_name(merges: list[list[str]]) -> None:
    names = merge_groups(merges)
    assert names == merge_groups(merges[::-1])
    for groups in merges:
        assert len({names.get(group, group) for group in groups}) == 1
    assert all(new < old and new not in names for old, new in names.items())


def make_trace(key: str, license: str | None) -> Trace:
    made = trace(key, user("Go."), says("Done."))
    return msgspec.structs.replace(made, provenance=msgspec.structs.replace(made.provenance, license=license))


TRACES = [make_trace("a", "MIT"), make_trace("b", "apache-2.0"), make_trace("c", None), make_trace("d", "GPL-3.0")]


@pytest.mark.parametrize(
    ("allow", "deny", "kept"),
    [
        (("mit", "Apache-2.0"), (), "ab"),
        (("MIT", "unknown"), (), "ac"),
        ((), ("gpl-3.0",), "ab"),
        (("MIT", "GPL-3.0"), ("Apache-2.0",), "ad"),
    ],
)
def test_kept_by_license(allow: tuple[str, ...], deny: tuple[str, ...], kept: str) -> None:
    settings = BuildSettings(license_allow=allow, license_deny=deny)
    filters = [LicenseFilter(settings)]
    selection = select_traces(filters, examine(TRACES, filters))
    assert "".join(each.key for each in selection.apply(TRACES)) == kept
    reasons = selection.filters["license"]["by_source"]["little:train"]
    assert sum(reasons.values()) == 4 - len(kept)
    assert set(reasons) <= {"MIT", "apache-2.0", "unknown", "GPL-3.0"}


def test_licenses_come_first_and_only_where_a_list_is_given(tmp_path: Path) -> None:
    benchmarks = write_benchmarks([], tmp_path)
    assert "license" not in [each.name for each in make_trace_filters(BuildSettings(), benchmarks)]
    assert make_trace_filters(BuildSettings(license_deny=("GPL-3.0",)), benchmarks)[0].name == "license"


def test_license_that_is_allowed_and_denied_is_refused() -> None:
    with pytest.raises(UsageError, match="license_allow and license_deny both name mit"):
        BuildSettings(license_allow=("MIT",), license_deny=("mit",)).check()


CHEAT = "git log --all --oneline"


def attempt(number: int, *, cheats: bool, success: bool | None = True) -> Trace:
    """An attempt of two commands at a task of its own."""
    first = CHEAT if cheats else "git log -5"
    looks = runs(first), seen("4f2c9ab1 Sum"), runs(f"cat a{number}.py"), seen(f"x = {number}")
    said = user(f"Fix bug {number}."), *looks, says("Fixed.")
    return trace(f"k{number:02}", *said, task=f"t{number}", group=f"g{number}", success=success)


def decide(*traces: Trace, keep: bool = False) -> tuple[dict[str, str], dict[str, Any]]:
    """What is left out, and what the manifest says."""
    filters = [FlagFilter(BuildSettings(keep_flagged=keep))]
    selection = select_traces(filters, examine(traces, filters))
    return selection.left_out, selection.filters["flags"]


def test_successes_with_a_cheat_are_left_out_and_counted() -> None:
    left_out, said = decide(attempt(1, cheats=True), attempt(2, cheats=False))
    assert left_out == {"k01": "flags"}
    assert said["by_source"] == {"little:train": {"history.read": 1}}
    assert (said["successes"], said["flagged"], said["left_out"], said["kept"]) == (2, 1, 1, False)
    assert said["rules"] == {"history.read": 1}


@pytest.mark.parametrize("success", [False, None])
def test_what_is_no_success_stays(success: bool | None) -> None:
    left_out, said = decide(attempt(1, cheats=True, success=success))
    assert left_out == {} and said["flagged"] == 0


def test_a_mark_leaves_nothing_out() -> None:
    ended = trace("k", user("Look."), runs("cat a.py"), seen("x = 1"), says("Done."))
    outcome = msgspec.structs.replace(ended.outcome, fabricated=True)
    left_out, said = decide(msgspec.structs.replace(ended, outcome=outcome))
    assert left_out == {} and said["rules"] == {"ending.fabricated": 1} and said["flagged"] == 0


def test_a_build_has_no_row_of_them(tmp_path: Path) -> None:
    traces = [attempt(n, cheats=n % 4 == 0) for n in range(40)]
    for kept, left_out in ((False, 10), (True, 0)):
        folder = tmp_path / str(kept)
        found = build(folder, *traces, recipes=["trajectories"], keep_flagged=kept)["filters"]["flags"]
        assert (found["left_out"], found["flagged"]) == (left_out, 10)
        assert (CHEAT in json.dumps(list(rows(folder / "d", "trajectories")))) == kept
