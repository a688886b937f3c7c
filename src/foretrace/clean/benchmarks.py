"""Find benchmark problems in texts, by their ids, statements, solutions and tests.

Most texts that share thirteen words with a benchmark have nothing to do with it: they share an idiom, a license, or
a common way of asking. What counts is how much of a problem appears in one text, leaving out what many problems
(`RunFinder`) or many tasks (`find_common_words`) have in common.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from foretrace.clean.word_runs import (
    SEED_WORDS,
    Array,
    Reading,
    Run,
    RunFinder,
    Windows,
    cut_windows,
    number_words,
)

Field = Literal["id", "statement", "solution", "tests"]
RUN_WORDS = 13
"""Words in a row that must match: the n of the n-grams commonly used to look for benchmarks."""
_FIELDS: tuple[Field, ...] = ("statement", "solution", "tests")
_LEAST_SHARE = {"statement": 0.5, "solution": 0.6, "tests": 0.5}
"""Share of a field's words that must appear in one text."""
_LEAST_WORDS = {"statement": SEED_WORDS, "solution": 16, "tests": 16}
"""Least number of a field's words that must appear in it."""
_LEAST_PROSE, _LEAST_PROSE_WORDS = 0.8, 10
"""Share and number of the words in a statement's sentences, without its code and examples, that make a copy too."""
_CODE_LINE = re.compile(r"\s*(?:>>>|@|def |class |from |import |assert |return |for .*:$|if .*:$|#)")
_COMMON_TASKS = 5
"""Words found in more tasks than this are common, if that is also more than this share of all tasks:"""
_COMMON_SHARE = 0.02
_WHOLE = 0.9
"""Share of a field that makes a copy however many tasks have it: a prompt may show one problem to all of them."""
_LEAST_ID = 6
"""Fewest characters of an id that is looked for: shorter ones, such as numbers, mean other things elsewhere."""
_PARTS = re.compile(r"[a-z]+|\d+")


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """A text as hashes of its windows of eight words: enough to find it, but not to read it."""

    words: int
    """Number of words in the text."""
    hashes: bytes
    """Of the windows, in order, as little-endian uint64."""
    tell: bytes
    """One bit per window: whether it is looked up. A text with only the other windows is not found."""
    prose: bytes
    """One bit per word: whether it is in a sentence rather than in code or an example."""

    def read_windows(self) -> Windows:
        """The windows of the text."""
        hashes = np.frombuffer(self.hashes, "<u8").astype(np.uint64)
        return Windows(hashes, _unpack(self.tell, len(hashes)))

    def read_prose(self) -> Array:
        """Whether each word is in a sentence."""
        return _unpack(self.prose, self.words)


class BenchmarkProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that nobody should train on. Empty fields are not looked for."""

    benchmark: str
    id: str
    statement: str = ""
    solution: str = ""
    tests: str = ""
    fingerprints: dict[Field, Fingerprint] = {}
    """In place of texts that are not available."""

    def list_fields(self) -> list[Field]:
        """The fields that are looked for, besides the id."""
        return [field for field in _FIELDS if getattr(self, field) or field in self.fingerprints]


class BenchmarkHit(msgspec.Struct, frozen=True, kw_only=True):
    """What one text contains of one field of one problem."""

    problem: int
    """Index of the problem."""
    field: Field
    text: int
    """Index of the text."""
    start: int
    """Character offset of the first matching word."""
    end: int
    """Character offset of the end of the last one."""
    runs: tuple[tuple[int, int], ...] = ()
    """Ranges of the field's words that appear there: the first, and the one after the last. Empty for ids."""


CommonWords = Mapping[tuple[int, str], Array]
"""By problem and field: which of its words are in too many tasks to mean anything."""


class BenchmarkFinder:
    """Finds all problems in texts in one pass."""

    def __init__(self, problems: Sequence[BenchmarkProblem]) -> None:
        self.problems = list(problems)
        self._fields: list[tuple[int, Field]] = [(n, f) for n, p in enumerate(problems) for f in p.list_fields()]
        self._index = {place: index for index, place in enumerate(self._fields)}
        prints = [_get_fingerprint(problems[number], field) for number, field in self._fields]
        self._lengths = [each.words for each in prints]
        self._prose = {i: prints[i].read_prose() for i, (_, field) in enumerate(self._fields) if field == "statement"}
        self._prose_words = {index: max(_LEAST_PROSE_WORDS, int(prose.sum())) for index, prose in self._prose.items()}
        self._runs = RunFinder([each.read_windows() for each in prints], [number for number, _ in self._fields])
        self._ids: dict[int, list[int]] = defaultdict(list)
        """Problems whose id can be looked for in a text, keyed by the number of the id's first word."""
        self._by_parts: dict[tuple[str, ...], int] = {}
        self._note_ids()

    def _note_ids(self) -> None:
        for number, problem in enumerate(self.problems):
            if len(problem.id) >= _LEAST_ID:
                self._by_parts.setdefault(split_id(problem.id), number)
            if is_telling_id(problem.id) and (words := number_words(problem.id)).size:
                self._ids[int(words[0])].append(number)
        self._begins_id = np.array([*self._ids], np.uint32)
        self._part_counts = sorted({len(parts) for parts in self._by_parts}, reverse=True)

    def find_id(self, name: str) -> int | None:
        """The problem whose id the name is or contains; `None` if there is none."""
        parts = split_id(name)
        for count in self._part_counts:
            for start in range(len(parts) - count + 1):
                number = self._by_parts.get(parts[start : start + count])
                if number is not None and (count == len(parts) or is_telling_id(self.problems[number].id)):
                    return number
        return None

    def find(self, texts: Sequence[str]) -> list[BenchmarkHit]:
        """All hits in the texts, ordered by text and problem: 13 words in a row (or all words of a shorter field), and
        ids. `judge` decides which of them are copies."""
        reading = Reading(texts)
        hits = [*self._find_words(reading), *self._find_ids(reading, texts)]
        return sorted(hits, key=lambda hit: (hit.text, hit.problem, hit.field))

    def _find_words(self, reading: Reading) -> Iterable[BenchmarkHit]:
        places: dict[tuple[int, int], list[Run]] = defaultdict(list)
        for run in self._runs.find(reading.numbers):
            places[reading.find_text(run.at), run.known].append(run)
        for (text, known), runs in places.items():
            words = min(RUN_WORDS, self._lengths[known], self._prose_words.get(known, RUN_WORDS))
            if max(run.end - run.start for run in runs) < words:
                continue
            number, field = self._fields[known]
            first, last = min(run.at for run in runs), max(run.at + run.end - run.start for run in runs)
            start, end = reading.find_span(text, first, last)
            merged = _merge((run.start, run.end) for run in runs)
            yield BenchmarkHit(problem=number, field=field, text=text, start=start, end=end, runs=merged)

    def _find_ids(self, reading: Reading, texts: Sequence[str]) -> Iterable[BenchmarkHit]:
        found: dict[tuple[int, int], None] = {}
        for at in np.flatnonzero(np.isin(reading.numbers, self._begins_id)).tolist():
            text = reading.find_text(at)
            found |= dict.fromkeys((text, number) for number in self._ids[int(reading.numbers[at])])
        for text, number in found:
            name = re.escape(self.problems[number].id)
            if match := re.search(rf"(?<![\w.-]){name}(?![\w-])", texts[text], re.IGNORECASE):
                yield BenchmarkHit(problem=number, field="id", text=text, start=match.start(), end=match.end())

    def measure(self, hit: BenchmarkHit) -> float:
        """Share of the field's words that appear in the text."""
        return float(self._find_covered(hit).mean()) if hit.runs else 1.0

    def _find_covered(self, hit: BenchmarkHit) -> Array:
        covered = np.zeros(self._lengths[self._index[hit.problem, hit.field]], np.bool_)
        for start, end in hit.runs:
            covered[start:end] = True
        return covered

    def judge(self, hit: BenchmarkHit, common: CommonWords | None = None) -> bool:
        """Whether a hit is a copy from the benchmark rather than words that anybody might write."""
        if not hit.runs:
            return True
        known = self._index[hit.problem, hit.field]
        covered = self._find_covered(hit)
        if covered.sum() < _LEAST_WORDS[hit.field]:
            return False
        telling = self._runs.telling[known]
        if telling.sum() < _LEAST_WORDS[hit.field]:
            return False
        if covered.mean() >= _WHOLE and _measure_share(covered, telling) >= _WHOLE:
            return True
        if common is not None and (hit.problem, hit.field) in common:
            telling = telling & ~common[hit.problem, hit.field]
        least = _LEAST_SHARE[hit.field]
        if covered.mean() >= least and _measure_share(covered, telling) >= least:
            return True
        prose = self._prose.get(known)
        if prose is None or (covered & prose).sum() < _LEAST_PROSE_WORDS:
            return False
        return min(_measure_share(covered, prose), _measure_share(covered, prose & telling)) >= _LEAST_PROSE

    def find_common_words(self, hits: Iterable[tuple[str, BenchmarkHit]], tasks: int) -> CommonWords:
        """The words of problems that are in too many of the `tasks` to mean anything, given hits with their tasks."""
        seen: dict[tuple[int, str], dict[str, Array]] = defaultdict(dict)
        for task, hit in hits:
            place = (hit.problem, hit.field)
            if hit.runs:
                seen[place][task] = seen[place].get(task, False) | self._find_covered(hit)
        limit = max(_COMMON_TASKS, _COMMON_SHARE * tasks)
        return {
            place: np.sum(list(by_task.values()), axis=0) > limit
            for place, by_task in seen.items()
            if len(by_task) > limit
        }


def split_id(name: str) -> tuple[str, ...]:
    """The words and numbers of an id, in lower case: the same for `HumanEval/12` and `humaneval-12`."""
    return tuple(_PARTS.findall(name.lower()))


def is_telling_id(name: str) -> bool:
    """Whether an id alone identifies its benchmark: it has letters and a number, and is not short."""
    parts = split_id(name)
    return len(name) >= _LEAST_ID and any(p.isalpha() for p in parts) and any(p.isdigit() for p in parts)


def make_fingerprint(text: str) -> Fingerprint:
    """The fingerprint of a text."""
    words, prose = number_words(text), _find_prose(text)
    if len(prose) != len(words):  # single lines are read differently if they seem to be numbered
        prose = np.zeros(len(words), np.bool_)
    windows = cut_windows(words)
    return Fingerprint(
        words=len(words),
        hashes=windows.hashes.astype("<u8").tobytes(),
        tell=np.packbits(windows.tell).tobytes(),
        prose=np.packbits(prose).tobytes(),
    )


def _get_fingerprint(problem: BenchmarkProblem, field: Field) -> Fingerprint:
    text: str = getattr(problem, field)
    return make_fingerprint(text) if text else problem.fingerprints[field]


def _unpack(bits: bytes, count: int) -> Array:
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count).astype(np.bool_)


def _find_prose(statement: str) -> Array:
    """Whether each word of a statement is in a sentence rather than in code or an example."""
    is_prose: list[bool] = []
    after_example = False
    for line in statement.split("\n"):
        is_example = line.lstrip().startswith(">>>")
        prose = not (is_example or after_example) and _is_prose(line)
        is_prose += [prose] * len(number_words(line))
        after_example = is_example
    return np.array(is_prose, np.bool_)


def _is_prose(line: str) -> bool:
    """Whether a line consists of words rather than symbols."""
    signs = sum(not (c.isalpha() or c.isspace() or c in ",.;'-") for c in line.strip())
    return len(line.split()) > 2 and not _CODE_LINE.match(line) and signs * 8 <= len(line.strip())


def _measure_share(covered: Array, among: Array) -> float:
    return float((covered & among).sum() / max(1, among.sum()))


def _merge(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges in ascending order, with touching ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(runs):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
