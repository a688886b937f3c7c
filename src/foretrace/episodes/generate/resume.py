"""Find out which attempts a run still has to make, and which it leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from foretrace.core.problem import Problem
from foretrace.core.store import TraceStore, TraceWriter
from foretrace.core.trace import Trace
from foretrace.episodes.generate.settings import GenerateSettings, Keep
from foretrace.episodes.identity import Identity, make_key
from foretrace.protocols.base import InteractionProtocol

_REASONS_TO_LEAVE_OUT: dict[Keep, frozenset[str]] = {
    "all": frozenset(),
    "success": frozenset({"not_success"}),
    "ideal": frozenset({"not_success", "not_ideal"}),
}


class PlannedAttempt(NamedTuple):
    """One attempt to make."""

    problem: Problem
    sample: int
    key: str


class RunPlan(NamedTuple):
    """The attempts that a run still has to make, and the number of those finished before."""

    todo: list[PlannedAttempt]
    already_done: int
    """Number of stored attempts."""
    filtered: int
    """Number of attempts finished before that `keep` leaves out."""


def plan_attempts(
    problems: Iterable[Problem],
    protocol: InteractionProtocol,
    identity: Identity,
    settings: GenerateSettings,
    writer: TraceWriter,
) -> RunPlan:
    """Compare the requested attempts with those in the folder. Attempts that ended in an error are repeated."""
    finished = _find_finished_keys(writer.folder)
    left_out = {key for key, reason in writer.left_out.items() if reason in _REASONS_TO_LEAVE_OUT[settings.keep]}
    todo: list[PlannedAttempt] = []
    already_done = filtered = 0
    for problem in problems:
        for sample in range(settings.samples):
            key = make_key(problem, protocol, msgspec.structs.replace(identity, sample=sample), settings.episode)
            if key in finished:
                already_done += 1
            elif key in left_out:
                filtered += 1
            else:
                todo.append(PlannedAttempt(problem, sample, key))
    return RunPlan(todo, already_done, filtered)


def _find_finished_keys(folder: Path) -> set[str]:
    """Keys of the stored attempts without an error, which are those with a known success."""
    if not (folder / "manifest.json").exists():
        return set()
    table = TraceStore(folder).read_columns("key", "success")
    return {
        key
        for key, success in zip(table["key"].to_pylist(), table["success"].to_pylist(), strict=True)
        if success is not None
    }


def explain_left_out(trace: Trace, keep: Keep) -> str:
    """Why `keep` leaves the trace out; empty if it is kept, or if it ended in an error, since it is then made again."""
    if trace.outcome.error is not None:
        return ""
    if keep != "all" and not trace.outcome.success:
        return "not_success"
    return "not_ideal" if keep == "ideal" and not trace.outcome.metrics.get("is_ideal") else ""
