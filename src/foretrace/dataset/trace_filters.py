"""What a build decides about whole traces before it makes rows: which stay, and which groups no split may part.

A filter looks at each trace in a worker process, and decides in the parent by what was found in all of them. The
filters are asked in turn, and each sees the traces that those before it left."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Trace
from foretrace.dataset.filters.base import ExaminedTrace, TraceExaminer, TraceFilter
from foretrace.dataset.filters.benchmarks import BenchmarkFilter
from foretrace.dataset.filters.copies import CopyFilter
from foretrace.dataset.filters.examined import ExaminedTraces, pack_runs, sort_runs
from foretrace.dataset.filters.flags import FlagFilter
from foretrace.dataset.filters.license import LicenseFilter
from foretrace.dataset.settings import BuildSettings


class TraceSelection(msgspec.Struct, frozen=True, kw_only=True):
    """What all filters decided."""

    left_out: dict[str, str] = {}
    """The filter that leaves it out, by key of a trace."""
    groups: dict[str, str] = {}
    """The new group of each group that was merged with others."""
    kept_together: list[tuple[str, ...]] = []
    """Keys of traces that must not stand in two splits, although their own groups may."""
    filters: dict[str, Any] = {}
    """What the manifest says of each filter."""
    lacks_tools: bool = True
    """Whether there may be traces whose source does not say what the agent was offered."""

    def apply(self, traces: Iterable[Trace]) -> Iterator[Trace]:
        """The traces that are not left out, each in its group."""
        return (kept for trace in traces if (kept := self._apply_to(trace)) is not None)

    def _apply_to(self, trace: Trace) -> Trace | None:
        if trace.key in self.left_out:
            return None
        group = self.groups.get(trace.task.group, trace.task.group)
        if group == trace.task.group:
            return trace
        return msgspec.structs.replace(trace, task=msgspec.structs.replace(trace.task, group=group))


def make_trace_filters(settings: BuildSettings, scratch: Path | None = None) -> list[TraceFilter]:
    """The filters that the settings ask for, in the order in which they decide; that of copies is the last.

    Args:
        settings: Of the build.
        scratch: A folder for what is too much to be held.
    """
    filters: list[TraceFilter] = []
    if settings.license_allow or settings.license_deny:
        filters.append(LicenseFilter(settings))
    filters.append(BenchmarkFilter(settings))
    filters.append(FlagFilter(settings))
    filters.append(CopyFilter(keeps_best=settings.dedup == "keep-best", scratch=scratch))
    return filters


def examine_traces(traces: Iterable[Trace], filters: Sequence[TraceExaminer]) -> Iterator[bytes]:
    """Look at traces for all filters: what was found, encoded, many traces at a time."""
    return pack_runs(examine_trace(trace, filters) for trace in traces)


def examine_trace(trace: Trace, filters: Sequence[TraceExaminer]) -> ExaminedTrace:
    """Look at one trace for all filters."""
    findings = {each.name: found for each in filters if (found := each.examine(trace)) is not None}
    return ExaminedTrace(
        key=trace.key,
        id=trace.id,
        task=trace.task.id,
        group=trace.task.group,
        source=name_source(trace),
        success=trace.outcome.success,
        n_messages=len(trace.messages),
        n_steps=sum(message.role == "assistant" for message in trace.messages),
        names_tools=bool(trace.tools),
        findings=findings,
    )


def name_source(trace: Trace) -> str:
    """Source and split of a trace, as the manifest names them."""
    return f"{trace.provenance.source}:{trace.provenance.split or '-'}"


def select_traces(
    filters: Sequence[TraceFilter], examined: Iterable[bytes], scratch: Path | None = None
) -> tuple[TraceSelection, ExaminedTraces]:
    """Let the filters decide, in turn.

    Args:
        filters: Those by which the traces were examined.
        examined: What `examine_traces` gave, in any order.
        scratch: A folder for what is too much to be held.

    Returns:
        What they decided, and the traces that the last filter was asked about.

    Raises:
        BuildError: two traces of one key.
    """
    left = asked = sort_runs(examined, scratch)
    left_out: dict[str, str] = {}
    described: dict[str, Any] = {}
    merges: list[tuple[str, ...]] = []
    kept_together: list[tuple[str, ...]] = []
    for each in filters:
        asked = left
        decision = each.decide(asked)
        merges += decision.merged_groups
        kept_together += decision.kept_together
        before = len(left)
        left, by_source = _leave_out(left, decision.left_out)
        left_out |= dict.fromkeys(decision.left_out, each.name)
        described[each.name] = {
            "traces": before,
            "left_out": before - len(left),
            "by_source": {source: dict(sorted(reasons.items())) for source, reasons in sorted(by_source.items())},
            **decision.figures,
            **({"notes": decision.notes} if decision.notes else {}),
        }
    selection = TraceSelection(
        left_out=left_out,
        groups=merge_groups(merges),
        kept_together=kept_together,
        filters=described,
        lacks_tools=not left or not all(trace.names_tools for trace in left),
    )
    return selection, asked


def _leave_out(traces: ExaminedTraces, reasons: Mapping[str, str]) -> tuple[ExaminedTraces, dict[str, Counter[str]]]:
    """The traces that stay, and by source how many do not for each reason."""
    if not reasons:
        return traces, {}
    by_source: dict[str, Counter[str]] = {}
    kept = array("q")
    for place, trace in enumerate(traces):
        if trace.key in reasons:
            by_source.setdefault(trace.source, Counter())[reasons[trace.key]] += 1
        else:
            kept.append(place)
    return traces.choose(kept), by_source


def merge_groups(merges: Sequence[Sequence[str]]) -> dict[str, str]:
    """The new group of each group that is merged with others: the first of them by name. Merges that share a group
    become one."""
    parents: dict[str, str] = {}

    def find(group: str) -> str:
        while (parent := parents.setdefault(group, group)) != group:
            parents[group] = group = parents[parent]
        return group

    for groups in merges:
        for other in groups[1:]:
            first, second = sorted((find(groups[0]), find(other)))
            parents[second] = first
    return {group: find(group) for group in sorted(parents) if find(group) != group}
