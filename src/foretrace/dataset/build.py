"""Build datasets from traces folders: shard jobs run in parallel, then gates check the files. A failure writes
nothing."""

from __future__ import annotations

import contextlib
import functools
import operator
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from foretrace.actions.corrections import read_corrections
from foretrace.core.errors import BuildError, GateError, Setting, UsageError
from foretrace.core.files import describe_write_error, make_partial_name, only_writer
from foretrace.core.predictions import describe_origin
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.store import TraceStore
from foretrace.dataset.card import make_card
from foretrace.dataset.demonstration import refuse_demo_traces
from foretrace.dataset.difficulty import MAX_SHALLOW_PAIRS, ShallowPair, measure_difficulty
from foretrace.dataset.exact_gates import (
    UNREAD_GATE,
    UNREAD_REMEDY,
    ShardCheck,
    check_shards,
    make_exact_gates,
    make_unread_gate,
)
from foretrace.dataset.parquet import SelectionResult, write_selected
from foretrace.dataset.plan import check_room, make_empty_error, make_jobs, plan_build
from foretrace.dataset.prompt_digests import Digests, find_shared_prompts, merge_digests
from foretrace.dataset.proposer_guesses import ProposerGuesses, check_matched, read_guesses
from foretrace.dataset.recipes.base import Config, Gate, load_configs, load_recipes
from foretrace.dataset.recipes.proposer_mistakes import (
    MistakeCandidate,
    MistakeSearch,
    choose_mistakes,
    make_mistakes,
)
from foretrace.dataset.recipes.verifier import PAIRED
from foretrace.dataset.report import (
    BuildCounts,
    BuildReport,
    DatasetFiles,
    describe_build,
    describe_files,
    describe_origins,
    make_manifest,
)
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.dataset.shard_job import (
    ShardJob,
    ShardResult,
    build_shards,
)
from foretrace.dataset.statistical_gates import Pair, PairSample, make_statistical_gates, remove_families
from foretrace.dataset.trace_filters import TraceSelection
from foretrace.engines.as_done import run_as_done
from foretrace.engines.engine import Engine, Pool
from foretrace.engines.processes import THIS_PROCESS


def build(
    traces: Sequence[Path | str],
    out: Path | str,
    settings: BuildSettings | None = None,
    *,
    engine: Engine = THIS_PROCESS,
    overwrite: bool = False,
    progress: ProgressFunc | None = None,
) -> BuildReport:
    """Build all datasets from traces folders into the folder `out`, completely or not at all.

    The same traces and settings give the same bytes, whatever the order of the traces and the engine. With more than
    one process, call it under `if __name__ == "__main__":`.

    Raises:
        UsageError: an unsupported setting, or traces of the demo model without permission.
        BuildError: `out` exists (and not `overwrite`), cannot be written, or no rows can be made.
        GateError: a gate failed; nothing was written.
    """
    settings = settings or BuildSettings()
    settings.check()
    out = Path(out)
    check_output(out, overwrite=overwrite)
    stores = [TraceStore(Path(t)) for t in traces]
    if within := [s.folder for s in stores if s.folder.resolve().is_relative_to(out.resolve())]:
        raise UsageError(f"{out}: the traces in {within[0]} would be overwritten; choose another folder")
    if not settings.allow_demo:
        refuse_demo_traces(stores)
    with _make_staging_folder(out) as staging:
        check_output(out, overwrite=overwrite)  # again: an interrupted build may have been restored since
        builder = _Builder(stores, staging, settings, engine, progress or ignore_progress)
        report = builder.run()
        _move(builder.folder, out)
    return report


def check_output(out: Path, *, overwrite: bool) -> None:
    """Refuse to write a dataset over other files.

    Raises:
        BuildError: `out` is a file, exists without `overwrite`, or is not a dataset.
    """
    if out.is_file():
        raise BuildError(f"{out}: is a file; name a folder")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise BuildError(f"{out}: exists; choose another folder, or overwrite it with ", Setting("overwrite", True))
    if not out.is_dir() or not _is_dataset(out):
        raise BuildError(f"{out}: is not a foretrace dataset, so it will not be overwritten")


def _is_dataset(folder: Path) -> bool:
    try:
        manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    except (OSError, msgspec.DecodeError, RecursionError):
        return False
    return isinstance(manifest, dict) and {"settings", "configs", "gates"} <= manifest.keys()


@contextlib.contextmanager
def _make_staging_folder(out: Path) -> Generator[Path]:
    """Make a locked folder beside `out`, removed at the end. Leftovers of a killed build are removed, or moved back to
    `out` if they are the previous dataset."""
    staging = out.absolute().with_name(f".{out.name}.building")
    with only_writer(staging):
        previous = staging / "previous"
        if previous.exists() and not out.exists():
            previous.rename(out)
        for left in staging.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        try:
            yield staging
        except OSError as error:
            raise BuildError(describe_write_error(Path(error.filename or staging), error)) from error
        finally:
            if out.exists() or not previous.exists():
                shutil.rmtree(staging, ignore_errors=True)


def _move(folder: Path, out: Path) -> None:
    previous = folder.with_name("previous")
    if out.exists():
        out.rename(previous)
    try:
        folder.rename(out)
    except OSError:
        if previous.exists():
            previous.rename(out)
        raise


def _name_selected(config: str) -> str:
    return f"{config}/test-00000-of-00001.parquet"


class _BuiltShards:
    """The results of all shard jobs, merged as each job ends. Only a digest (8 bytes) is kept of each row's prompt."""

    def __init__(self, jobs: int) -> None:
        self.files: list[DatasetFiles] = [{} for _ in range(jobs)]
        """One per job."""
        self.candidates: list[DatasetFiles] = [{} for _ in range(jobs)]
        self.counts = BuildCounts()
        self.sample = PairSample[Pair]()
        self.shallow = PairSample[ShallowPair](MAX_SHALLOW_PAIRS)
        self.mistakes = MistakeSearch()
        self._prompts: dict[str, list[Digests]] = {split: [] for split in SPLITS}

    def add(self, number: int, result: ShardResult) -> None:
        """Add the result of a job, in any order."""
        self.files[number] = result.files
        self.candidates[number] = result.candidates
        self.counts.add(result.counts)
        for family, pairs in result.sample.items():
            self.sample.add(family, *pairs, job=number)
        for place, pairs in result.shallow.items():
            self.shallow.add(place, *pairs, job=number)
        self.mistakes.add(result.mistakes)
        for split, prompts in result.prompts.items():
            self._prompts[split].append(prompts)

    def find_shared_prompts(self) -> dict[bytes, str]:
        """Prompts found in several splits, and the split that keeps each."""
        return find_shared_prompts({split: merge_digests(found) for split, found in self._prompts.items()})

    def count_rows(self) -> Counter[str]:
        """Number of rows written by config, including candidates."""
        rows: Counter[str] = Counter()
        for files in (*self.files, *self.candidates):
            for config, by_split in files.items():
                rows[config] += sum(count for listed in by_split.values() for count in listed.values())
        return rows

    def measure_difficulty(self) -> dict[str, Any]:
        """How much of each remaining family is easy."""
        sampled = self.shallow.take().items()
        return measure_difficulty({n: pairs for n, pairs in sampled if n.partition("/")[2] in self.counts.families})

    def find_files(self, config: str) -> dict[str, dict[str, int]]:
        """Row counts of the config's files, by split and file."""
        found: dict[str, dict[str, int]] = {}
        for files in self.files:
            for split, listed in files.get(config, {}).items():
                found.setdefault(split, {}).update(listed)
        return found


class _Builder:
    def __init__(
        self, stores: list[TraceStore], staging: Path, settings: BuildSettings, engine: Engine, progress: ProgressFunc
    ) -> None:
        self._staging = staging
        self.stores = stores
        self.settings = settings
        self.progress = progress
        self.warnings: list[str] = []
        self._engine = engine
        self._corrections = None if settings.corrections is None else read_corrections(Path(settings.corrections))
        self._recipes = load_recipes(settings.recipes)
        self.configs = load_configs(settings.recipes)
        self._scratch = staging / "scratch"
        """Holds the benchmarks, the examined traces, and their labels."""
        self._scratch.mkdir(exist_ok=True)

    def run(self) -> BuildReport:
        """Build and check the rows, and write manifest and card."""
        self._make_folders()
        check_room(self.settings)
        before = [store.compute_fingerprint() for store in self.stores]
        jobs = make_jobs(self.stores, self.settings, self._corrections)
        with self._open_pool(len(jobs)) as pool:
            plan = plan_build(self.stores, self.settings, jobs, partial(self._run, pool), self._scratch)
            self.warnings += plan.warnings
            guesses = self._read_guesses(plan.inputs)
            own = {"folder": str(self.folder), "candidates_folder": str(self.candidates_folder)}
            jobs = [msgspec.structs.replace(job, **own) for job in plan.jobs]
            jobs, built, mistakes = self._build_rows(pool, jobs, guesses)
            unread = make_unread_gate(built.counts, is_allowed=self.settings.allow_unread)
            self._fail_on([unread])
            statistical = self._measure_families(built)  # first, so that the other checks see only the rows that stay
            checks, selected = self._check_and_select(pool, jobs, built)
        self._remove_partial_files()
        written = built.count_rows()
        gates = make_exact_gates(checks, built.counts, written, self.configs, plan.selection.kept_together)
        gates += [unread, self._check_inputs(before)]
        self._fail_on(gates)
        known = merge_digests([check.digests["test"] for check in checks])
        gates += [self._take_selected(name, of_config, built, known) for name, of_config in selected.items()]
        gates += statistical
        self._fail_on(gates)
        configs = {name: describe_files(self.folder, built.find_files(name)) for name in self.configs}
        if not any(configs.values()):
            drops = functools.reduce(operator.or_, built.counts.drops.values(), Counter[str]())  # steps repeat
            raise make_empty_error(built.counts.outcomes, drops, plan.selection, self.settings)
        lengths = {name: of_config.prompt_tokens for name, of_config in selected.items() if of_config.rows}
        for check in checks:
            for name, counts in check.prompt_tokens.items():
                lengths.setdefault(name, Counter()).update(counts)
        return self._describe(built, plan.selection, plan.inputs, configs, gates, mistakes, lengths)

    def _describe(
        self,
        built: _BuiltShards,
        selection: TraceSelection,
        inputs: dict[str, Any],
        configs: dict[str, Any],
        gates: list[Gate],
        mistakes: dict[str, Any] | None,
        prompt_tokens: dict[str, Counter[int]],
    ) -> BuildReport:
        if self._corrections is not None:
            self.warnings += self._corrections.count(self.stores, built.counts.corrected).warnings
        unknown, total = built.counts.outcomes["unknown"], built.counts.outcomes.total()
        if self.settings.outcomes == "success" and 2 * unknown > total:
            self.warnings.append(
                f"{unknown:,} of {total:,} attempts do not say whether they succeeded, so their steps are left out "
                "(attempt_not_wanted); the setting outcomes=not_failed includes them"
            )
        manifest = make_manifest(
            self.settings,
            inputs,
            built.counts,
            configs,
            gates,
            built.measure_difficulty(),
            self.warnings,
            self._corrections,
            describe_origins(built.counts, selection),
            mistakes,
            prompt_tokens,
        )
        data = msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1)
        (self.folder / "manifest.json").write_bytes(data + b"\n")
        (self.folder / "README.md").write_text(make_card(manifest, list(self.configs.values())), encoding="utf-8")
        return BuildReport(manifest)

    def _make_folders(self) -> None:
        """Make folders for the output of the jobs, replacing earlier ones. The names are new, because a lost worker or
        one of a killed build may still write to the folders it knows."""
        name = secrets.token_hex(6)
        self.folder = self._staging / f"dataset-{name}"
        """The dataset being built."""
        self.candidates_folder = self._staging / f"candidates-{name}"
        for folder in (self.folder, self.candidates_folder):
            folder.mkdir()

    def _remove_partial_files(self) -> None:
        """Remove the unfinished files of lost workers."""
        for path in self.folder.rglob(make_partial_name(Path("*")).name):
            path.unlink(missing_ok=True)

    def _open_pool(self, jobs: int) -> AbstractContextManager[Pool | None]:
        tokenizer = self.settings.tokenizer
        return self._engine.open_pool(
            useful=jobs,
            writes=[self._staging],
            reads=[
                *(store.folder / "manifest.json" for store in self.stores),
                *([Path(tokenizer)] if tokenizer else []),
            ],
            small=not any(":" in name for name in self.settings.recipes),
            helps=True,
        )

    def _read_guesses(self, inputs: Mapping[str, Any]) -> ProposerGuesses | None:
        """The guesses whose mistakes become pairs, if there are any."""
        if not self.settings.mistakes:
            return None
        if PAIRED.name not in self.configs:
            raise UsageError(Setting("mistakes"), f" gives pairs of the recipe {PAIRED.name}, which is not built")
        origin = describe_origin(describe_build(self.settings, inputs, self._corrections))
        paths = [Path(file) for file in self.settings.mistakes]
        return read_guesses(paths, origin, allow_unchecked=self.settings.allow_unchecked)

    def _build_rows(
        self, pool: Pool | None, jobs: list[ShardJob], guesses: ProposerGuesses | None
    ) -> tuple[list[ShardJob], _BuiltShards, dict[str, Any] | None]:
        """The jobs that made the rows, their results, and what the manifest says about the proposer's mistakes. The
        jobs run a second time if they need what all of them found: prompts shared by splits, or mistakes that balance
        one another."""
        if guesses is not None:
            shared_out = guesses.share_out(self.stores, [job.shards for job in jobs])
            jobs = [msgspec.structs.replace(job, predictions=own) for job, own in zip(jobs, shared_out, strict=True)]
        first = self._build(pool, "building", jobs)
        shared = first.find_shared_prompts()
        chosen: list[MistakeCandidate] = []
        if guesses is not None:
            self.warnings += check_matched(guesses, first.mistakes.steps)
            chosen = choose_mistakes(first.mistakes.candidates, shared, self.settings.pairs)
            found = make_mistakes(chosen, guesses.by_key)
            jobs = [
                msgspec.structs.replace(
                    job, predictions={}, mistakes={key: found[key] for key in job.predictions if key in found}
                )
                for job in jobs
            ]
        built = first
        if shared or chosen:
            before = self.folder, self.candidates_folder
            self._make_folders()
            own = {"folder": str(self.folder), "candidates_folder": str(self.candidates_folder)}
            jobs = [msgspec.structs.replace(job, excluded=shared, **own) for job in jobs]
            for folder in before:
                shutil.rmtree(folder, ignore_errors=True)
            reasons = ["without prompts of two splits"] * bool(shared) + ["with the proposer's mistakes"] * bool(chosen)
            built = self._build(pool, f"building again {' and '.join(reasons)}", jobs)
        if guesses is None:
            return jobs, built, None
        return jobs, built, self._account_for_mistakes(guesses, first.mistakes, chosen, built.counts)

    def _account_for_mistakes(
        self,
        guesses: ProposerGuesses,
        search: MistakeSearch,
        chosen: Sequence[MistakeCandidate],
        counts: BuildCounts,
    ) -> dict[str, Any]:
        drops = counts.drops.setdefault(PAIRED.name, Counter())
        drops.update(search.drops)
        drops["proposer_without_twin"] += len(search.candidates) - len(chosen)
        if not chosen:
            self.warnings.append(f"mistakes: no pair could be made. {search.explain_lack()}")
        return {"files": guesses.files, "steps": search.steps, "pairs": len(chosen)}

    def _build(self, pool: Pool | None, doing: str, jobs: list[ShardJob]) -> _BuiltShards:
        built = _BuiltShards(len(jobs))
        for number, result in self._run(pool, doing, build_shards, jobs):
            built.add(number, result)
        return built

    def _run(
        self, pool: Pool | None, doing: str, function: Callable[..., Any], *arguments: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]:
        """Number and result of each job, as it finishes."""
        jobs = list(zip(*arguments, strict=True))
        self.progress(doing, 0, len(jobs))
        for done, numbered in enumerate(run_as_done(pool, function, jobs), start=1):
            yield numbered
            self.progress(doing, done, len(jobs))

    def _check_inputs(self, before: list[str]) -> Gate:
        after = [TraceStore(store.folder).compute_fingerprint() for store in self.stores]
        return Gate(
            name="inputs_unchanged", verdict="pass" if after == before else "fail", figure={"inputs": len(after)}
        )

    def _fail_on(self, gates: list[Gate]) -> None:
        if failed := [str(gate) for gate in gates if gate.verdict == "fail"]:
            is_unread = any(gate.name == UNREAD_GATE and gate.verdict == "fail" for gate in gates)
            why = f"gate failed, nothing was written: {'; '.join(failed)}"
            raise GateError(why, *(UNREAD_REMEDY if is_unread else ()))

    def _check_and_select(
        self, pool: Pool | None, jobs: list[ShardJob], built: _BuiltShards
    ) -> tuple[list[ShardCheck], dict[str, SelectionResult]]:
        """Check the written files and choose rows in parallel: the check of each job, and the chosen rows by config."""
        names = [name for name, config in self.configs.items() if config.selector is not None]
        calls: list[partial[Any]] = []
        for name in names:
            files = [file for by_split in built.candidates for file in by_split.get(name, {}).get("test", ())]
            candidates = [self.candidates_folder / file for file in files]
            calls.append(partial(write_selected, name, candidates, self.folder / _name_selected(name), self.settings))
        to_check = zip(jobs, built.files, built.candidates, strict=True)
        calls += [partial(check_shards, *of_job) for of_job in to_check]
        done = dict(self._run(pool, "checking", operator.call, calls))
        results = [done[number] for number in range(len(calls))]
        return results[len(names) :], dict(zip(names, results, strict=False))

    def _take_selected(self, name: str, selected: SelectionResult, built: _BuiltShards, known: Digests) -> Gate:
        """Count the rows that a selector chose, and check that their prompts are among the `known` ones."""
        selector = self.configs[name].selector
        assert selector is not None
        if selected.rows:
            built.files[0][name] = {"test": {_name_selected(name): selected.rows}}
        if more := built.counts.rows_made[name] - selected.rows:
            built.counts.drops[name][selector(self.settings).drop_reason] = more
        unknown = np.setdiff1d(selected.prompts, known).size
        return Gate(name=f"{name}_checked", verdict="fail" if unknown else "pass", figure={"rows": selected.rows})

    def _measure_families(self, built: _BuiltShards) -> list[Gate]:
        """The statistical gates. Families that fail are removed from the files."""
        recipes = [recipe for recipe in self._recipes if any(config.pair_families for config in recipe.configs)]
        if not recipes:
            return []
        if not self.settings.statistical_gates:
            return [Gate(name="shortcut", verdict="undecided", detail="shortcut: not measured, it was turned off")]
        self.progress("statistical gates", 0, None)
        gates, removed = make_statistical_gates(built.sample.take(), self.settings.seed)
        for family in removed:
            self.warnings.append(f"pair family {family} was removed: its answers can be guessed without the prompt")
        for recipe in recipes if removed else ():
            for config in recipe.configs:
                if "family" in config.columns:
                    self._remove_families(removed, config, built)
            for family in removed:
                pairs = built.counts.families.pop(family, 0)
                for name in [n for n in built.counts.strengths if n.partition(" ")[0] == family]:
                    del built.counts.strengths[name]
                built.counts.drops[recipe.configs[0].name][f"{family}_family_removed"] += pairs
        return gates

    def _remove_families(self, families: list[str], config: Config, built: _BuiltShards) -> None:
        for files in built.files:
            for split, listed in files.get(config.name, {}).items():
                left = {n: remove_families(self.folder / n, config, families, self.settings.seed) for n in listed}
                files[config.name][split] = {name: rows for name, rows in left.items() if rows}
