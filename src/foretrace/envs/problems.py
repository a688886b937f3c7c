"""The problems of an environment: reading them, splitting off those for evaluation, and their order in training."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from foretrace.core.digest import hash_fraction
from foretrace.core.errors import ProblemError, Setting, UsageError
from foretrace.core.problem import Problem
from foretrace.registry import make_problem_set, split_name

_log = logging.getLogger("foretrace.envs")


def read_problems(name: str, path: str | None) -> Iterator[Problem]:
    """The problems of a set, `NAME`, or `NAME:FILE` for a file of that form; rows that cannot be used are left out with
    a warning.

    Raises:
        UsageError: no such set, or two files.
        ProblemError: it cannot be read, or has no problem that can be used.
    """
    count = 0
    name, file = split_name(name, Path(path) if path else None)
    for one in make_problem_set(name).load(file):
        if isinstance(one, Problem):
            count += 1
            yield one
        else:
            _log.warning("left out: %s: %s", one.at, one.reason)
    if not count:
        raise ProblemError(f"{file or name}: there is no problem in it that can be used")


def load_problems(name: str, path: str | None, limit: int | None) -> list[Problem]:
    """The first problems of a set.

    Raises:
        UsageError, ProblemError: as `read_problems`; or one has no tests.
    """
    problems = list(islice(read_problems(name, path), limit))
    if untested := [p.id for p in problems if not (p.public_tests or p.hidden_tests)]:
        raise ProblemError(f"{untested[0]} has no tests: an answer to it could not be judged")
    return problems


def split_problems(problems: Sequence[Problem], fraction: float, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Problems for training and for evaluation, by a hash of their group: adding problems moves no other.

    With a fraction above 0 and two groups or more, neither side is empty.

    Raises:
        UsageError: the fraction is not in [0, 1].
    """
    if not 0.0 <= fraction <= 1.0:
        raise UsageError(Setting("eval_fraction", fraction), ": choose 0 to 1")
    groups = sorted({_group(p) for p in problems}, key=lambda group: hash_fraction("eval", str(seed), group))
    held = {group for group in groups if hash_fraction("eval", str(seed), group) < fraction}
    if 0.0 < fraction < 1.0 and len(groups) > 1:
        held = (held | set(groups[:1])) - set(groups[-1:])
    return [p for p in problems if _group(p) not in held], [p for p in problems if _group(p) in held]


def _group(problem: Problem) -> str:
    return problem.group or problem.id


def repeat_shuffled(problems: Sequence[Problem], seed: int) -> Iterator[Problem]:
    """All problems, again and again, each time in another order."""
    for epoch in count():
        yield from sorted(problems, key=lambda p: hash_fraction("order", str(seed), str(epoch), p.source, p.id))
