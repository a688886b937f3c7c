"""One job of a build: reads a range of shards, and returns files and counts. Jobs are independent of one another."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Self

import msgspec

from foretrace.actions.corrections import Corrections
from foretrace.actions.label_steps import collect_evidence
from foretrace.actions.taxonomy import StepLabel
from foretrace.core.digest import digest
from foretrace.core.errors import BuildError
from foretrace.core.files import make_own_name
from foretrace.core.internal_errors import INTERNAL_ERROR, contain_errors
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace
from foretrace.dataset.difficulty import DIFFICULTY_SPLITS, MAX_SHALLOW_PAIRS, ShallowPair, UnreadPair
from foretrace.dataset.filters.base import FoundTrace, encode_examined
from foretrace.dataset.inferred_tools import InferredTools
from foretrace.dataset.parquet import TableWriter
from foretrace.dataset.prompt_digests import Digests, find_shared_prompts, merge_digests, pack_digests
from foretrace.dataset.prompts import make_token_counter
from foretrace.dataset.proposer_guesses import GuessesByKey
from foretrace.dataset.recipes.attempts import Attempt, Mistake, TaskAttempts, select_targets
from foretrace.dataset.recipes.base import Recipe, Row, RowSelector, load_configs, load_recipes
from foretrace.dataset.recipes.proposer_mistakes import MistakeSearch
from foretrace.dataset.report import BuildCounts, DataFile
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.dataset.statistical_gates import MAX_SAMPLED_PAIRS, Pair, PairSample
from foretrace.dataset.trace_filters import TraceSelection, examine_trace, make_trace_filters
from foretrace.engines.processes import release_memory

CANDIDATES = "candidates"
"""Prefix of the files of candidates, from which a selector chooses in the end."""
_decode_labels = msgspec.msgpack.Decoder(dict[str, list[StepLabel]]).decode


class ShardJob(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    count: int
    """Number of jobs of the build."""
    stores: tuple[str, ...]
    shards: tuple[int, ...]
    folder: str = ""
    benchmarks: str = ""
    """The file written by `write_benchmarks`."""
    labels: str = ""
    """The file with the labels of its traces, by id: written when the traces are examined, read when rows are built."""
    settings: BuildSettings
    splits: dict[str, str] = {}
    selection: TraceSelection = msgspec.field(default_factory=TraceSelection)
    """What is left out, and which groups were merged."""
    corrections: Corrections | None = None
    inferred_tools: InferredTools = msgspec.field(default_factory=InferredTools)
    predictions: GuessesByKey = {}
    """A proposer's guesses, to be searched for mistakes."""
    mistakes: dict[str, dict[int, Mistake]] = {}
    """The mistakes that become pairs, by key and step."""
    rechecked: float = 1.0
    """Share of the tasks whose prompts the gates render again."""
    excluded: dict[bytes, str] = {}
    """Prompts (by digest) found in several splits, and the split that keeps each."""


class ShardResult(msgspec.Struct, kw_only=True):
    """The result of one job, or of all of them. Only a digest (8 bytes) is kept of each row's prompt."""

    files: list[DataFile] = []
    counts: BuildCounts = msgspec.field(default_factory=BuildCounts)
    prompts: dict[str, list[Digests]] = {}
    """Digests of the prompts by split, for each job."""
    sample: PairSample[Pair] = msgspec.field(default_factory=partial(PairSample[Pair], MAX_SAMPLED_PAIRS))
    """Pairs for the statistical gates, by family."""
    shallow: PairSample[ShallowPair] = msgspec.field(
        default_factory=partial(PairSample[ShallowPair], MAX_SHALLOW_PAIRS)
    )
    """Pairs for measuring the difficulty of a family, by `split/family`."""
    mistakes: MistakeSearch = msgspec.field(default_factory=MistakeSearch)

    def add(self, other: ShardResult) -> None:
        self.files += other.files
        self.counts.add(other.counts)
        for split, digests in other.prompts.items():
            self.prompts.setdefault(split, []).extend(digests)
        self.sample.merge(other.sample)
        self.shallow.merge(other.shallow)
        self.mistakes.add(other.mistakes)

    def find_shared_prompts(self) -> dict[bytes, str]:
        """Prompts found in several splits, and the split that keeps each."""
        return find_shared_prompts({split: merge_digests(self.prompts.get(split, [])) for split in SPLITS})

    def list_files(self, config: str) -> list[DataFile]:
        """The files of a config, whatever the order in which the jobs ended."""
        files = [file for file in self.files if file.config == config]
        return sorted(files, key=lambda file: (file.job, file.name))


def build_shards(job: ShardJob) -> ShardResult:
    """Write the job's files and count what happened."""
    release_memory()
    with _ShardBuilder(job) as builder:
        for split, attempts in read_tasks(job, counts=builder.result.counts):
            builder.add(split, attempts)
        return builder.finish()


def infer_tools_of_shards(job: ShardJob) -> InferredTools:
    """Note what agents call in the train groups of the job's shards, if the source does not list their tools."""
    release_memory()
    inferred = InferredTools()
    for trace in read_selected(job):
        if job.splits.get(trace.task.group) == "train":
            inferred.add_trace(trace)
    return inferred


def examine_shards(job: ShardJob) -> list[FoundTrace]:
    """Examine the traces of the job's shards for the filters in the settings, and note their labels."""
    release_memory()
    filters = make_trace_filters(job.settings, Path(job.benchmarks))
    found: list[FoundTrace] = []
    labels: dict[str, list[StepLabel]] = {}
    for trace in read_selected(job):
        evidence = collect_evidence(trace)
        labels[trace.id] = [each.label for each in evidence]
        found.append(encode_examined(examine_trace(trace, filters, evidence)))
    own = make_own_name(Path(job.labels))
    own.write_bytes(msgspec.msgpack.encode(labels))
    own.replace(job.labels)
    return found


def read_selected(
    job: ShardJob, counts: BuildCounts | None = None, tasks: Callable[[str], bool] | None = None
) -> Iterator[Trace]:
    """Read the traces of the job's shards that were not left out, each with its final group. `tasks` says by its id
    whether a task is wanted."""
    stores = [TraceStore(Path(store)) for store in job.stores]
    return job.selection.apply(read_traces_once(stores, job.shards, counts, tasks))


def read_tasks(
    job: ShardJob, only: str | None = None, counts: BuildCounts | None = None
) -> Iterator[tuple[str, list[Attempt]]]:
    """Split and attempts of each task, one group at a time, with their targets; of one split if `only` names it."""
    counter = make_token_counter(job.settings.tokenizer)
    labels = _decode_labels(Path(job.labels).read_bytes()) if job.labels else {}
    for _, traces in groupby(read_selected(job, counts), key=lambda trace: trace.task.id):
        groups: dict[str, list[Attempt]] = {}
        for trace in traces:
            group = trace.task.group
            if group not in job.splits:
                raise BuildError(f"group {group!r} came while building: inputs must stay as they are until it is done")
            if only not in (None, job.splits[group]):
                continue
            if counts is not None:
                counts.count_trace(trace)
            with contain_errors("prompts", trace.key):
                known = labels.pop(trace.id, None)
                attempt = Attempt(trace, job.settings, counter, job.inferred_tools, job.corrections, known)
                attempt.mistakes = job.mistakes.get(trace.key, {})
                groups.setdefault(group, []).append(attempt)
        for group, attempts in sorted(groups.items()):
            select_targets(attempts)
            yield job.splits[group], attempts


def read_traces_once(
    stores: Sequence[TraceStore],
    shards: Iterable[int],
    counts: BuildCounts | None = None,
    tasks: Callable[[str], bool] | None = None,
) -> Iterator[Trace]:
    """Read the traces of some shards, grouped by task; a trace found in two folders is read once. If folders have
    different traces with the same key, the one with the smaller id is read, whatever the order of the folders."""
    for shard in shards:
        streams = [store.read(shard, tasks) for store in stores if shard in store.shards]
        last = ""
        for trace in heapq.merge(*streams, key=lambda t: (t.task.id, t.key, t.id)):
            if trace.key == last:
                if counts is not None:
                    counts.duplicates += 1
                continue
            last = trace.key
            yield trace


class _ShardBuilder:
    def __init__(self, job: ShardJob) -> None:
        self.job = job
        self.result = ShardResult()
        self.counts = self.result.counts
        self._settings = job.settings
        self._recipes: list[Recipe] = load_recipes(job.settings.recipes)
        self._configs = load_configs(job.settings.recipes)
        self._selectors: dict[str, RowSelector] = {
            name: config.selector(job.settings) for name, config in self._configs.items() if config.selector is not None
        }
        self._writers: dict[tuple[str, str], TableWriter] = {}
        self._prompts: dict[str, set[bytes]] = {split: set() for split in SPLITS}
        # twice this job's share of the sample, to allow for uneven jobs
        self._shallow = PairSample[UnreadPair](max(50, 2 * MAX_SHALLOW_PAIRS // job.count))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for writer in self._writers.values():
                writer.discard()

    def add(self, split: str, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            self.counts.with_inferred_tools += attempt.has_inferred_tools
            self.counts.corrected += sum(label.corrected for label in attempt.labels)
            self.counts.steps += len(attempt.labels)
            if attempt.wanted:
                self._exclude(attempt, split)
                actions = self.counts.actions.setdefault(split, Counter())
                actions.update(str(target.label.action) for target in attempt.targets)
        if self.job.predictions:
            search = self.result.mistakes
            search.search(TaskAttempts(attempts, split, self._settings, search.drops), self.job.predictions)
        for recipe in self._recipes:
            drops = self.counts.drops.setdefault(recipe.configs[0].name, Counter())
            with contain_errors(f"recipe {recipe.configs[0].name}", attempts[0].trace.key) as found:
                for row in recipe.rows(TaskAttempts(attempts, split, self._settings, drops)):
                    self._take(row, split)
            if found.text:
                drops[INTERNAL_ERROR] += 1

    def _exclude(self, attempt: Attempt, split: str) -> None:
        """Leave out steps whose prompt another split keeps, before any recipe sees them."""
        targets = attempt.targets
        attempt.targets = []
        for target in targets:
            prompt = target.prompt_digest
            if self.job.excluded and self.job.excluded.get(prompt, split) != split:
                attempt.drops["prompt_in_two_splits"] += 1
                continue
            self._prompts[split].add(prompt)
            attempt.targets.append(target)

    def _take(self, row: Row, split: str) -> None:
        if row.config not in self._configs:
            raise ValueError(f"a row of the config {row.config}, which the recipe does not name in `configs`")
        self.counts.rows_made[row.config] += 1
        if row.config in self._selectors:
            self._selectors[row.config].add(row)
            return
        if self._configs[row.config].pair_families:
            self.counts.strengths[row.values["family"], row.values.get("strength", "")] += 1
            if self._settings.statistical_gates:
                self._sample_pair(row, split)
        self._get_writer(row.config, split).add(row)

    def _sample_pair(self, row: Row, split: str) -> None:
        values = row.values
        family, pair, group = values["family"], values["pair"], values["group"]
        place = digest("gate", str(self._settings.seed), pair)
        chosen, rejected = values["chosen"][0][1], values["rejected"][0][1]
        if family not in self._configs[row.config].mirrored:
            self.result.sample.add(family, [Pair(place, f"{pair}:{row.key}:{row.step}", group, chosen, rejected)])
        if split in DIFFICULTY_SPLITS:
            unread = UnreadPair(place, group, values["prompt"], chosen, rejected)
            self._shallow.add(f"{split}/{family}", [unread])

    def _get_writer(self, config: str, split: str) -> TableWriter:
        if (config, split) not in self._writers:
            kind = CANDIDATES if config in self._selectors else split
            path = Path(self.job.folder) / config / f"{kind}-{self.job.number:05d}-of-{self.job.count:05d}.parquet"
            self._writers[config, split] = TableWriter(path, self._configs[config], self._settings.seed)
        return self._writers[config, split]

    def finish(self) -> ShardResult:
        for config, selector in self._selectors.items():
            for row in selector.select(final=False):
                self._get_writer(config, "test").add(row)
        for (config, split), writer in self._writers.items():
            file = DataFile(self.job.number, config, split, f"{config}/{writer.path.name}", writer.close())
            self.result.files.append(file)
        self.result.prompts = {split: [pack_digests(prompts)] for split, prompts in self._prompts.items()}
        for place, pairs in self._shallow.take().items():
            self.result.shallow.add(place, [pair.read() for pair in pairs])
        return self.result
