"""Build one part: a range of shards in, files and counts out. No part sees another, so any number run at once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from foretrace.actions.classify import label_trace
from foretrace.core.digest import digest
from foretrace.core.errors import BuildError
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace
from foretrace.dataset.demonstration import is_demo_model
from foretrace.dataset.parquet import TableWriter, find_rank
from foretrace.dataset.prompts import Prompts, make_token_counter
from foretrace.dataset.recipes import load_recipes
from foretrace.dataset.recipes.base import Attempt, Config, Recipe, Row, TaskAttempts
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.engines.processes import give_back_memory

MAX_SAMPLED_PAIRS = 1000
"""Pairs of each family that a part hands to the statistical gates at most."""


class ShardJob(msgspec.Struct, frozen=True, kw_only=True):
    """What one part is built from."""

    number: int
    count: int
    stores: tuple[str, ...]
    shards: tuple[int, ...]
    folder: str
    settings: BuildSettings
    splits: dict[str, str]
    """Split of each group."""
    excluded: dict[str, str] = {}
    """Prompts (by digest) that stood in several splits, and the one split that keeps them."""


class SampledPair(msgspec.Struct, frozen=True, array_like=True):
    """One pair as the statistical gates see it."""

    place: str
    pair: str
    group: str
    chosen: str
    rejected: str


class ShardResult(msgspec.Struct, kw_only=True):
    """What one part gave."""

    files: dict[str, dict[str, dict[str, int]]] = {}
    """Rows by config, split and file."""
    traces: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Attempts by outcome."""
    duplicates: int = 0
    """Traces that stood in two inputs with the same key."""
    of_demo_model: int = 0
    """Traces of the demo model."""
    steps: int = 0
    """Assistant messages."""
    actions: dict[str, Counter[str]] = {}
    """Labelled steps of wanted attempts, by split and action."""
    licenses: Counter[str] = msgspec.field(default_factory=Counter[str])
    sources: Counter[str] = msgspec.field(default_factory=Counter[str])
    drops: dict[str, Counter[str]] = {}
    """By config and reason."""
    candidates: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows that the recipes offered, by config."""
    families: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Pairs by family."""
    prompts: dict[str, set[bytes]] = {}
    """Digests of the prompts of each split."""
    sample: dict[str, list[SampledPair]] = {}
    """Pairs for the statistical gates, by family."""


def build_shards(job: ShardJob) -> ShardResult:
    """Write the part's files under `job.folder` and count what happened."""
    give_back_memory()
    part = _ShardBuilder(job)
    for task, traces in groupby(read_traces_once(job, part.result), key=lambda t: t.task.id):
        part.add(task, list(traces))
    return part.finish()


def read_traces_once(job: ShardJob, result: ShardResult | None = None) -> Iterator[Trace]:
    """Traces of the part's shards, siblings together; a trace that two inputs hold comes once."""
    stores = [TraceStore(Path(s)) for s in job.stores]
    for shard in job.shards:
        streams = [store.read(shard) for store in stores if shard in store.shards]
        last = ""
        for trace in heapq.merge(*streams, key=lambda t: (t.task.id, t.key, t.id)):
            if trace.key == last:
                if result is not None:
                    result.duplicates += 1
                continue
            last = trace.key
            yield trace


class _ShardBuilder:
    def __init__(self, job: ShardJob) -> None:
        self.job = job
        self.result = ShardResult(actions={s: Counter() for s in SPLITS}, prompts={s: set() for s in SPLITS})
        self._counter = make_token_counter(job.settings.tokenizer)
        self._recipes: list[Recipe] = load_recipes(job.settings.recipes)
        self._configs: dict[str, Config] = {c.name: c for r in self._recipes for c in r.configs}
        self._writers: dict[tuple[str, str], TableWriter] = {}
        self._eval = EvalSlices(job.settings)
        self._sampled: dict[str, list[tuple[str, SampledPair]]] = {}

    def add(self, task: str, traces: list[Trace]) -> None:
        """Build the rows of one task."""
        attempts = [self._attempt(trace) for trace in traces]
        for group in sorted({t.task.group for t in traces}):
            if group not in self.job.splits:
                raise BuildError(f"group {group!r} came while building: inputs must stay as they are until it is done")
            siblings = [a for a in attempts if a.trace.task.group == group]
            self._build(siblings, self.job.splits[group])

    def _attempt(self, trace: Trace) -> Attempt:
        result, settings = self.result, self.job.settings
        outcome = {True: "success", False: "failed", None: "unknown"}[trace.outcome.success]
        result.traces[outcome] += 1
        result.of_demo_model += is_demo_model(trace.provenance.model)
        result.licenses[trace.provenance.license or "unknown"] += 1
        result.sources[f"{trace.provenance.source}:{trace.provenance.split or '-'}"] += 1
        prompts = Prompts(trace, settings.target, settings.max_context_tokens, self._counter)
        attempt = Attempt(trace, label_trace(trace), prompts, settings)
        result.steps += len(attempt.labels)
        return attempt

    def _build(self, attempts: list[Attempt], split: str) -> None:
        wanted = [attempt for attempt in attempts if attempt.wanted]
        for attempt in wanted:
            attempt.select_targets()
            self._exclude(attempt, split)
            self.result.actions[split].update(str(a.label.action) for a in attempt.targets)
        for attempt in attempts:
            if not attempt.wanted and wanted:
                # All that it can give is a wrong answer to a prompt that it shares with one that is wanted.
                attempt.select_targets(until=max(attempt.count_shared_messages(other) for other in wanted))
        for recipe in self._recipes:
            name = recipe.configs[0].name
            drops = self.result.drops.setdefault(name, Counter())
            for row in recipe.rows(TaskAttempts(attempts, split, self.job.settings, drops)):
                self.result.candidates[row.config] += 1
                self._take(row, split)

    def _exclude(self, attempt: Attempt, split: str) -> None:
        """Leave out steps whose prompt another split keeps, before any recipe sees them."""
        kept = attempt.targets[:0]
        for act in attempt.targets:
            mark = act.prompt_digest
            if self.job.excluded and self.job.excluded.get(mark.hex(), split) != split:
                attempt.drops["prompt_in_two_splits"] += 1
                continue
            self.result.prompts[split].add(mark)
            kept.append(act)
        attempt.targets = kept

    def _take(self, row: Row, split: str) -> None:
        if row.config == "eval":
            self._eval.offer(row)
            return
        if row.config == "verifier":
            self.result.families[row.values["family"]] += 1
            self._sample(row)
        self._writer(row.config, split).add(row)

    def _sample(self, row: Row) -> None:
        if not self.job.settings.statistical_gates:
            return
        values = row.values
        texts = (values["chosen"][0][1], values["rejected"][0][1])
        place = digest("gate", str(self.job.settings.seed), values["pair"])
        pair = SampledPair(place, f"{values['pair']}:{row.key}:{row.step}", values["group"], *texts)
        sampled = self._sampled.setdefault(values["family"], [])
        sampled.append((place, pair))
        if len(sampled) > 2 * MAX_SAMPLED_PAIRS:
            sampled.sort(key=lambda item: item[0])
            del sampled[MAX_SAMPLED_PAIRS:]

    def _writer(self, config: str, split: str) -> TableWriter:
        if (config, split) not in self._writers:
            name = f"{config}/{split}-{self.job.number:05d}-of-{self.job.count:05d}.parquet"
            path = Path(self.job.folder) / name
            self._writers[config, split] = TableWriter(path, self._configs[config], self.job.settings.seed)
        return self._writers[config, split]

    def finish(self) -> ShardResult:
        """Close the files."""
        for row in self._eval.rows(final=False):
            self._writer("eval", "test").add(row)
        for (config, split), writer in self._writers.items():
            rows = writer.close()
            name = writer.path.relative_to(self.job.folder).as_posix()
            self.result.files.setdefault(config, {}).setdefault(split, {})[name] = rows
        for family, sampled in self._sampled.items():
            sampled.sort(key=lambda item: item[0])
            self.result.sample[family] = [pair for _, pair in sampled[:MAX_SAMPLED_PAIRS]]
        return self.result


class EvalSlices:
    """Keeps the rows with the smallest ranks: a natural slice over all, and one of equal classes.

    Slices of parts merge by offering the rows of one to another: the smallest ranks overall are among the smallest
    of each part.
    """

    def __init__(self, settings: BuildSettings) -> None:
        self._seed = settings.seed
        self._size = settings.eval_size
        self._share = settings.eval_size // 9
        self._natural: list[tuple[str, Row]] = []
        self._classes: dict[str, list[tuple[str, Row]]] = {}

    def offer(self, row: Row) -> None:
        """Take a candidate."""
        place = find_rank(self._seed, row)
        _keep(self._natural, (place, row), self._size)
        _keep(self._classes.setdefault(str(row.values["action"]), []), (place, row), self._share)

    def rows(self, *, final: bool) -> list[Row]:
        """Kept rows in the order of their rank, with `natural` and `balanced` set.

        Not `final`: all that a merge could still want. Final: what is in one of the slices. The balanced slice has
        the same number of rows of every class that has at least `_FEW` (of every class, if none has); rarer classes
        give what they have.
        """
        natural = dict(_smallest(self._natural, self._size))
        classes = {action: _smallest(rows, self._share) for action, rows in self._classes.items()}
        common = min(
            (len(rows) for rows in classes.values() if len(rows) >= _FEW),
            default=min(map(len, classes.values()), default=0),
        )
        balanced = {place for rows in classes.values() for place, _ in rows[:common]}
        found = natural | {place: row for rows in classes.values() for place, row in rows}
        return [
            row._replace(values=row.values | {"natural": place in natural, "balanced": place in balanced})
            for place, row in sorted(found.items(), key=lambda item: item[0])
            if not final or place in natural or place in balanced
        ]


_FEW = 20


def _keep(rows: list[tuple[str, Row]], item: tuple[str, Row], size: int) -> None:
    rows.append(item)
    if len(rows) > 2 * size + 64:
        rows[:] = _smallest(rows, size)


def _smallest(rows: list[tuple[str, Row]], size: int) -> list[tuple[str, Row]]:
    return sorted(rows, key=lambda item: item[0])[:size]
