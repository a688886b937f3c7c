"""The problems of an environment: read them, split off those for evaluation, and order them for training."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from foretrace import registry
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import Setting, UsageError
from foretrace.core.problem import Problem
from foretrace.problems.base import UnusableRow

_log = logging.getLogger("foretrace.envs")


def load_problems(name: str, path: str | None, limit: int | None = None) -> list[Problem]:
    """Like `registry.load_problems`; unusable rows are left out with a warning."""

    def warn(row: UnusableRow) -> None:
        _log.warning("left out: %s: %s", row.at, row.reason)

    return registry.load_problems(name, Path(path) if path else None, limit, on_unusable=warn)


def split_problems(problems: Sequence[Problem], fraction: float, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Problems for training and for evaluation, by a hash of their group, so adding problems does not move others.

    With a fraction above 0 and at least two groups, neither side is empty.

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
    """All problems repeatedly, each time in a different order."""
    for epoch in count():
        yield from sorted(problems, key=lambda p: hash_fraction("order", str(seed), str(epoch), p.source, p.id))
