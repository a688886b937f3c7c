"""The problems of benchmarks that foretrace knows by name, and of the user's files.

It includes no text of a benchmark, only fingerprints of some: hashes of eight words in a row, which
scripts/make_benchmark_fingerprints.py makes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from foretrace.clean.benchmarks import BenchmarkProblem, Field, Fingerprint
from foretrace.core.digest import digest
from foretrace.core.errors import ProblemError, Setting, SourceError, UsageError
from foretrace.encodings.json_arguments import try_decode
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
"""Ids of the benchmarks that number their problems."""
FINGERPRINTS = Path(__file__).with_name("fingerprints")
"""Holds a file NAME.jsonl for each benchmark with fingerprints."""
_ID = ("id", "instance_id", "task_id", "problem_id", "question_id")
_STATEMENT = ("statement", "problem_statement", "prompt", "question", "problem", "text", "instruction")
_SOLUTION = ("solution", "canonical_solution", "patch", "reference", "code")
_TESTS = ("tests", "test", "test_list", "test_patch")
_DIFF = re.compile(r"(?m)^(?:diff --git |--- [^\n]*\n\+\+\+ |@@ )")
_LISTED = (".txt", *SUFFIXES)


class FingerprintHeader(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal[1] = 1
    """Must change if words are read or hashed differently."""
    benchmark: str
    origin: str
    """Source of its rows."""
    license: str
    left_out: int
    """Windows that are not looked up because they appear in common code."""


class FingerprintRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of such a file, for one problem."""

    id: str
    fingerprints: dict[Field, Fingerprint]


class BenchmarkName(NamedTuple):
    """A benchmark as it is named in the settings."""

    name: str
    path: Path | None
    """Its file; `None` stands for the Hub."""


def parse_benchmark(text: str) -> BenchmarkName:
    """A benchmark from `humaneval`, `humaneval=FILE` or `FILE`, which is named after the file."""
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
    """The problems of these benchmarks, and a warning for each that has unusable rows."""
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
        unusable = [(number, row.detail or row.reason) for number, row in enumerate(rows, 1) if isinstance(row, Drop)]
        if unusable:
            what = f"{len(unusable):,} of {len(rows):,} rows hold nothing to look for"
            warnings.append(f"{path or name}: {what}, first row {unusable[0][0]}: {unusable[0][1]}")
    return problems, warnings


def list_known_problems(*, but: Iterable[str]) -> list[BenchmarkProblem]:
    """The problems of the known benchmarks except the named ones: with fingerprints if available, else only ids."""
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
    """Write problems into a file of the folder, named by their digest, so that all workers look for the same ones."""
    path = folder / f"benchmarks-{compute_digest(problems)}"
    path.write_bytes(msgspec.msgpack.encode(problems))
    return path


def compute_digest(problems: Iterable[BenchmarkProblem]) -> str:
    """A digest of everything that is looked for."""
    parts: list[str] = []
    for problem in problems:
        parts += [problem.benchmark, problem.id, problem.statement, problem.solution, problem.tests]
        parts += [(each.hashes + each.tell).hex() for _, each in sorted(problem.fingerprints.items())]
    return digest(*parts)


def _read(name: str, path: Path | None) -> Iterator[BenchmarkProblem | Drop]:
    if name in _IDS:
        for problem in (HumanEval() if name == "humaneval" else Mbpp()).load(path):
            if isinstance(problem, UnusableRow):
                yield Drop(problem.reason)
                continue
            tests = "\n".join(test.code for test in (*problem.public_tests, *problem.hidden_tests))
            if name == "humaneval":  # the code before the check is the same in many
                tests = problem.hidden_tests[0].code
                tests = tests[tests.find("def check(") :]
            yield BenchmarkProblem(
                benchmark=name,
                id=problem.id,
                statement=problem.statement.partition("\n\nName the function")[0],  # which is not from the benchmark
                solution=(problem.reference or "").removeprefix(problem.prompt),
                tests=tests,
            )
    else:
        rows = _read_file(path) if path is not None else (row.value for row in HubRows(SWEBENCH_HUB).read())
        yield from (_make_problem(name, value) for value in rows if value != "")


def _read_file(path: Path) -> Iterator[Any]:
    if path.name.endswith(".txt"):
        yield from (line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines())
    elif path.name.endswith(".json") and isinstance(listed := try_decode(path.read_bytes()), list):
        yield from listed
    else:  # also JSON Lines under the name .json; a mistake is reported by their reader
        for row in FileRows(path).read():
            if isinstance(row.value, Drop) and row.value.reason in ("truncated_file", "damaged_rows"):
                raise SourceError(f"{path} row {row.at.row}: {row.value.detail}")
            if not isinstance(row.value, Drop) or row.value.reason != "empty_line":
                yield row.value


def _make_problem(benchmark: str, value: Any) -> BenchmarkProblem | Drop:
    if isinstance(value, str):
        return BenchmarkProblem(benchmark=benchmark, id=value)
    if isinstance(value, Drop):
        return value
    if not isinstance(value, Mapping):
        return Drop(f"a {type(value).__name__} in place of an object")
    texts = [_take_text(value, keys) for keys in (_ID, _STATEMENT, _SOLUTION, _TESTS)]
    own, statement, solution, tests = texts
    if not any(texts):
        return Drop("no id, statement, solution or tests")
    return BenchmarkProblem(
        benchmark=benchmark,
        id=own,
        statement=statement,
        solution=_take_added_lines(solution),
        tests=_take_added_lines(tests),
    )


def _take_text(row: Mapping[Any, Any], keys: Sequence[str]) -> str:
    for key in keys:
        value = row.get(key)
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            return "\n".join(value)
        if isinstance(value, (str, int)) and str(value).strip():
            return str(value)
    return ""


def _take_added_lines(text: str) -> str:
    """The lines that a diff adds; the lines around them are in every checkout. Other text is unchanged."""
    if not _DIFF.search(text):
        return text
    lines = text.split("\n")
    return "\n".join(line[1:] for line in lines if line.startswith("+") and not line.startswith("+++"))
