"""Rows without a dataset: made while the traces are read, and equal to those that a build writes."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import ForetraceWarning, Setting, UsageError
from foretrace.core.store import TraceStore
from foretrace.dataset.demonstration import refuse_demo_traces
from foretrace.dataset.parquet import RowWindow, make_table, read_values
from foretrace.dataset.plan import check_room, make_empty_error, make_jobs, plan_build
from foretrace.dataset.recipes.attempts import TaskAttempts
from foretrace.dataset.recipes.base import Config, Recipe, load_recipes
from foretrace.dataset.settings import OUTCOME_NAMES, SPLITS, BuildSettings
from foretrace.dataset.shard_job import read_tasks

_ROWS_AT_ONCE = 64
"""Rows converted to Python values at a time."""


class RowStream:
    """The rows of one config and split, in the order of the built files. Each iteration reads the traces again.

    Nothing is written, only one window of rows is in memory, and no gates are run. If no rows can be made from the
    traces, the iteration ends with a `BuildError`, like a build.
    """

    def __init__(self, traces: Sequence[Path], config: str, split: str, settings: BuildSettings) -> None:
        settings.check()
        check_room(settings)
        if split not in SPLITS:
            raise UsageError(Setting("split", split), f": the splits are {', '.join(SPLITS)}")
        self._recipe, self._config = _find_config(config, settings)
        self._stores = [TraceStore(Path(folder)) for folder in traces]
        if not settings.allow_demo:
            refuse_demo_traces(self._stores)
        self._split = split
        self._settings = settings
        self._jobs = make_jobs(self._stores, settings, settings.read_corrections())
        self._held_out: set[bytes] | None = None
        self._told: list[str] = []

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as `datasets` shows them: messages as `{role, content}`, an action as its number."""
        if self._held_out is None:
            with tempfile.TemporaryDirectory() as scratch:
                plan = plan_build(self._stores, self._settings, self._jobs, _run, Path(scratch))
            self._jobs, self._told = [msgspec.structs.replace(job, labels="") for job in plan.jobs], plan.warnings
            self._held_out = self._find_held_out_prompts()
        held_out = self._held_out
        outcomes, drops, made = Counter[str](), Counter[str](), False
        for job in self._jobs:
            window = RowWindow(self._config, self._settings.seed)
            for _, attempts in read_tasks(job, self._split):
                for attempt in attempts:
                    attempt.targets = [t for t in attempt.targets if t.prompt_digest not in held_out]
                outcomes.update(OUTCOME_NAMES[attempt.trace.outcome.success] for attempt in attempts)
                task = TaskAttempts(attempts, self._split, self._settings, drops)
                for row in self._recipe.rows(task):
                    if row.config == self._config.name:
                        made = True
                        window.add(row)
                        if window.is_full:
                            yield from self._show(window.take())
            yield from self._show(window.take())
        if not made and outcomes:
            raise make_empty_error(outcomes, drops, self._jobs[0].selection, self._settings)
        if not made:
            warnings.warn("; ".join([f"no row of {self._split}", *self._told]), ForetraceWarning, stacklevel=2)

    def _find_held_out_prompts(self) -> set[bytes]:
        found: set[bytes] = set()
        for split in SPLITS[SPLITS.index(self._split) + 1 :]:
            for job in self._jobs:
                for _, attempts in read_tasks(job, split):
                    found.update(t.prompt_digest for attempt in attempts if attempt.wanted for t in attempt.targets)
        return found

    def _show(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        if rows:
            for batch in make_table(self._config, rows).to_batches(max_chunksize=_ROWS_AT_ONCE):
                shown = batch.to_pydict()
                for name, kind in self._config.columns.items():
                    if kind == "json_list":
                        shown[name] = read_values(kind, shown[name])
                yield from (dict(zip(shown, values, strict=True)) for values in zip(*shown.values(), strict=True))


def _run(_doing: str, function: Callable[..., Any], jobs: Sequence[Any]) -> Iterator[Any]:
    return map(function, jobs)


def _find_config(name: str, settings: BuildSettings) -> tuple[Recipe, Config]:
    recipes = load_recipes(settings.recipes)
    plain = [r for r in recipes if not any(c.pair_families or c.selector is not None for c in r.configs)]
    found = [(recipe, config) for recipe in plain for config in recipe.configs if config.name == name]
    if found:
        return found[0]
    names = ", ".join(config.name for recipe in plain for config in recipe.configs)
    if any(config.name == name for recipe in recipes for config in recipe.configs):
        why = f": its rows are chosen among all rows of a build; what can be loaded from traces is {names}"
        raise UsageError(Setting("config", name), why)
    raise UsageError(Setting("config", name), f": is not a config; what can be loaded from traces is {names}")
