"""The problems of benchmarks: of those that foretrace knows by name, and of files of the user.

No benchmark's text ships with foretrace. Of some it has fingerprints, hashes of eight words in a row, and every build
looks for these. scripts/make_benchmark_fingerprints.py makes them.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from foretrace.clean.benchmarks import BenchmarkProblem, Field, Fingerprint
from foretrace.core.digest import digest
from foretrace.core.errors import ProblemError, Setting, SourceError, UsageError
from foretrace.problems.base import UnusableRow
from foretrace.problems.humaneval import HumanEval
from foretrace.problems.mbpp import Mbpp
from foretrace.rows.base import Drop, Hub
from foretrace.rows.files import SUFFIXES, FileRows
from foretrace.rows.hub import HubRows

NAMES = ("humaneval", "mbpp", "swebench")
SWEBENCH_HUB = Hub("SWE-bench/SWE-bench", "test")
_IDS = {
    "humaneval": tuple(f"HumanEval/{number}" for number in range(HumanEval.count)),
    "mbpp": tuple(f"mbpp/{number}" for number in range(1, 975)),
}
"""Ids of the benchmarks that count their problems."""
FINGERPRINTS = Path(__file__).with_name("fingerprints")
"""A file for each benchmark of which there are fingerprints: NAME.jsonl."""
_ID = ("id", "instance_id", "task_id", "problem_id", "question_id")
_STATEMENT = ("statement", "problem_statement", "prompt", "question", "problem", "text", "instruction")
_SOLUTION = ("solution", "canonical_solution", "patch", "reference", "code")
_TESTS = ("tests", "test", "test_list", "test_patch")
_DIFF = re.compile(r"(?m)^(?:diff --git |--- [^\n]*\n\+\+\+ |@@ )")
_LISTED = (".csv", ".txt", *SUFFIXES)


class _Unusable(NamedTuple):
    """A row in which there is nothing to look for."""

    why: str


class FingerprintHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file of fingerprints."""

    format: Literal[1] = 1
    """Another one is needed when words are read or hashed in another way."""
    benchmark: str
    origin: str
    """Where its rows are from."""
    license: str
    left_out: int
    """Windows that are not looked up, since they stand in common code."""


class FingerprintRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of such a file: one problem."""

    id: str
    fingerprints: dict[Field, Fingerprint]


class BenchmarkName(NamedTuple):
    """A benchmark as it is named in the settings."""

    name: str
    path: Path | None
    """Its file; `None` reads it from the Hub."""


def parse_benchmark(text: str) -> BenchmarkName:
    """A benchmark from `humaneval`, `humaneval=FILE` or `FILE`, whose name is then the file's.

    Raises:
        UsageError: there is no such name or file, or it cannot be told what a file is by its ending.
    """
    name, is_named, file = text.strip().partition("=")
    setting = Setting("decontaminate", text)
    if not name:
        raise UsageError(setting, ": the name before the = is empty" if is_named else " names no benchmark")
    if not is_named and name in NAMES:
        return BenchmarkName(name, None)
    path = Path(file if is_named else name)
    if not path.is_file():
        known = ", ".join(NAMES)
        raise UsageError(setting, f": {path} is not a file; give one, or a benchmark that is known: {known}")
    if not path.name.endswith(_LISTED):
        raise UsageError(setting, f": cannot tell the format of {path.name}; name it with one of {', '.join(_LISTED)}")
    return BenchmarkName(name if is_named else path.name.partition(".")[0], path)


def read_benchmarks(texts: Sequence[str]) -> tuple[list[BenchmarkProblem], list[str]]:
    """The problems of the benchmarks that are named; and for each with rows in which there is nothing to look for, how
    many these are, and what is wrong with the first.

    Raises:
        UsageError: a name that is not known, a file that is not there or has no problem.
        ProblemError: a file or the Hub cannot be read.
    """
    problems: list[BenchmarkProblem] = []
    warnings: list[str] = []
    for name, path in map(parse_benchmark, texts):
        try:
            rows = list(_read(name, path))
        except SourceError as error:
            hint = () if path is not None else ("; or name a file: ", Setting("decontaminate", f"{name}=FILE"))
            raise ProblemError(*error.parts, *hint) from None
        usable = [row for row in rows if isinstance(row, BenchmarkProblem)]
        if not usable:
            columns = ", ".join((*_ID, *_STATEMENT, *_SOLUTION))
            why = f"no row has an id, a statement, a solution or tests; columns that are read: {columns}"
            raise UsageError(f"{path or name}: {why}")
        problems += usable
        for number, row in enumerate(rows, 1):
            if isinstance(row, _Unusable):
                warnings.append(
                    f"{path or name}: {len(rows) - len(usable):,} of {len(rows):,} rows hold nothing to look for, "
                    f"first row {number}: {row.why}"
                )
                break
    return problems, warnings


def list_known_problems(*, but: Iterable[str]) -> list[BenchmarkProblem]:
    """The problems of the benchmarks that foretrace knows, but for those named: by fingerprints where it has them, else
    by the ids alone of those that count theirs."""
    left = [name for name in _IDS if name not in {*but}]
    return [problem for name in left for problem in _list_known(name)]


@functools.cache
def _list_known(name: str) -> tuple[BenchmarkProblem, ...]:
    path = FINGERPRINTS / f"{name}.jsonl"
    if not path.is_file():
        return tuple(BenchmarkProblem(benchmark=name, id=each) for each in _IDS[name])
    header, *lines = path.read_bytes().splitlines()
    msgspec.json.decode(header, type=FingerprintHeader)
    rows = (msgspec.json.decode(line, type=FingerprintRow) for line in lines)
    return tuple(BenchmarkProblem(benchmark=name, id=row.id, fingerprints=row.fingerprints) for row in rows)


def write_benchmarks(problems: Sequence[BenchmarkProblem], folder: Path) -> Path:
    """Write problems into a file of the folder, named by what they are, so that all workers look for the same."""
    path = folder / f"benchmarks-{compute_digest(problems)}"
    path.write_bytes(msgspec.msgpack.encode(problems))
    return path


def compute_digest(problems: Iterable[BenchmarkProblem]) -> str:
    """A digest of all that is looked for."""
    return digest(
        *(
            part
            for p in problems
            for part in (
                *(p.benchmark, p.id, p.statement, p.solution, p.tests),
                *((each.hashes + each.tell).hex() for _, each in sorted(p.fingerprints.items())),
            )
        )
    )


def _read(name: str, path: Path | None) -> Iterator[BenchmarkProblem | _Unusable]:
    if name in _IDS:
        for problem in (HumanEval() if name == "humaneval" else Mbpp()).load(path):
            if isinstance(problem, UnusableRow):
                yield _Unusable(problem.reason)
                continue
            tests = "\n".join(test.code for test in (*problem.public_tests, *problem.hidden_tests))
            if name == "humaneval":  # what stands before the check is the same in many
                tests = problem.hidden_tests[0].code
                tests = tests[tests.find("def check(") :]
            yield BenchmarkProblem(
                benchmark=name,
                id=problem.id,
                statement=problem.statement.partition("\n\nName the function")[0],  # which is not of the benchmark
                solution=(problem.reference or "").removeprefix(problem.prompt),
                tests=tests,
            )
    else:
        rows = _read_file(path) if path is not None else (row.value for row in HubRows(SWEBENCH_HUB).read())
        yield from (_make_problem(name, value) for value in rows if value != "")


def _read_file(path: Path) -> Iterator[Any]:
    """Rows of a file as mappings, or ids as texts."""
    if path.name.endswith(".txt"):
        yield from (line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines())
    elif path.name.endswith(".csv"):
        csv.field_size_limit(1 << 30)
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file)
    elif path.name.endswith(".json") and isinstance(listed := _read_json(path), list):
        yield from listed
    else:
        for row in FileRows(path).read():
            if isinstance(row.value, Drop) and row.value.reason in ("truncated_file", "damaged_rows"):
                raise SourceError(f"{path} row {row.at.row}: {row.value.detail}")
            if not isinstance(row.value, Drop) or row.value.reason != "empty_line":
                yield row.value


def _read_json(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, RecursionError):
        return None  # lines of JSON under another name, or a mistake that their reader reports


def _make_problem(benchmark: str, value: Any) -> BenchmarkProblem | _Unusable:
    """The problem of a row, or of an id."""
    if isinstance(value, str):
        return BenchmarkProblem(benchmark=benchmark, id=value)
    if isinstance(value, Drop):
        return _Unusable(value.detail or value.reason)
    if not isinstance(value, Mapping):
        return _Unusable(f"a {type(value).__name__} in place of an object")
    texts = [_take_text(value, keys) for keys in (_ID, _STATEMENT, _SOLUTION, _TESTS)]
    own, statement, solution, tests = texts
    if not any(texts):
        return _Unusable("no id, statement, solution or tests")
    return BenchmarkProblem(
        benchmark=benchmark,
        id=own,
        statement=statement,
        solution=_take_added_lines(solution),
        tests=_take_added_lines(tests),
    )


def _take_text(row: Mapping[Any, Any], keys: Sequence[str]) -> str:
    """The first text, number or list of texts under one of the keys."""
    for key in keys:
        value = row.get(key)
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            return "\n".join(value)
        if isinstance(value, (str, int)) and str(value).strip():
            return str(value)
    return ""


def _take_added_lines(text: str) -> str:
    """What a diff adds: the lines around it stand in every checkout. Text that is not a diff as it is."""
    if not _DIFF.search(text):
        return text
    lines = text.split("\n")
    return "\n".join(line[1:] for line in lines if line.startswith("+") and not line.startswith("+++"))
