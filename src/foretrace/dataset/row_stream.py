"""Rows without a dataset: rendered from the traces while they are read, equal to those that a build writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.actions.corrections import read_corrections
from foretrace.core.errors import Setting, UsageError
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace
from foretrace.dataset.demonstration import refuse_demo_traces
from foretrace.dataset.inferred_tools import InferredTools, infer_tools
from foretrace.dataset.parquet import RowWindow, make_table
from foretrace.dataset.plan import check_room, make_plan, plan_shards
from foretrace.dataset.prompt_digests import Digests, pack_digests
from foretrace.dataset.prompts import make_token_counter
from foretrace.dataset.recipes.attempts import Attempt, TaskAttempts, make_attempt, select_targets
from foretrace.dataset.recipes.base import Config, Recipe
from foretrace.dataset.recipes.load import load_recipes
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.dataset.shard_job import read_traces_once
from foretrace.dataset.trace_filters import TraceSelection, examine_traces, make_trace_filters, select_traces

_ROWS_AT_ONCE = 64
"""Rows that are made into Python values at a time."""


class RowStream:
    """The rows of one config and split, in the order of the built files. Each iteration reads the traces again.

    Nothing is written, and one window of rows is in memory. No gate is run.
    """

    def __init__(self, traces: Sequence[Path], config: str, split: str, settings: BuildSettings) -> None:
        """
        Raises:
            UsageError: a setting that cannot be served, no such split or config, one whose rows are chosen among all
                rows of a build, or traces of the demo model that were not allowed.
            BuildError: there are no traces.
        """
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
        self._shards = plan_shards(self._stores)
        self._selection = TraceSelection()
        self._splits: dict[str, str] | None = None
        self._corrections = None if settings.corrections is None else read_corrections(Path(settings.corrections))
        self._inferred_tools: InferredTools | None = None
        self._held_out: Digests | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows as `datasets` shows them: messages as `{role, content}`, an action as its number."""
        if self._splits is None:
            self._selection = self._select()
            self._splits = make_plan(self._stores, self._settings, self._selection).splits
        if self._inferred_tools is None:
            shards = self._list_shards() if self._selection.lacks_tools else ()
            self._inferred_tools = infer_tools(self._read_selected(shards), self._splits)
        if self._held_out is None:
            self._held_out = self._find_held_out_prompts()
        for shards in self._shards:
            window = RowWindow(self._config, self._settings.seed)
            for attempts in self._read_tasks(shards, self._split):
                for attempt in attempts:
                    attempt.targets = [t for t in attempt.targets if not self._is_held_out(t.prompt_digest)]
                task = TaskAttempts(attempts, self._split, self._settings, Counter())
                for row in self._recipe.rows(task):
                    if row.config == self._config.name:
                        window.add(row)
                        if window.is_full:
                            yield from self._show(window.take())
            yield from self._show(window.take())

    def _list_shards(self) -> list[int]:
        return [shard for of_job in self._shards for shard in of_job]

    def _select(self) -> TraceSelection:
        """What the filters leave out, which reads all traces once."""
        filters = make_trace_filters(self._settings)
        traces = read_traces_once(self._stores, self._list_shards() if filters else ())
        return select_traces(filters, examine_traces(traces, filters))[0]

    def _read_selected(self, shards: Iterable[int]) -> Iterator[Trace]:
        return self._selection.apply(read_traces_once(self._stores, shards))

    def _find_held_out_prompts(self) -> Digests:
        """Prompts that a more held-out split has, which keeps them."""
        found: set[bytes] = set()
        for split in SPLITS[SPLITS.index(self._split) + 1 :]:
            for shards in self._shards:
                for attempts in self._read_tasks(shards, split):
                    found.update(t.prompt_digest for attempt in attempts if attempt.wanted for t in attempt.targets)
        return pack_digests(found)

    def _is_held_out(self, prompt: bytes) -> bool:
        assert self._held_out is not None
        number = np.frombuffer(prompt, dtype=self._held_out.dtype)[0]
        place = int(np.searchsorted(self._held_out, number))
        return place < len(self._held_out) and self._held_out[place] == number

    def _read_tasks(self, shards: tuple[int, ...], split: str) -> Iterator[list[Attempt]]:
        """The attempts at each task, of one group at a time, with their targets."""
        counter = make_token_counter(self._settings.tokenizer)
        inferred, corrections = self._inferred_tools, self._corrections
        assert inferred is not None

        def is_in_split(trace: Trace) -> bool:
            assert self._splits is not None
            return self._splits[trace.task.group] == split

        traces = filter(is_in_split, self._read_selected(shards))
        for _, of_task in groupby(traces, key=lambda trace: trace.task.id):
            attempts = [make_attempt(trace, self._settings, counter, inferred, corrections) for trace in of_task]
            for group in sorted({attempt.trace.task.group for attempt in attempts}):
                in_group = [attempt for attempt in attempts if attempt.trace.task.group == group]
                select_targets(in_group)
                yield in_group

    def _show(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        if rows:
            for batch in make_table(self._config, rows).to_batches(max_chunksize=_ROWS_AT_ONCE):
                yield from batch.to_pylist()


def _find_config(name: str, settings: BuildSettings) -> tuple[Recipe, Config]:
    """The config of this name, and the recipe that makes its rows."""
    recipes = load_recipes(settings.recipes)
    plain = [r for r in recipes if not any(c.pair_families or c.selector is not None for c in r.configs)]
    found = [(recipe, config) for recipe in plain for config in recipe.configs if config.name == name]
    if found:
        return found[0]
    names = ", ".join(config.name for recipe in plain for config in recipe.configs)
    if any(config.name == name for recipe in recipes for config in recipe.configs):
        why = f": its rows are chosen among all rows of a build; what can be loaded from traces is {names}"
        raise UsageError(Setting("config", name), why)
    raise UsageError(Setting("config", name), f": is no config; what can be loaded from traces is {names}")
