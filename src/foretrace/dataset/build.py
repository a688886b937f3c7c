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

from foretrace.core.errors import BuildError, GateError, Parts, Setting, UsageError, count_things
from foretrace.core.files import describe_write_error, only_writer
from foretrace.core.predictions import describe_origin
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.store import TraceStore
from foretrace.dataset.card import make_card
from foretrace.dataset.demonstration import refuse_demo_traces
from foretrace.dataset.difficulty import measure_difficulty
from foretrace.dataset.exact_gates import UNREAD_REMEDY, ShardCheck, check_shards, make_exact_gates, make_unread_gate
from foretrace.dataset.parquet import SelectionResult, remove_families, write_selected
from foretrace.dataset.plan import BuildPlan, check_room, make_empty_error, make_jobs, plan_build
from foretrace.dataset.prompt_digests import Digests, merge_digests
from foretrace.dataset.proposer_guesses import ProposerGuesses, check_matched, read_guesses
from foretrace.dataset.recipes.base import Config, Gate, load_configs, load_recipes, make_gate
from foretrace.dataset.recipes.proposer_mistakes import MistakeCandidate, choose_mistakes, make_mistakes
from foretrace.dataset.recipes.verifier import PAIRED
from foretrace.dataset.report import (
    BuildCounts,
    BuildReport,
    DataFile,
    describe_build,
    describe_files,
    is_dataset,
    make_manifest,
)
from foretrace.dataset.settings import SPLITS, BuildSettings
from foretrace.dataset.shard_job import ShardJob, ShardResult, build_shards
from foretrace.dataset.statistical_gates import make_statistical_gates
from foretrace.engines.engine import Engine, Pool
from foretrace.engines.in_order import Job, jobs_at_once, run_in_order
from foretrace.engines.processes import THIS_PROCESS

_FEW_ROWS, _FEW_GROUPS = 50, 5
"""A split of validation or test with fewer rows or groups is named in a warning."""


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
    """Refuse to write a dataset over other files, or over another dataset without `overwrite`."""
    if out.is_file():
        raise BuildError(f"{out}: is a file; name a folder")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise BuildError(f"{out}: exists; choose another folder, or overwrite it with ", Setting("overwrite", True))
    if not out.is_dir() or not is_dataset(out):
        raise BuildError(f"{out}: is not a foretrace dataset, so it will not be overwritten")


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
            raise BuildError(describe_write_error(out, error)) from error
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


class _Builder:
    def __init__(
        self, stores: list[TraceStore], staging: Path, settings: BuildSettings, engine: Engine, progress: ProgressFunc
    ) -> None:
        self._staging = staging
        self._stores = stores
        self._settings = settings
        self._progress = progress
        self._warnings: list[str] = []
        self._engine = engine
        self._corrections = settings.read_corrections()
        self._recipes = load_recipes(settings.recipes)
        self._configs = load_configs(settings.recipes)
        self._selected = [name for name, config in self._configs.items() if config.selector is not None]
        """The configs whose rows are chosen in the end."""
        self.folder = self._make_folder()

    def _make_folder(self) -> Path:
        """A folder for the output of the jobs. The name is new, because a lost worker or one of a killed build may
        still write to the folder it knows."""
        folder = self._staging / f"dataset-{secrets.token_hex(6)}"
        folder.mkdir()
        return folder

    def run(self) -> BuildReport:
        check_room(self._settings)
        before = [store.compute_fingerprint() for store in self._stores]
        jobs = make_jobs(self._stores, self._settings, self._corrections)
        with self._open_pool(len(jobs)) as pool:
            scratch = self._staging / "scratch"
            scratch.mkdir(exist_ok=True)
            plan = plan_build(self._stores, self._settings, jobs, partial(self._run, pool), scratch)
            self._warnings += plan.warnings
            jobs, built, mistakes = self._build_rows(pool, plan)
            unread = make_unread_gate(built.counts, is_allowed=self._settings.allow_unread)
            _fail_on([unread], UNREAD_REMEDY)
            statistical = self._measure_families(built)  # first, so that the other checks see only the rows that stay
            checks, selected = self._check_and_select(pool, jobs, built)
        gates = make_exact_gates(checks, built.counts, self._count_rows(built), self._configs, plan.selection)
        gates += [unread, self._check_inputs(before)]
        _fail_on(gates)
        known = merge_digests([check.digests["test"] for check in checks])
        gates += [self._take_selected(name, of_config, built, known) for name, of_config in selected.items()]
        gates += statistical
        _fail_on(gates)
        configs = {name: describe_files(self.folder, built.list_files(name)) for name in self._configs}
        if not any(configs.values()):
            drops = functools.reduce(operator.or_, built.counts.drops.values(), Counter[str]())  # steps repeat
            raise make_empty_error(built.counts.outcomes, drops, plan.selection, self._settings)
        self._warn_of_outcomes(built.counts)
        self._warn_of_small_splits(checks, configs)
        lengths = {name: of_config.prompt_tokens for name, of_config in selected.items() if of_config.rows}
        for check in checks:
            for name, counts in check.prompt_tokens.items():
                lengths.setdefault(name, Counter()).update(counts)
        manifest = make_manifest(
            self._settings,
            plan.inputs,
            plan.selection,
            built.counts,
            gates,
            self._corrections,
            configs=configs,
            difficulty=measure_difficulty(built.shallow.take(), built.counts.count_families()),
            prompt_tokens={name: [by[n] for n in range(max(by) + 1)] for name, by in lengths.items()},
            warnings=self._warnings,
            **({} if mistakes is None else {"mistakes": mistakes}),
        )
        self._move_files(configs)
        data = msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1)
        (self.folder / "manifest.json").write_bytes(data + b"\n")
        (self.folder / "README.md").write_text(make_card(manifest, list(self._configs.values())), encoding="utf-8")
        return BuildReport(manifest)

    def _warn_of_outcomes(self, counts: BuildCounts) -> None:
        if self._corrections is not None:
            self._warnings += self._corrections.count(self._stores, counts.corrected).warnings
        unknown, total = counts.outcomes["unknown"], counts.outcomes.total()
        if self._settings.outcomes == "success" and 2 * unknown > total:
            self._warnings.append(
                f"{unknown:,} of {total:,} attempts do not say whether they succeeded, so their steps are left out "
                "(attempt_not_wanted); the setting outcomes=not_failed includes them"
            )

    def _warn_of_small_splits(self, checks: Sequence[ShardCheck], configs: Mapping[str, Any]) -> None:
        """Warn of splits on which figures say little, counted in rows of the first config."""
        config, files = next((name, files) for name, files in configs.items() if files)
        found: list[str] = []
        for split in SPLITS[1:]:
            rows = files[split]["rows"] if split in files else 0
            groups = len({group for check in checks for group in check.groups[split]})
            if rows and (rows < _FEW_ROWS or groups < _FEW_GROUPS):
                found.append(f"{split} has {count_things(rows, f'{config} row')} of {count_things(groups, 'group')}")
        if found:
            self._warnings.append(
                f"{' and '.join(found)}: figures on so few say little; add traces of other repositories or tasks, or "
                "give these splits a larger share"
            )

    def _move_files(self, configs: Mapping[str, Any]) -> None:
        """Move the files of these configs to a folder that no lost worker knows, without candidates and leftovers."""
        before, self.folder = self.folder, self._make_folder()
        for name in [name for splits in configs.values() for split in splits.values() for name in split["files"]]:
            (self.folder / name).parent.mkdir(exist_ok=True)
            (before / name).rename(self.folder / name)

    def _open_pool(self, jobs: int) -> AbstractContextManager[Pool | None]:
        reads = [store.folder / "manifest.json" for store in self._stores]
        return self._engine.open_pool(
            useful=jobs,
            writes=[self._staging],
            reads=[*reads, Path(self._settings.tokenizer)] if self._settings.tokenizer else reads,
            small=not any(":" in name for name in self._settings.recipes),
            helps=True,
        )

    def _build_rows(
        self, pool: Pool | None, plan: BuildPlan
    ) -> tuple[list[ShardJob], ShardResult, dict[str, Any] | None]:
        """The jobs that made the rows, their results, and what the manifest says about the proposer's mistakes. The
        jobs run a second time if they need what all of them found: prompts shared by splits, or mistakes that balance
        one another."""
        guesses = self._read_guesses(plan.inputs)
        jobs = [msgspec.structs.replace(job, folder=str(self.folder)) for job in plan.jobs]
        if guesses is not None:
            shared_out = guesses.share_out(self._stores, [job.shards for job in jobs])
            jobs = [msgspec.structs.replace(job, predictions=own) for job, own in zip(jobs, shared_out, strict=True)]
        built = self._build(pool, "building", jobs)
        shared, search = built.find_shared_prompts(), built.mistakes
        chosen: list[MistakeCandidate] = []
        if guesses is not None:
            self._warnings += check_matched(guesses, search.steps)
            chosen = choose_mistakes(search.candidates, shared, self._settings.pairs)
            found = make_mistakes(chosen, guesses.by_key)
            jobs = [
                msgspec.structs.replace(
                    job, predictions={}, mistakes={key: found[key] for key in job.predictions if key in found}
                )
                for job in jobs
            ]
        if shared or chosen:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = self._make_folder()
            jobs = [msgspec.structs.replace(job, excluded=shared, folder=str(self.folder)) for job in jobs]
            reasons = ["without prompts of two splits"] * bool(shared) + ["with the proposer's mistakes"] * bool(chosen)
            built = self._build(pool, f"building again {' and '.join(reasons)}", jobs)
        if guesses is None:
            return jobs, built, None
        drops = built.counts.drops.setdefault(PAIRED.name, Counter())
        drops.update(search.drops)
        drops["proposer_without_twin"] += len(search.candidates) - len(chosen)
        if not chosen:
            self._warnings.append(
                f"mistakes: no pair could be made from {search.steps:,} predicted steps of this dataset; predict more "
                "rows, more guesses a row, or with a better predictor"
            )
        return jobs, built, {"files": guesses.files, "steps": search.steps, "pairs": len(chosen)}

    def _read_guesses(self, inputs: Mapping[str, Any]) -> ProposerGuesses | None:
        if not self._settings.mistakes:
            return None
        if PAIRED.name not in self._configs:
            raise UsageError(Setting("mistakes"), f" gives pairs of the recipe {PAIRED.name}, which is not built")
        origin = describe_origin(describe_build(self._settings, inputs, self._corrections))
        paths = [Path(file) for file in self._settings.mistakes]
        return read_guesses(paths, origin, allow_unchecked=self._settings.allow_unchecked)

    def _build(self, pool: Pool | None, doing: str, jobs: list[ShardJob]) -> ShardResult:
        built = ShardResult()
        for result in self._run(pool, doing, build_shards, jobs):
            built.add(result)
        return built

    def _run(self, pool: Pool | None, doing: str, function: Callable[..., Any], jobs: Sequence[Any]) -> Iterator[Any]:
        self._progress(doing, 0, len(jobs))
        results = run_in_order(pool, (Job(function, (job,), 1) for job in jobs), jobs_at_once(pool))
        for done, result in enumerate(results, start=1):
            yield result
            self._progress(doing, done, len(jobs))

    def _check_inputs(self, before: list[str]) -> Gate:
        after = [TraceStore(store.folder).compute_fingerprint() for store in self._stores]
        return make_gate("inputs_unchanged", {"inputs": len(after)}, failed=after != before)

    def _count_rows(self, built: ShardResult) -> Counter[str]:
        return Counter({name: sum(file.rows for file in built.list_files(name)) for name in self._configs})

    def _check_and_select(
        self, pool: Pool | None, jobs: list[ShardJob], built: ShardResult
    ) -> tuple[list[ShardCheck], dict[str, SelectionResult]]:
        """Check the written files and choose rows in parallel: the check of each job, and the chosen rows by config."""
        calls: list[partial[Any]] = []
        for name in self._selected:
            candidates = [self.folder / file.name for file in built.list_files(name)]
            calls.append(partial(write_selected, name, candidates, self.folder / _name_selected(name), self._settings))
        by_job: dict[int, list[DataFile]] = {job.number: [] for job in jobs}
        for file in built.files:
            by_job[file.job].append(file)
        calls += [partial(check_shards, job, by_job[job.number]) for job in jobs]
        results = [*self._run(pool, "checking", operator.call, calls)]
        return results[len(self._selected) :], dict(zip(self._selected, results, strict=False))

    def _take_selected(self, name: str, selected: SelectionResult, built: ShardResult, known: Digests) -> Gate:
        """Count the rows that a selector chose, and check that their prompts are among the `known` ones."""
        selector = self._configs[name].selector
        assert selector is not None
        built.files = [file for file in built.files if file.config != name]
        if selected.rows:
            built.files.append(DataFile(0, name, "test", _name_selected(name), selected.rows))
        if more := built.counts.rows_made[name] - selected.rows:
            built.counts.drops[name][selector(self._settings).drop_reason] = more
        unknown = np.setdiff1d(selected.prompts, known).size
        return make_gate(f"{name}_checked", {"rows": selected.rows}, failed=bool(unknown))

    def _measure_families(self, built: ShardResult) -> list[Gate]:
        """The statistical gates. Families that fail are removed from the files."""
        recipes = [recipe for recipe in self._recipes if any(config.pair_families for config in recipe.configs)]
        if not recipes:
            return []
        if not self._settings.statistical_gates:
            return [Gate(name="shortcut", verdict="undecided", detail="shortcut: not measured, it was turned off")]
        self._progress("statistical gates", 0, None)
        gates, removed = make_statistical_gates(built.sample.take(), self._settings.seed)
        for family in removed:
            self._warnings.append(f"pair family {family} was removed: its answers can be guessed without the prompt")
        for recipe in recipes if removed else ():
            configs = {config.name: config for config in recipe.configs if "family" in config.columns}
            left = [self._remove_families(file, configs, removed) for file in built.files]
            built.files = [file for file in left if file.rows]
            for family in removed:
                pairs = built.counts.count_families()[family]
                built.counts.drops[recipe.configs[0].name][f"{family}_family_removed"] += pairs
                for counted in [counted for counted in built.counts.strengths if counted[0] == family]:
                    del built.counts.strengths[counted]
        return gates

    def _remove_families(self, file: DataFile, configs: Mapping[str, Config], families: list[str]) -> DataFile:
        if file.config not in configs:
            return file
        rows = remove_families(self.folder / file.name, configs[file.config], families, self._settings.seed)
        return msgspec.structs.replace(file, rows=rows)


def _fail_on(gates: list[Gate], remedy: Parts = ()) -> None:
    if failed := [str(gate) for gate in gates if gate.verdict == "fail"]:
        raise GateError(f"gate failed, nothing was written: {'; '.join(failed)}", *remedy)


def _name_selected(config: str) -> str:
    return f"{config}/test-00000-of-00001.parquet"
