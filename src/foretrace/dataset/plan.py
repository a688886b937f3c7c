"""The plan of a build: which group is in which split, and which job reads which shards. It follows from the traces and
the settings alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace.core.errors import BuildError, Setting, UsageError
from foretrace.core.predictions import digest_traces
from foretrace.core.store import TraceStore
from foretrace.dataset import splits
from foretrace.dataset.prompts import make_instruction, make_token_counter
from foretrace.dataset.recipes.attempts import is_wanted_outcome
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.trace_filters import TraceSelection

MESSAGES_PER_JOB = 24_000
"""About how many messages one job gets. The number of jobs, and so of files, follows from the traces alone."""


class BuildPlan(NamedTuple):
    """What is decided before a trace is read whole."""

    splits: dict[str, str]
    """Split of each group."""
    inputs: dict[str, Any]
    """What the manifest says of the inputs."""
    warnings: list[str]


def plan_shards(stores: Sequence[TraceStore]) -> list[tuple[int, ...]]:
    """The shards of each job, by one column of the traces folders.

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
    messages = [n for store in stores for n in store.read_columns("n_messages")["n_messages"].to_pylist()]
    if not messages:
        raise BuildError(f"{stores[0].folder}: holds no traces")
    used = sorted({s for store in stores for s in store.shards})
    count = max(1, min(len(used), -(-sum(messages) // MESSAGES_PER_JOB)))
    return [tuple(used[len(used) * n // count : len(used) * (n + 1) // count]) for n in range(count)]


def make_plan(stores: Sequence[TraceStore], settings: BuildSettings, selection: TraceSelection) -> BuildPlan:
    """Read a few columns of the traces folders and decide, but for the traces that were left out."""
    tables = [store.read_columns("key", "id", "group", "success") for store in stores]
    keys = {(k, i) for t in tables for k, i in zip(*_read_lists(t, "key", "id"), strict=True)}
    of_traces: list[tuple[str, str, bool | None]] = [
        row for t in tables for row in zip(*_read_lists(t, "key", "group", "success"), strict=True)
    ]
    kept = [(selection.groups.get(g, g), success) for key, g, success in of_traces if key not in selection.left_out]
    groups = sorted({group for group, _ in kept})
    with_rows = {group for group, success in kept if is_wanted_outcome(settings.outcomes, success)}
    assigned, warnings = splits.assign_splits(groups, settings.split, settings.seed, with_rows)
    inputs = {"traces": len(keys), "groups": len(groups), "digest": digest_traces(keys)}
    return BuildPlan(assigned, inputs, warnings)


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
