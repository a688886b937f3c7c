"""What a run is asked to do: its settings, the attempts that are still to be made, and which of them are kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from foretrace.core.completion import Sampling
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import ProblemError, Setting, UsageError
from foretrace.core.problem import Problem
from foretrace.core.store import TraceStore, TraceWriter
from foretrace.core.trace import Trace
from foretrace.episodes.generate.usage import Budget
from foretrace.episodes.identity import Identity, make_key
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.base import ChatModel, ConfiguredModel
from foretrace.protocols.base import InteractionProtocol

Keep = Literal["all", "success", "ideal"]
"""Which attempts are stored. With `all`, those that ended in an error too; with the others, none of those."""
_REASONS_TO_LEAVE_OUT: dict[Keep, frozenset[str]] = {
    "all": frozenset(),
    "success": frozenset({"not_success"}),
    "ideal": frozenset({"not_success", "not_ideal"}),
}


class GenerateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to generate."""

    samples: int = 1
    """Attempts at each problem."""
    sampling: Sampling = Sampling()
    """Its seed is not used: each attempt has its own."""
    seed: int = 0
    """Seed of the run: with the problem and the sample's number it gives the seed of an attempt."""
    episode: EpisodeSettings = EpisodeSettings()
    keep: Keep = "all"
    concurrency: int | None = None
    """Attempts in flight; `None` finds out what the server can do."""
    budget: Budget = Budget()


class PlannedAttempt(NamedTuple):
    """One attempt that is to be made."""

    problem: Problem
    sample: int
    key: str


class RunPlan(NamedTuple):
    """The attempts that a run still has to make, and how many were finished before."""

    todo: list[PlannedAttempt]
    already_done: int
    """Attempts that are stored."""
    filtered: int
    """Attempts that were finished before and that `keep` leaves out."""


def plan_attempts(
    problems: Iterable[Problem],
    protocol: InteractionProtocol,
    identity: Identity,
    settings: GenerateSettings,
    writer: TraceWriter,
) -> RunPlan:
    """Compare what is asked for with what the folder holds. Attempts that ended in an error are made again."""
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


def check_settings(settings: GenerateSettings) -> None:
    """Refuse settings that cannot be served.

    Raises:
        UsageError: names the setting.
    """
    for name, value in (("samples", settings.samples), ("concurrency", settings.concurrency)):
        if value is not None and value < 1:
            raise UsageError(Setting(name, value), ": choose 1 or more")
    sampling, budget = settings.sampling, settings.budget
    if not 0 <= sampling.temperature < float("inf"):
        raise UsageError(
            Setting("temperature", sampling.temperature), ": choose a number that is not negative, e.g. 0.7"
        )
    if not 0 < sampling.top_p <= 1:
        raise UsageError(Setting("top_p", sampling.top_p), ": choose a number above 0, 1 at most")
    for name, count in (("max_tokens", sampling.max_tokens), ("top_k", sampling.top_k)):
        if count is not None and count < 1:
            raise UsageError(Setting(name, count), ": choose 1 or more")
    for name in ("tokens", "seconds", "cost", "price_in", "price_out"):
        value = getattr(budget, name)
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError("a budget of ", Setting(name, value), ": choose a number that is not negative")
    if budget.cost is not None and not (budget.price_in or budget.price_out):
        prices = (Setting("price_in"), " or ", Setting("price_out"))
        raise UsageError("a budget of ", Setting("cost"), " needs a price, for a million tokens: give ", *prices)


def check_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems as a list, if each can be attempted.

    Raises:
        ProblemError: there is none, one has no tests, or two have one id.
    """
    listed = list(problems)
    if not listed:
        raise ProblemError("there is no problem to attempt")
    seen: set[tuple[str, str]] = set()
    for problem in listed:
        if not (problem.public_tests or problem.hidden_tests):
            raise ProblemError(f"{problem.id} has no tests: an answer to it could not be judged")
        if (problem.source, problem.id) in seen:
            raise ProblemError(f"two problems have the id {problem.id!r}; ids must differ")
        seen.add((problem.source, problem.id))
    return listed


def derive_seed(seed: int, problem: Problem, sample: int) -> int:
    """Return the seed of one attempt, 0 to 2**31 - 1."""
    return int(hash_fraction("attempt", str(seed), problem.source, problem.id, str(sample)) * (1 << 31))


def describe_sampling(sampling: Sampling, model: ChatModel | None = None) -> dict[str, Any]:
    """Return all settings of the sampling and of the model, as they are recorded; but for the seed, which each attempt
    has of its own."""
    own = {name: getattr(sampling, name) for name in sampling.__struct_fields__ if name not in ("seed", "extra")}
    settings = dict(model.settings) if isinstance(model, ConfiguredModel) else {}
    return settings | {name: value for name, value in own.items() if value is not None} | sampling.extra


def _find_finished_keys(folder: Path) -> set[str]:
    """Keys of the stored attempts that did not end in an error: a generated trace says whether it was a success."""
    if not (folder / "manifest.json").exists():
        return set()
    table = TraceStore(folder).columns("key", "success")
    return {
        key
        for key, success in zip(table["key"].to_pylist(), table["success"].to_pylist(), strict=True)
        if success is not None
    }


def explain_left_out(trace: Trace, keep: Keep) -> str:
    """Why the trace is not kept; empty where it is, and for one that ended in an error, which says nothing yet."""
    if trace.outcome.error is not None:
        return ""
    if keep != "all" and not trace.outcome.success:
        return "not_success"
    return "not_ideal" if keep == "ideal" and not trace.outcome.metrics.get("is_ideal") else ""
