"""What a build decides about whole traces before it makes rows: which stay, and which groups no split may part.

A filter looks at each trace in a worker process, and decides in the parent by what was found in all of them. The
filters are asked in turn, and each sees the traces that those before it left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import BuildError
from foretrace.core.trace import Trace
from foretrace.dataset.filters.base import Decision, ExaminedTrace, TraceFilter
from foretrace.dataset.filters.benchmarks import BenchmarkFilter
from foretrace.dataset.filters.copies import CopyFilter
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
    """The filters that the settings ask for, in the order in which they decide.

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


def examine_trace(trace: Trace, filters: Sequence[TraceFilter]) -> ExaminedTrace:
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


def select_traces(filters: Sequence[TraceFilter], examined: Sequence[ExaminedTrace]) -> TraceSelection:
    """Let the filters decide, in turn.

    Raises:
        BuildError: two traces of one key.
    """
    left = sorted(examined, key=lambda trace: trace.key)
    for one, other in pairwise(left):
        if one.key == other.key:
            raise BuildError(
                f"{one.key} stands in two folders, as a trace of the task {one.task} and of {other.task}: "
                "leave one of the folders out, or import its rows again"
            )
    left_out: dict[str, str] = {}
    described: dict[str, Any] = {}
    merges: list[tuple[str, ...]] = []
    kept_together: list[tuple[str, ...]] = []
    for each in filters:
        decision = each.decide(left)
        gone = {trace.key: trace for trace in left if trace.key in decision.left_out}
        left_out |= dict.fromkeys(gone, each.name)
        merges += decision.merged_groups
        kept_together += decision.kept_together
        described[each.name] = _describe(decision, left, gone)
        left = [trace for trace in left if trace.key not in gone]
    return TraceSelection(
        left_out=left_out,
        groups=merge_groups(merges),
        kept_together=kept_together,
        filters=described,
        lacks_tools=not left or not all(trace.names_tools for trace in left),
    )


def _describe(decision: Decision, traces: Sequence[ExaminedTrace], gone: Mapping[str, ExaminedTrace]) -> dict[str, Any]:
    by_source: dict[str, Counter[str]] = {}
    for key, trace in gone.items():
        by_source.setdefault(trace.source, Counter())[decision.left_out[key]] += 1
    return {
        "traces": len(traces),
        "left_out": len(gone),
        "by_source": {source: dict(sorted(reasons.items())) for source, reasons in sorted(by_source.items())},
        **decision.figures,
        **({"notes": decision.notes} if decision.notes else {}),
    }


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
