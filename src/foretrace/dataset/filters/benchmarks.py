"""Report traces that contain benchmark problems, and leave them out if requested."""

from __future__ import annotations

import functools
import re
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
"""Most copies listed in the manifest."""
_MAX_PER_TRACE = 100
"""Most hits kept per trace; the same words in the same place count once."""
_MAX_SPAN = 160
"""Most characters of a matched span that are shown."""
_SWEBENCH_ID = re.compile(
    r"(?:astropy__astropy|django__django|matplotlib__matplotlib|mwaskom__seaborn|pallets__flask|psf__requests"
    r"|pydata__xarray|pylint-dev__pylint|pytest-dev__pytest|scikit-learn__scikit-learn|sphinx-doc__sphinx|sympy__sympy)"
    r"-\d+(?!\d)",
    re.IGNORECASE,
)
"""The form of SWE-bench ids. Other ids of these repositories look the same."""


class FoundHit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A hit as reported by a worker."""

    hit: BenchmarkHit
    place: Place
    message: int | None = None
    """Index of the message; `None` for a hit in the task."""
    span: str = ""
    """The matching text, or its beginning."""


class Found(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's report on one trace."""

    hits: list[FoundHit] = []
    repository_id: str = ""
    """An id that looks like SWE-bench's."""


class BenchmarkFilter:
    """Looks for the benchmarks of the settings by id, statement, solution and tests, and for other known ones by
    fingerprints of statements and solutions, or only by ids."""

    name = "benchmarks"

    def __init__(self, settings: BuildSettings, written: Path) -> None:
        """
        Args:
            settings: Of the build.
            written: The file of `write_benchmarks` for the benchmarks of the settings.
        """
        self._named, self._finder = _load(written)
        self._problems = self._finder.problems
        self._removes = bool(self._named) and not settings.keep_contaminated

    def examine(self, trace: Trace, evidence: Sequence[LabelEvidence]) -> Any:
        """The hits in the trace, and an id that looks like SWE-bench's; `None` if there is neither."""
        hits = [*self._find_in_names(trace), *self._find_in_texts(trace)]
        names = "" if "swebench" in self._named else _find_swebench_id(trace)
        if not hits and not names:
            return None
        return msgspec.to_builtins(Found(self._choose_hits(hits), names))

    def _choose_hits(self, hits: list[FoundHit]) -> list[FoundHit]:
        """Limit the hits to those that contain most of a problem, and one of the ids that are only mentioned."""
        kept = [hit for hit in hits if _is_in_reach(hit)]
        if len(kept) > _MAX_PER_TRACE:
            kept.sort(key=lambda found: (found.hit.field != "id", -self._finder.measure(found.hit)))
        return kept[:_MAX_PER_TRACE] + [hit for hit in hits if not _is_in_reach(hit)][:1]

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
        pairs = ((trace.task, each.hit) for trace, found in self._read_found(traces) for each in found.hits)
        common = self._finder.find_common_words(pairs, count_tasks(traces))
        counts = _Counts()
        left_out: dict[str, str] = {}
        for trace, found in self._read_found(traces):
            copies = [h for h in found.hits if _is_in_reach(h) and self._finder.judge(h.hit, common)]
            counts.add_found(trace, found)
            counts.add_copies(trace, [(self._get_name(h), h) for h in copies])
            counts.shown += [self._show(trace.key, h) for h in copies[: _MAX_NAMED - len(counts.shown)]]
            names = sorted({self._get_name(h) for h in copies} & self._named)
            if self._removes and names:
                left_out[trace.key] = names[0]
        figures = {"looked_for": self._describe_sets(), "removed": self._removes, **counts.describe()}
        return Decision(left_out=left_out, figures=figures, notes=self._make_notes(figures))

    def _read_found(self, traces: Sequence[ExaminedTrace]) -> Iterator[tuple[ExaminedTrace, Found]]:
        """The traces with findings, read each time because there may be many."""
        for trace in traces:
            if self.name in trace.findings:
                yield trace, msgspec.convert(trace.findings[self.name], Found)

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
        notes.append(
            f"Places with 13 words in a row, or a whole shorter text, of a problem: {figures['hits_of_13_words']}; "
            f"those that hold enough of it to be a copy: {figures['copies_among_them']}."
        )
        for name, counts in figures["found"].items():
            how = ", ".join(f"{kind} {n}" for kind, n in counts.items() if kind != "traces")
            done = "left out" if self._removes and name in self._named else "not left out"
            notes.append(f"{name}: traces that hold problems of it: {counts['traces']} ({how}), {done}.")
        if like := sum(figures["traces_like_swebench"].values()):
            notes.append(f"Traces with ids like those of SWE-bench: {like}. Give a file of its ids to check them.")
        return notes


class _Counts:
    """Totals over all traces."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        """The copies listed in the manifest."""
        self._by_benchmark: dict[str, Counter[str]] = defaultdict(Counter)
        self._by_source: dict[str, Counter[str]] = defaultdict(Counter)
        self._like_swebench = Counter[str]()
        self._by_words = self._copies_by_words = self._copies = self._mentions = 0

    def add_found(self, trace: ExaminedTrace, found: Found) -> None:
        self._by_words += sum(bool(h.hit.runs) for h in found.hits)
        self._mentions += any(not _is_in_reach(h) for h in found.hits)
        if found.repository_id:
            self._like_swebench[trace.source] += 1

    def add_copies(self, trace: ExaminedTrace, copies: Sequence[tuple[str, FoundHit]]) -> None:
        """Count the copies in one trace, each with its benchmark."""
        for name in {name for name, _ in copies}:
            self._by_source[trace.source][name] += 1
            self._by_benchmark[name]["traces"] += 1
            self._by_benchmark[name].update({_name_kind(hit) for of, hit in copies if of == name})
        self._copies += len(copies)
        self._copies_by_words += sum(bool(hit.hit.runs) for _, hit in copies)

    def describe(self) -> dict[str, Any]:
        by_source = {source: dict(sorted(counts.items())) for source, counts in sorted(self._by_source.items())}
        return {
            "found": {name: dict(sorted(counts.items())) for name, counts in sorted(self._by_benchmark.items())},
            "found_by_source": by_source,
            "hits_of_13_words": self._by_words,
            "copies_among_them": self._copies_by_words,
            "traces_that_mention_an_id": self._mentions,
            "traces_like_swebench": dict(sorted(self._like_swebench.items())),
            "copies": self.shown,
            "copies_not_shown": self._copies - len(self.shown),
        }


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


def _name_kind(found: FoundHit) -> str:
    return f"{found.hit.field} in {found.place}"


def _list_names(trace: Trace) -> Iterator[str]:
    """The names that may contain the id of the trace's problem."""
    yield trace.task.id
    if trace.provenance.raw_id:
        yield trace.provenance.raw_id
    yield trace.key


def _find_swebench_id(trace: Trace) -> str:
    return next((match[0] for name in _list_names(trace) if (match := _SWEBENCH_ID.search(name))), "")


def _list_texts(trace: Trace) -> Iterator[tuple[str, Place, int | None]]:
    """The texts of a trace, each with its place and the index of its message."""
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
