"""Tell where the problems of benchmarks stand in texts: their ids, statements, solutions and tests.

Most texts that share thirteen words with a benchmark have nothing to do with it: they share an idiom, a license, or
the words in which people ask. So what counts is how much of a problem stands in one text, beyond what many problems
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
"""Words in a row that must be the same: the n of the n-grams by which the field looks for benchmarks."""
_FIELDS: tuple[Field, ...] = ("statement", "solution", "tests")
_LEAST_SHARE = {"statement": 0.5, "solution": 0.6, "tests": 0.5}
"""Share of the words of a field that must stand in one text."""
_LEAST_WORDS = {"statement": SEED_WORDS, "solution": 16, "tests": 16}
"""Words of it that must stand there at least."""
_LEAST_PROSE, _LEAST_PROSE_WORDS = 0.8, 10
"""Share and number of the words of a statement's sentences that make a copy too, without its code and examples."""
_CODE_LINE = re.compile(r"\s*(?:>>>|@|def |class |from |import |assert |return |for .*:$|if .*:$|#)")
_COMMON_TASKS = 5
"""Tasks that may share words before these are common, if that is more than this share of all tasks:"""
_COMMON_SHARE = 0.02
_WHOLE = 0.9
"""Share of a field from which a copy is a copy, in however many tasks it stands: a prompt may show it to all."""
_LEAST_ID = 6
"""Characters of an id that is looked for: shorter ones, such as numbers, mean something else elsewhere."""
_PARTS = re.compile(r"[a-z]+|\d+")


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """A text as hashes of each eight words in a row: it can be found by them, and not be read."""

    words: int
    """How many the text has."""
    hashes: bytes
    """Of the windows, in their order, as little-endian uint64."""
    tell: bytes
    """A bit for each window: whether it is looked up. Texts that have windows beside it alone are not found."""
    prose: bytes
    """A bit for each word: whether it stands in a sentence rather than in code or an example."""

    def read_windows(self) -> Windows:
        """The windows of the text."""
        hashes = np.frombuffer(self.hashes, "<u8").astype(np.uint64)
        return Windows(hashes, _unpack(self.tell, len(hashes)))

    def read_prose(self) -> Array:
        """Of each word, whether it stands in a sentence."""
        return _unpack(self.prose, self.words)


class BenchmarkProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that nobody should train on. A field that is empty is not looked for."""

    benchmark: str
    id: str
    statement: str = ""
    solution: str = ""
    tests: str = ""
    fingerprints: dict[Field, Fingerprint] = {}
    """In the place of texts that are not at hand."""

    def list_fields(self) -> list[Field]:
        """What is looked for, beside the id."""
        return [field for field in _FIELDS if getattr(self, field) or field in self.fingerprints]


class BenchmarkHit(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in one text of one field of one problem."""

    problem: int
    """Index of the problem."""
    field: Field
    text: int
    """Index of the text."""
    start: int
    """Character offset at which the matched span begins: its first word that is the problem's."""
    end: int
    """Character offset at which its last one ends."""
    runs: tuple[tuple[int, int], ...] = ()
    """Words of the field that stand there: first, and the one behind the last. Empty for ids."""


CommonWords = Mapping[tuple[int, str], Array]
"""By problem and field: which of its words stand in so many tasks that they tell nothing."""


class BenchmarkFinder:
    """Finds problems in texts, all of them in one pass."""

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
        """Problems whose id can be looked for in a text, by the number of its first word."""
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
        """The problem whose id a name is, or holds with something in front of it or behind it; `None` for none."""
        parts = split_id(name)
        for count in self._part_counts:
            for start in range(len(parts) - count + 1):
                number = self._by_parts.get(parts[start : start + count])
                if number is not None and (count == len(parts) or is_telling_id(self.problems[number].id)):
                    return number
        return None

    def find(self, texts: Sequence[str]) -> list[BenchmarkHit]:
        """All that stands in texts, in the order of texts and problems: hits of 13 words in a row (or of all
        words of a shorter field), and ids. What of it is a copy, `judge` says."""
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
        """Share of the words of the field that stand in the text."""
        if not hit.runs:
            return 1.0
        return sum(end - start for start, end in hit.runs) / self._lengths[self._index[hit.problem, hit.field]]

    def judge(self, hit: BenchmarkHit, common: CommonWords | None = None) -> bool:
        """Whether a hit is a copy of what the benchmark has, rather than words that anybody might write."""
        if not hit.runs:
            return True
        known = self._index[hit.problem, hit.field]
        covered = np.zeros(self._lengths[known], np.bool_)
        for start, end in hit.runs:
            covered[start:end] = True
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
        """The words of problems that stand in so many tasks that they tell nothing of any.

        Args:
            hits: Each with the task in which it stands.
            tasks: How many there are.
        """
        seen: dict[tuple[int, str], dict[str, Array]] = defaultdict(dict)
        for task, hit in hits:
            place = (hit.problem, hit.field)
            if hit.runs:
                covered = seen[place].setdefault(task, np.zeros(self._lengths[self._index[place]], np.bool_))
                for start, end in hit.runs:
                    covered[start:end] = True
        limit = max(_COMMON_TASKS, _COMMON_SHARE * tasks)
        return {
            place: np.sum(list(by_task.values()), axis=0) > limit
            for place, by_task in seen.items()
            if len(by_task) > limit
        }


def split_id(name: str) -> tuple[str, ...]:
    """The words and numbers of an id, in lower case: `HumanEval/12` and `humaneval-12` have the same."""
    return tuple(_PARTS.findall(name.lower()))


def is_telling_id(name: str) -> bool:
    """Whether an id says by itself of which benchmark it is: it has letters and a number, and is not short."""
    parts = split_id(name)
    return len(name) >= _LEAST_ID and any(p.isalpha() for p in parts) and any(p.isdigit() for p in parts)


def make_fingerprint(text: str) -> Fingerprint:
    """The fingerprint of a text."""
    words, prose = number_words(text), _find_prose(text)
    if len(prose) != len(words):  # lines by themselves are read otherwise where they seem to be numbered
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
    """Of each word of a statement, whether it stands in a sentence rather than in code or an example."""
    is_prose: list[bool] = []
    after_example = False
    for line in statement.split("\n"):
        is_example = line.lstrip().startswith(">>>")
        prose = not (is_example or after_example) and _is_prose(line)
        is_prose += [prose] * len(number_words(line))
        after_example = is_example
    return np.array(is_prose, np.bool_)


def _is_prose(line: str) -> bool:
    """Whether a line has words rather than signs."""
    signs = sum(not (c.isalpha() or c.isspace() or c in ",.;'-") for c in line.strip())
    return len(line.split()) > 2 and not _CODE_LINE.match(line) and signs * 8 <= len(line.strip())


def _measure_share(covered: Array, among: Array) -> float:
    return float((covered & among).sum() / max(1, among.sum()))


def _merge(runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges in ascending order, those that touch as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(runs):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
