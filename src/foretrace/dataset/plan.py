"""The plan of a build: which group is in which split, and which job reads which shards. It follows from the traces and
the settings alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace.core.digest import digest
from foretrace.core.errors import BuildError, Setting, UsageError
from foretrace.core.store import TraceStore
from foretrace.dataset import splits
from foretrace.dataset.prompts import make_instruction, make_token_counter
from foretrace.dataset.recipes.attempts import is_wanted_outcome
from foretrace.dataset.settings import BuildSettings

MESSAGES_PER_JOB = 24_000
"""About how many messages one job gets. The number of jobs, and so of files, follows from the traces alone."""


class BuildPlan(NamedTuple):
    """What is decided before a trace is read whole."""

    splits: dict[str, str]
    """Split of each group."""
    shards: list[tuple[int, ...]]
    """The shards of each job."""
    inputs: dict[str, Any]
    """What the manifest says of the inputs."""
    warnings: list[str]


def make_plan(stores: Sequence[TraceStore], settings: BuildSettings) -> BuildPlan:
    """Read a few columns of the traces folders and decide.

    Raises:
        UsageError: no folder, or folders of several numbers of shards.
        BuildError: they hold no traces.
    """
    if not stores:
        raise UsageError("build takes at least one traces folder")
    if len({store.manifest.shards for store in stores}) > 1:
        raise UsageError(
            "build takes traces folders with one number of shards; import again with the same ", Setting("shards")
        )
    tables = [store.read_columns("key", "id", "group", "n_messages", "success") for store in stores]
    keys = sorted({(k, i) for t in tables for k, i in zip(*_read_lists(t, "key", "id"), strict=True)})
    if not keys:
        raise BuildError(f"{stores[0].folder}: holds no traces")
    groups = sorted({g for t in tables for g in _read_lists(t, "group")[0]})
    outcomes = [row for t in tables for row in zip(*_read_lists(t, "group", "success"), strict=True)]
    with_rows = {group for group, success in outcomes if is_wanted_outcome(settings.outcomes, success)}
    assigned, warnings = splits.assign_splits(groups, settings.split, settings.seed, with_rows)
    messages = sum(sum(_read_lists(t, "n_messages")[0]) for t in tables)
    used = sorted({s for store in stores for s in store.shards})
    count = max(1, min(len(used), -(-messages // MESSAGES_PER_JOB)))
    shards = [tuple(used[len(used) * n // count : len(used) * (n + 1) // count]) for n in range(count)]
    inputs = {"traces": len(keys), "groups": len(groups), "digest": digest(*(x for k in keys for x in k), size=16)}
    return BuildPlan(assigned, shards, inputs, warnings)


def check_room(settings: BuildSettings) -> None:
    """Refuse a context in which the instruction takes more than a quarter: the rest is for system, task and latest
    turn.

    Raises:
        UsageError: saying how many tokens it takes.
    """
    limit = settings.max_context_tokens
    size = make_token_counter(settings.tokenizer).count(make_instruction(settings.target))
    if size > limit // 4:
        raise UsageError(
            Setting("max_context_tokens", limit),
            f": by this tokenizer the instruction alone takes {size}; the smallest is {size * 4}",
        )


def _read_lists(table: Any, *names: str) -> list[list[Any]]:
    return [table[name].to_pylist() for name in names]
