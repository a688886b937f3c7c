"""The plan of a build: which traces are left out, the split of each group, and the shards of each job. It depends only
on the traces and the settings."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.actions.corrections import Corrections
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import BuildError, Setting, UsageError
from foretrace.core.predictions import digest_traces
from foretrace.core.store import TraceStore
from foretrace.dataset.filters.benchmark_sets import read_benchmarks, write_benchmarks
from foretrace.dataset.inferred_tools import InferredTools
from foretrace.dataset.prompts import make_instruction, make_token_counter
from foretrace.dataset.recipes.attempts import is_wanted_outcome
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.dataset.shard_job import ShardJob, examine_shards, infer_tools_of_shards
from foretrace.dataset.trace_filters import TraceSelection, make_trace_filters, select_traces


def assign_splits(
    groups: Collection[str],
    shares: tuple[float, float, float],
    seed: int,
    groups_with_rows: Collection[str] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Assign each group to a split; returns the split of each group, and warnings.

    A group's place in [0, 1) is its hash, and the shares cut that range: with shares .8, .1 and .1, a group at .85 is
    in `validation`. If a split with a share would stay empty, the group nearest to its range moves there from a split
    that keeps other groups. `train` may also take a split's only group, so that few groups fill train first.

    Args:
        groups_with_rows: Groups that will give rows; a split with none of them counts as empty. `None` means all
            groups.
    """
    places = {group: hash_fraction("split", str(seed), group) for group in sorted(groups)}
    ends = itertools.accumulate(shares, initial=0.0)
    bounds: dict[str, tuple[float, float]] = dict(zip(SPLITS, itertools.pairwise(ends), strict=True))
    result = {group: _find_split(place, bounds) for group, place in places.items()}
    warnings: list[str] = []
    for name, share in zip(SPLITS, shares, strict=True):
        filled = {g: s for g, s in result.items() if groups_with_rows is None or g in groups_with_rows}
        if share == 0 or name in filled.values():
            continue
        sizes = {s: sum(v == s for v in filled.values()) for s in SPLITS}
        movable = [g for g, s in filled.items() if sizes[s] > 1] or (sorted(filled) if name == "train" else [])
        if not movable:
            too_few = f"too few groups ({len(filled)}); add traces of other repositories or tasks to fill it"
            warnings.append(f"split {name} is empty: {too_few}")
            continue
        low, high = bounds[name]
        nearest = min(movable, key=lambda g: (max(low - places[g], places[g] - high, 0.0), g))
        warnings.append(
            f"split {name} would have been empty: group {nearest!r}, nearest to its range, moved there "
            f"from {result[nearest]}"
        )
        result[nearest] = name
    return result, warnings


def _find_split(place: float, bounds: dict[str, tuple[float, float]]) -> str:
    inside = [name for name, (low, high) in bounds.items() if low <= place < high]
    return inside[0] if inside else max((n for n, (a, b) in bounds.items() if b > a), key=lambda n: bounds[n][1])


MESSAGES_PER_JOB = 24_000
"""Approximate messages per job. The number of jobs, and so of files, depends only on the traces."""

RECHECKED_TRACES, LEAST_RECHECKED = 256, 1 / 16
"""About how many traces have their prompts rendered again, and the least share of them."""


def find_rechecked_share(traces: int) -> float:
    """The share of the tasks whose prompts are rendered again, in a build of this many traces."""
    return min(1.0, max(LEAST_RECHECKED, RECHECKED_TRACES / max(1, traces)))


def is_rechecked(task: str, seed: int, share: float) -> bool:
    """Whether the prompts of a task are rendered again. All attempts at a task are, or none: pairs may be of two."""
    return share >= 1 or hash_fraction("recheck", str(seed), task) < share


Run = Callable[[str, Callable[..., Any], Sequence[Any]], Iterator[Any]]
"""(description, function, jobs) -> the result of each job, in their order."""


class BuildPlan(NamedTuple):
    """What is decided before any row is made."""

    jobs: list[ShardJob]
    inputs: dict[str, Any]
    """For the manifest."""
    selection: TraceSelection
    warnings: list[str]


def make_jobs(stores: Sequence[TraceStore], settings: BuildSettings, corrections: Corrections | None) -> list[ShardJob]:
    """The jobs of a build, with what is known before any trace is read."""
    shards = plan_shards(stores)
    return [
        ShardJob(
            number=number,
            count=len(shards),
            stores=tuple(sorted(str(store.folder) for store in stores)),
            shards=of_job,
            settings=settings,
            corrections=corrections,
        )
        for number, of_job in enumerate(shards)
    ]


def plan_build(
    stores: Sequence[TraceStore], settings: BuildSettings, jobs: Sequence[ShardJob], run: Run, scratch: Path
) -> BuildPlan:
    """Decide which traces are left out, the split of each group, and which inferred tools are shown.

    The folder `scratch` is for the benchmarks, the examined traces, and their labels.
    """
    problems, told = read_benchmarks(settings.decontaminate)
    written = write_benchmarks(problems, scratch)
    jobs = [msgspec.structs.replace(job, labels=str(scratch / f"labels-{job.number}")) for job in jobs]
    looking = [msgspec.structs.replace(job, benchmarks=str(written)) for job in jobs]
    looked_at = (found for of_job in run("looking at traces", examine_shards, looking) for found in of_job)
    selection = select_traces(make_trace_filters(settings, written), looked_at, scratch)
    splits, inputs, warnings = _plan_splits(stores, settings, selection)
    jobs = [msgspec.structs.replace(job, splits=splits, selection=selection) for job in jobs]
    inferred = InferredTools()
    for found in run("looking for tools", infer_tools_of_shards, jobs) if selection.lacks_tools else ():
        inferred.merge(found)
    share = find_rechecked_share(inputs["traces"])
    jobs = [msgspec.structs.replace(job, inferred_tools=inferred, rechecked=share) for job in jobs]
    return BuildPlan(jobs, inputs, selection, [f"decontaminate: {each}" for each in told] + warnings)


def plan_shards(stores: Sequence[TraceStore]) -> list[tuple[int, ...]]:
    """The shards of each job, by one column of the traces folders."""
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


def _plan_splits(
    stores: Sequence[TraceStore], settings: BuildSettings, selection: TraceSelection
) -> tuple[dict[str, str], dict[str, Any], list[str]]:
    """The split of each group, the manifest's description of the inputs, and warnings. Reads only a few columns of the
    traces folders, without the traces left out."""
    keys: set[tuple[str, str]] = set()
    kept: list[tuple[str, bool | None]] = []
    for store in stores:
        table = store.read_columns("key", "id", "group", "success")
        columns: list[list[Any]] = [table[name].to_pylist() for name in ("key", "id", "group", "success")]
        rows: list[tuple[str, str, str, bool | None]] = [*zip(*columns, strict=True)]
        for key, own, group, success in rows:
            keys.add((key, own))
            if key not in selection.left_out:
                kept.append((selection.groups.get(group, group), success))
    groups = sorted({group for group, _ in kept})
    with_rows = {group for group, success in kept if is_wanted_outcome(settings.outcomes, success)}
    assigned, warnings = assign_splits(groups, settings.split, settings.seed, with_rows)
    inputs = {"traces": len(keys), "groups": len(groups), "digest": digest_traces(keys)}
    return assigned, inputs, warnings


def check_room(settings: BuildSettings) -> None:
    """Refuse a context if the instruction takes over a quarter of it: the rest is for system, task and latest turn."""
    limit = settings.max_context_tokens
    size = make_token_counter(settings.tokenizer).count(make_instruction(settings.target))
    if size > limit // 4:
        raise UsageError(
            Setting("max_context_tokens", limit),
            f": by this tokenizer the instruction itself takes {size}; the smallest is {size * 4}",
        )


def make_empty_error(
    outcomes: Counter[str], drops: Counter[str], selection: TraceSelection, settings: BuildSettings
) -> BuildError:
    """The error for a build without rows, given the attempts that were read and the dropped rows."""
    drops = drops + Counter(f"{name} (whole traces)" for name in selection.left_out.values())
    why = ", ".join(f"{name} {n}" for name, n in sorted(drops.items()))
    traces = outcomes.total() + len(selection.left_out)
    if not outcomes:
        return BuildError(f"all {traces} traces are left out by what is asked of them: {why}")
    of_outcome = ", ".join(f"{n} {name}" for name, n in sorted(outcomes.items()))
    return BuildError(
        f"no row could be made from {traces} traces ({of_outcome}); left out: {why or 'nothing'}; the setting is ",
        Setting("outcomes", settings.outcomes),
        ": not_failed takes attempts of unknown outcome too, all takes all",
    )
