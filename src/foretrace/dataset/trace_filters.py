"""A build's decisions about whole traces before it makes rows: which ones stay, and which groups share a split.

A filter examines each trace in a worker process, and decides in the parent from all findings. The filters decide in
turn, and each sees only the traces that earlier ones kept."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.flags import CHEATS, FLAGS_VERSION, flag_trace
from foretrace.actions.label_steps import LabelEvidence
from foretrace.core.internal_errors import INTERNAL_ERROR, contain_errors
from foretrace.core.trace import Trace
from foretrace.dataset.filters.base import (
    Decision,
    ExaminedTrace,
    ExaminedTraces,
    FoundTrace,
    TraceFilter,
    sort_examined,
)
from foretrace.dataset.filters.benchmarks import BenchmarkFilter
from foretrace.dataset.filters.copies import CopyFilter
from foretrace.dataset.settings import BuildSettings

UNKNOWN = "unknown"
"""The license of traces that name none."""


class LicenseFilter:
    """Keeps traces with allowed licenses, and leaves out denied ones; case does not matter. A trace without a license
    stays only where `unknown` is allowed: it may have one of those that are denied."""

    name = "license"

    def __init__(self, settings: BuildSettings) -> None:
        self._allowed = {name.lower() for name in settings.license_allow}
        self._denied = {name.lower() for name in settings.license_deny}

    def examine(self, trace: Trace, evidence: Sequence[LabelEvidence]) -> str | None:
        return trace.provenance.license

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        licenses = ((trace.key, trace.findings.get(self.name) or UNKNOWN) for trace in traces)
        left_out = {key: name for key, name in licenses if not self._is_allowed(name.lower())}
        return Decision(left_out=left_out, figures={"allowed": sorted(self._allowed), "denied": sorted(self._denied)})

    def _is_allowed(self, name: str) -> bool:
        return name not in self._denied and (name in self._allowed if self._allowed else name != UNKNOWN)


class FlagFilter:
    """Leaves out successes with a cheat, unless they are to be kept. Traces with weaker flags stay."""

    name = "flags"

    def __init__(self, settings: BuildSettings) -> None:
        self._keep = settings.keep_flagged

    def examine(self, trace: Trace, evidence: Sequence[LabelEvidence]) -> list[str] | None:
        """The rules of a success's flags. A failure that cheated is a failure, so it is not examined."""
        if trace.outcome.success is not True:
            return None
        return list(dict.fromkeys(flag.rule for flag in flag_trace(trace, evidence))) or None

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Leave out the successes with a cheat; the reason is the rule of the first one."""
        cheats: dict[str, str] = {}
        counts = Counter[str]()
        successes = 0
        for trace in traces:
            found = trace.findings.get(self.name, [])
            counts.update(found)
            successes += trace.success is True
            if rule := next((rule for rule in found if rule in CHEATS), None):
                cheats[trace.key] = rule
        figures = {
            "version": FLAGS_VERSION,
            "successes": successes,
            "flagged": len(cheats),
            "kept": self._keep,
            "rules": {rule: counts[rule] for rule in sorted(counts)},
        }
        notes: list[str] = []
        if cheats and self._keep:
            notes.append(f"{len(cheats):,} successes are kept although a step of theirs is flagged as a cheat.")
        return Decision(left_out={} if self._keep else cheats, figures=figures, notes=notes)


class TraceSelection(msgspec.Struct, frozen=True, kw_only=True):
    left_out: dict[str, str] = {}
    """The filter that leaves a trace out, by key of the trace."""
    groups: dict[str, str] = {}
    """The new group of each group that was merged with others."""
    kept_together: list[tuple[str, ...]] = []
    """Keys of traces that must not be in different splits, although their groups may be."""
    filters: dict[str, Any] = {}
    """For the manifest, by filter."""
    lacks_tools: bool = True
    """Whether there may be traces whose source does not list the agent's tools."""

    def apply(self, traces: Iterable[Trace]) -> Iterator[Trace]:
        """The traces that are kept, each with its final group."""
        for trace in traces:
            if trace.key in self.left_out:
                continue
            if (group := self.groups.get(trace.task.group)) is not None:
                trace = msgspec.structs.replace(trace, task=msgspec.structs.replace(trace.task, group=group))
            yield trace


def make_trace_filters(settings: BuildSettings, benchmarks: Path) -> list[TraceFilter]:
    """The filters for these settings, in the order in which they decide; `benchmarks` is a file of
    `write_benchmarks`."""
    licenses = [LicenseFilter(settings)] if settings.license_allow or settings.license_deny else []
    copies = CopyFilter(keeps_best=settings.dedup == "keep-best")
    return [*licenses, BenchmarkFilter(settings, benchmarks), FlagFilter(settings), copies]


def examine_trace(trace: Trace, filters: Sequence[TraceFilter], evidence: Sequence[LabelEvidence]) -> ExaminedTrace:
    """Examine one trace for all filters, given its `collect_evidence`."""
    findings: dict[str, Any] = {}
    for each in filters:
        with contain_errors(f"filter {each.name}", trace.key) as wrong:
            if (found := each.examine(trace, evidence)) is not None:
                findings[each.name] = found
        if wrong.text:
            findings.setdefault(INTERNAL_ERROR, each.name)
    return ExaminedTrace(
        key=trace.key,
        task=trace.task.id,
        group=trace.task.group,
        source=name_source(trace),
        success=trace.outcome.success,
        n_steps=sum(message.role == "assistant" for message in trace.messages),
        names_tools=bool(trace.tools),
        findings=findings,
    )


def name_source(trace: Trace) -> str:
    """Source and split of a trace, as in the manifest."""
    return f"{trace.provenance.source}:{trace.provenance.split or '-'}"


def select_traces(
    filters: Sequence[TraceFilter], examined: Iterable[FoundTrace], scratch: Path | None = None
) -> TraceSelection:
    """Let the filters decide, in turn, about the encoded results of `examine_trace`. They may fill the folder
    `scratch`."""
    described: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    merges: list[tuple[str, ...]] = []
    kept_together: list[tuple[str, ...]] = []

    def take(name: str, left: ExaminedTraces, decision: Decision) -> ExaminedTraces:
        kept, by_source = _leave_out(left, decision.left_out)
        left_out.update(dict.fromkeys(decision.left_out, name))
        merges.extend(decision.merged_groups)
        kept_together.extend(decision.kept_together)
        described[name] = {
            "traces": len(left),
            "left_out": len(left) - len(kept),
            "by_source": {source: dict(sorted(reasons.items())) for source, reasons in sorted(by_source.items())},
            **decision.figures,
            **({"notes": decision.notes} if decision.notes else {}),
        }
        return kept

    with sort_examined(examined, scratch) as left:
        # Whether a trace may stay is unknown if a filter could not examine it.
        if failed := {trace.key: INTERNAL_ERROR for trace in left if INTERNAL_ERROR in trace.findings}:
            left = take(INTERNAL_ERROR, left, Decision(left_out=failed))
        for each in filters:
            left = take(each.name, left, each.decide(left))
        lacks_tools = not left or not all(trace.names_tools for trace in left)
    return TraceSelection(
        left_out=left_out,
        groups=merge_groups(merges),
        kept_together=kept_together,
        filters=described,
        lacks_tools=lacks_tools,
    )


def _leave_out(traces: ExaminedTraces, reasons: Mapping[str, str]) -> tuple[ExaminedTraces, dict[str, Counter[str]]]:
    """The traces that stay, and by source how many are left out for each reason."""
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
    """The new group of each merged group: the first of them by name. Merges that share a group become one."""
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
