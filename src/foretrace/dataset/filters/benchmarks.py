"""Report traces that contain benchmark problems, and leave them out if requested."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.actions.label_steps import LabelEvidence
from foretrace.clean.benchmarks import BenchmarkFinder, BenchmarkHit, BenchmarkProblem
from foretrace.core.trace import Message, Trace
from foretrace.dataset.filters.base import Decision, ExaminedTrace, count_tasks
from foretrace.dataset.filters.benchmark_sets import compute_digest, list_known_problems
from foretrace.dataset.settings import BuildSettings

Place = Literal["task", "prompt", "tool output", "agent"]
_MAX_NAMED = 50
_MAX_PER_TRACE = 100
"""Most hits kept per trace, ids and the largest shares first; the same words in the same place count once."""
_MAX_SPAN = 160


class FoundHit(msgspec.Struct, frozen=True, omit_defaults=True):
    hit: BenchmarkHit
    place: Place
    message: int | None = None
    """Index of the message; `None` for a hit in the task."""
    span: str = ""
    """The matching text, or its beginning."""


class BenchmarkFilter:
    """Looks for the benchmarks of the settings by id, statement, solution and tests, and for other known ones by
    fingerprints of statements and solutions, or only by ids."""

    name = "benchmarks"

    def __init__(self, settings: BuildSettings, written: Path) -> None:
        self._named, self._finder = _load(written)
        self._problems = self._finder.problems
        self._removes = bool(self._named) and not settings.keep_contaminated

    def examine(self, trace: Trace, evidence: Sequence[LabelEvidence]) -> Any:
        """The hits in the trace that contain most of a problem; `None` if there are none."""
        hits = [hit for hit in (*self._find_in_names(trace), *self._find_in_texts(trace)) if _is_in_reach(hit)]
        if len(hits) > _MAX_PER_TRACE:
            hits.sort(key=lambda found: (found.hit.field != "id", -self._finder.measure(found.hit)))
        return msgspec.to_builtins(hits[:_MAX_PER_TRACE]) or None

    def _find_in_names(self, trace: Trace) -> Iterator[FoundHit]:
        found: dict[int, str] = {}
        for name in _list_names(trace):
            if (number := self._finder.find_id(name)) is not None:
                found.setdefault(number, name)
        for number, name in found.items():
            hit = BenchmarkHit(problem=number, field="id", text=0, start=0, end=len(name))
            yield FoundHit(hit, "task", None, name[:_MAX_SPAN])

    def _find_in_texts(self, trace: Trace) -> Iterator[FoundHit]:
        listed = list(_list_texts(trace))
        seen: set[tuple[Any, ...]] = set()
        for hit in self._finder.find([text for text, _, _ in listed]):
            text, place, message = listed[hit.text]
            what = (hit.problem, hit.field, place, hit.runs)
            if what not in seen:
                seen.add(what)
                yield FoundHit(hit, place, message, " ".join(text[hit.start : hit.end][:_MAX_SPAN].split()))

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Leave out the traces that contain a benchmark of the settings, if requested."""
        pairs = ((trace.task, each.hit) for trace, hits in self._read_hits(traces) for each in hits)
        common = self._finder.find_common_words(pairs, count_tasks(traces))
        left_out: dict[str, str] = {}
        by_benchmark: dict[str, Counter[str]] = defaultdict(Counter)
        by_source: dict[str, Counter[str]] = defaultdict(Counter)
        shown: list[dict[str, Any]] = []
        total = 0
        for trace, hits in self._read_hits(traces):
            copies = [each for each in hits if self._finder.judge(each.hit, common)]
            kinds = {(self._get_name(each), f"{each.hit.field} in {each.place}") for each in copies}
            for name, kind in kinds:
                by_benchmark[name][kind] += 1
            names = sorted({name for name, _ in kinds})
            for name in names:
                by_benchmark[name]["traces"] += 1
                by_source[trace.source][name] += 1
            total += len(copies)
            shown += [self._show(trace.key, each) for each in copies[: _MAX_NAMED - len(shown)]]
            named = [name for name in names if name in self._named]
            if self._removes and named:
                left_out[trace.key] = named[0]
        figures = {
            "looked_for": self._describe_sets(),
            "removed": self._removes,
            "found": {name: dict(sorted(counts.items())) for name, counts in sorted(by_benchmark.items())},
            "found_by_source": {name: dict(sorted(counts.items())) for name, counts in sorted(by_source.items())},
            "copies": shown,
            "copies_not_shown": total - len(shown),
        }
        return Decision(left_out=left_out, figures=figures, notes=self._make_notes(figures))

    def _read_hits(self, traces: Sequence[ExaminedTrace]) -> Iterator[tuple[ExaminedTrace, list[FoundHit]]]:
        """The traces with hits, read each time because there may be many."""
        for trace in traces:
            if self.name in trace.findings:
                yield trace, msgspec.convert(trace.findings[self.name], list[FoundHit])

    def _get_name(self, found: FoundHit) -> str:
        return self._problems[found.hit.problem].benchmark

    def _describe_sets(self) -> dict[str, Any]:
        sets: dict[str, list[BenchmarkProblem]] = defaultdict(list)
        for problem in self._problems:
            sets[problem.benchmark].append(problem)
        return {
            name: {
                "problems": len(problems),
                "by": _list_what_is_looked_for(problems),
                "digest": compute_digest(problems),
            }
            for name, problems in sets.items()
        }

    def _show(self, key: str, found: FoundHit) -> dict[str, Any]:
        hit = found.hit
        return {
            "trace": key,
            "problem": self._problems[hit.problem].id,
            "benchmark": self._get_name(found),
            "field": hit.field,
            "place": found.place,
            "message": found.message,
            "start": hit.start,
            "end": hit.end,
            "share": round(self._finder.measure(hit), 3),
            "text": found.span,
        }

    def _make_notes(self, figures: dict[str, Any]) -> list[str]:
        looked = "; ".join(
            f"{name} by {', '.join(each['by'])} ({each['problems']} problems)"
            for name, each in figures["looked_for"].items()
        )
        notes = [f"Benchmarks that were looked for: {looked}."]
        only_reported = [name for name in figures["looked_for"] if name not in self._named]
        if only_reported:
            notes.append(f"What is found of {', '.join(only_reported)} is reported, and not left out.")
        notes += [f"{name}: no trace holds a problem of it." for name in sorted(self._named - figures["found"].keys())]
        for name, counts in figures["found"].items():
            how = ", ".join(f"{kind} {n}" for kind, n in counts.items() if kind != "traces")
            done = "left out" if self._removes and name in self._named else "not left out"
            notes.append(f"{name}: traces that hold problems of it: {counts['traces']} ({how}), {done}.")
        return notes


@functools.lru_cache(maxsize=1)
def _load(written: Path) -> tuple[set[str], BenchmarkFinder]:
    """The names of the benchmarks of the settings, and a finder for these and the other known ones. Loaded once per
    process, since a worker examines the traces of many jobs."""
    problems = msgspec.msgpack.decode(written.read_bytes(), type=list[BenchmarkProblem])
    named = {problem.benchmark for problem in problems}
    return named, BenchmarkFinder([*problems, *list_known_problems(but=named)])


def _list_what_is_looked_for(problems: Sequence[BenchmarkProblem]) -> list[str]:
    found = {field for problem in problems for field in problem.list_fields()} | {"id" for p in problems if p.id}
    return [field for field in ("id", "statement", "solution", "tests") if field in found]


def _is_in_reach(found: FoundHit) -> bool:
    """Whether a hit can be a copy. An id in a tool's output or written by the agent is only a mention."""
    return found.hit.field != "id" or found.place in ("task", "prompt")


def _list_names(trace: Trace) -> Iterator[str]:
    yield trace.task.id
    if trace.provenance.raw_id:
        yield trace.provenance.raw_id
    yield trace.key


def _list_texts(trace: Trace) -> Iterator[tuple[str, Place, int | None]]:
    if trace.task.statement:
        yield trace.task.statement, "task", None
    for index, message in enumerate(trace.messages):
        place = _find_place(message)
        yield message.content, place, index
        if message.reasoning:
            yield message.reasoning, place, index
        for call in message.tool_calls:
            yield call.arguments, place, index


def _find_place(message: Message) -> Place:
    if message.role == "tool" or (message.author == "environment" and message.role != "system"):
        return "tool output"
    return "agent" if message.role == "assistant" else "prompt"
