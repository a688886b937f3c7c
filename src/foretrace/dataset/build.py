"""Build datasets from traces folders: parts in parallel, gates over what was written, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.errors import BuildError, GateError, UsageError
from foretrace.core.files import cannot_write, only_writer
from foretrace.core.store import TraceStore
from foretrace.dataset import demonstration, splits
from foretrace.dataset.card import make_card
from foretrace.dataset.exact_gates import Gate, ShardCheck, check_shards, make_exact_gates
from foretrace.dataset.parquet import TableWriter, read_groups
from foretrace.dataset.prompts import digest_prompt, make_instruction, make_token_counter
from foretrace.dataset.recipes import load_recipes
from foretrace.dataset.recipes.base import Config, Row, is_wanted_outcome
from foretrace.dataset.report import BuildReport, make_manifest
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.shard_job import EvalSlices, SampledPair, ShardJob, ShardResult, build_shards
from foretrace.dataset.statistical_gates import make_statistical_gates, rewrite_without
from foretrace.engines.processes import worker_pool

MESSAGES_PER_JOB = 24_000
"""Messages of one part, about: it decides the number of parts, and so the files, from the traces alone."""

Progress = Callable[[str, int], None]
"""Called with what is going on and how many parts are done."""


def build(
    traces: Sequence[Path | str],
    out: Path | str,
    settings: BuildSettings | None = None,
    *,
    workers: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> BuildReport:
    """Build all datasets from traces folders into the folder `out`, whole or not at all.

    The same traces and settings give the same bytes, whatever the order in which the traces came and the number of
    workers. With more than one worker, call it under `if __name__ == "__main__":`.

    Raises:
        UsageError: a setting that cannot be served, or traces of the demo model that were not allowed.
        BuildError: `out` exists (and not `overwrite`), cannot be written, or no row can be made.
        GateError: a gate failed; nothing was written.
    """
    settings = settings or BuildSettings()
    settings.check()
    out = Path(out)
    _check_out(out, overwrite)
    stores = [TraceStore(Path(t)) for t in traces]
    if within := [s.folder for s in stores if s.folder.resolve().is_relative_to(out.resolve())]:
        raise UsageError(f"{out}: the traces in {within[0]} would be overwritten; choose another folder")
    if not settings.allow_demo:
        demonstration.refuse_demo_traces(stores)
    with _staging(out) as folder:
        _check_out(out, overwrite)  # again: a build that was killed may have been put back just now
        report = _Builder(stores, folder, settings, workers, progress or (lambda _, __: None)).run()
        _move(folder, out)
    return report


def _check_out(out: Path, overwrite: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise BuildError(f"{out}: exists; choose another folder, or overwrite it (--overwrite, overwrite=True)")
    if not out.is_dir() or not _is_dataset(out):
        raise BuildError(f"{out}: is no dataset of ours, it will not be overwritten")


def _is_dataset(folder: Path) -> bool:
    try:
        manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    except (OSError, msgspec.DecodeError, RecursionError):
        return False
    return isinstance(manifest, dict) and {"settings", "configs", "gates"} <= manifest.keys()


@contextlib.contextmanager
def _staging(out: Path) -> Generator[Path]:
    """A folder beside `out`, held by a lock; what a killed build left there is cleared, or put back."""
    staging = out.absolute().with_name(f".{out.name}.building")
    with only_writer(staging):
        previous = staging / "previous"
        if previous.exists() and not out.exists():
            previous.rename(out)
        for left in staging.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        try:
            # A name of its own: workers of a killed build may live a moment longer than it.
            folder = staging / f"dataset-{os.getpid()}"
            folder.mkdir()
            yield folder
        except OSError as error:
            raise BuildError(cannot_write(Path(error.filename or staging), error)) from error
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
        self, stores: list[TraceStore], folder: Path, settings: BuildSettings, workers: int, progress: Progress
    ) -> None:
        self.stores = stores
        self.folder = folder
        self.settings = settings
        self.progress = progress
        self._workers = workers
        self.configs: dict[str, Config] = {c.name: c for r in load_recipes(settings.recipes) for c in r.configs}

    def run(self) -> BuildReport:
        """Build, check, and write manifest and card."""
        self._check_room()
        before = [store.fingerprint() for store in self.stores]
        jobs, warnings, inputs = self._plan()
        with worker_pool(
            min(self._workers, len(jobs)), small=not any(":" in name for name in self.settings.recipes)
        ) as pool:
            built = self._run(pool, "building", build_shards, jobs)
            clashes = _find_shared_prompts(built)
            if clashes:
                jobs = [msgspec.structs.replace(job, excluded=clashes) for job in jobs]
                self._clear()
                built = self._run(pool, "building again without prompts of two splits", build_shards, jobs)
            blind = self._statistics(built, warnings)  # first: what is checked is what stays
            checks = self._run(pool, "checking", check_shards, jobs, built)
        gates = make_exact_gates(checks, built)
        gates.append(self._unchanged(before))
        self._fail_on(gates)
        self._merge_eval(built, checks, gates)
        gates += blind
        self._fail_on(gates)
        if not any(self._rows(built).values()):
            raise BuildError(self._why_empty(built))
        report = make_manifest(self.settings, inputs, built, gates, warnings, self.configs, self.folder)
        data = msgspec.json.format(msgspec.json.encode(report.manifest, order="deterministic"), indent=1)
        (self.folder / "manifest.json").write_bytes(data + b"\n")
        (self.folder / "README.md").write_text(
            make_card(report.manifest, list(self.configs.values())), encoding="utf-8"
        )
        return report

    def _check_room(self) -> None:
        """A prompt is a quarter instruction at most: the other shares are for system, task and latest turn."""
        most = self.settings.max_context_tokens
        size = make_token_counter(self.settings.tokenizer).count(make_instruction(self.settings.target))
        if size > most // 4:
            raise UsageError(
                f"max_context_tokens is {most}: by this tokenizer the instruction alone takes {size}; "
                f"the smallest is {size * 4}"
            )

    def _plan(self) -> tuple[list[ShardJob], list[str], dict[str, Any]]:
        shards = {store.manifest.shards for store in self.stores}
        if not self.stores:
            raise UsageError("build takes at least one traces folder")
        if len(shards) > 1:
            raise UsageError(
                "build takes traces folders with one number of shards; import again with the same --shards"
            )
        tables = [store.columns("key", "id", "group", "n_messages", "success") for store in self.stores]
        keys = sorted({(k, i) for t in tables for k, i in zip(*_read_lists(t, "key", "id"), strict=True)})
        if not keys:
            raise BuildError(f"{self.stores[0].folder}: holds no traces")
        groups = sorted({g for t in tables for g in _read_lists(t, "group")[0]})
        pairs = [p for t in tables for p in zip(*_read_lists(t, "group", "success"), strict=True)]
        filling = {group for group, success in pairs if is_wanted_outcome(self.settings.outcomes, success)}
        assigned, warnings = splits.assign_splits(groups, self.settings.split, self.settings.seed, filling)
        messages = sum(sum(_read_lists(t, "n_messages")[0]) for t in tables)
        used = sorted({s for store in self.stores for s in store.shards})
        count = max(1, min(len(used), -(-messages // MESSAGES_PER_JOB)))
        inputs = {"traces": len(keys), "groups": len(groups), "digest": digest(*(x for k in keys for x in k), size=16)}
        jobs = [
            ShardJob(
                number=number,
                count=count,
                stores=tuple(sorted(str(store.folder) for store in self.stores)),
                shards=tuple(used[len(used) * number // count : len(used) * (number + 1) // count]),
                folder=str(self.folder),
                settings=self.settings,
                splits=assigned,
            )
            for number in range(count)
        ]
        return jobs, warnings, inputs

    def _run(self, pool: Executor | None, doing: str, function: Any, *arguments: Sequence[Any]) -> Any:
        """Results of the function over the jobs, in the order of the jobs."""
        count = len(arguments[0])
        self.progress(f"{doing} ({count} part{'s' if count > 1 else ''})", 0)
        if pool is None:
            results: list[Any] = []
            for job in zip(*arguments, strict=True):
                results.append(function(*job))
                self.progress(doing, len(results))
            return results
        futures: list[Future[Any]] = [pool.submit(function, *job) for job in zip(*arguments, strict=True)]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            self.progress(doing, done)
        return [future.result() for future in futures]

    def _clear(self) -> None:
        for path in list(self.folder.iterdir()):
            shutil.rmtree(path)

    def _unchanged(self, before: list[str]) -> Gate:
        after = [TraceStore(store.folder).fingerprint() for store in self.stores]
        return Gate(
            name="inputs_unchanged", verdict="pass" if after == before else "fail", figure={"inputs": len(after)}
        )

    def _fail_on(self, gates: list[Gate]) -> None:
        failed = [g for g in gates if g.verdict == "fail"]
        if failed:
            told = "; ".join(_describe_gate(g) for g in failed)
            raise GateError(f"gate failed, nothing was written: {told}")

    def _merge_eval(self, built: list[ShardResult], checks: list[ShardCheck], gates: list[Gate]) -> None:
        """One file of the two slices, out of the parts' candidates, which were checked."""
        if "eval" not in self.configs:
            return
        config = self.configs["eval"]
        slices = EvalSlices(self.settings)
        names = [name for part in built for name in part.files.pop("eval", {}).get("test", {})]
        for name in names:
            for group in read_groups(self.folder / name, config):
                columns = group.values | group.messages
                for values in zip(*(columns[c] for c in config.columns), strict=True):
                    row = dict(zip(config.columns, values, strict=True))
                    slices.offer(Row("eval", row["key"], row["step"], "", row))
            (self.folder / name).unlink()
        writer = TableWriter(self.folder / "eval/test-00000-of-00001.parquet", config, self.settings.seed)
        known = {mark for check in checks for mark in check.prompts["test"]}
        unknown = 0
        for row in slices.rows(final=True):
            unknown += digest_prompt(row.values["prompt"]) not in known
            writer.add(row)
        rows = writer.close()
        if (more := sum(part.candidates["eval"] for part in built) - rows) > 0:
            built[0].drops["eval"]["in_no_slice"] = more
        if rows:
            built[0].files["eval"] = {"test": {"eval/test-00000-of-00001.parquet": rows}}
        gates.append(Gate(name="eval_checked", verdict="fail" if unknown else "pass", figure={"rows": rows}))

    def _statistics(self, built: list[ShardResult], warnings: list[str]) -> list[Gate]:
        if "verifier" not in self.configs:
            return []
        if not self.settings.statistical_gates:
            return [Gate(name="shortcut", verdict="undecided", detail="shortcut: not measured, it was turned off")]
        self.progress("statistical gates", 0)
        sample: dict[str, list[SampledPair]] = {}
        for part in built:
            for family, pairs in part.sample.items():
                sample.setdefault(family, []).extend(pairs)
        gates, removed = make_statistical_gates(sample, self.settings.seed)
        for family in removed:
            warnings.append(f"pair family {family} was removed: its answers can be guessed without the prompt")
        if removed:
            rewrite_without(removed, built, self.configs, self.folder, self.settings.seed)
        return gates

    def _rows(self, built: list[ShardResult]) -> Counter[str]:
        rows: Counter[str] = Counter()
        for part in built:
            for config, by_split in part.files.items():
                rows[config] += sum(sum(files.values()) for files in by_split.values())
        return rows

    def _why_empty(self, built: list[ShardResult]) -> str:
        outcomes, drops = Counter[str](), Counter[str]()
        for part in built:
            outcomes.update(part.traces)
            for reasons in part.drops.values():
                drops.update(reasons)
        told = ", ".join(f"{n} {name}" for name, n in sorted(outcomes.items()))
        why = ", ".join(f"{name} {n}" for name, n in sorted(drops.items()) if n)
        return (
            f"no row could be made from {outcomes.total()} traces ({told}); left out: {why or 'nothing'}; "
            f"--outcomes is {self.settings.outcomes}: not_failed takes attempts of unknown outcome too, all takes all"
        )


def _describe_gate(gate: Gate) -> str:
    figure = ", ".join(f"{name} {value}" for name, value in gate.figure.items())
    rows = f", e.g. {', '.join(gate.rows)}" if gate.rows else ""
    return f"{gate.name} ({'; '.join(t for t in (figure, gate.detail) if t)}){rows}"


def _read_lists(table: Any, *names: str) -> list[list[Any]]:
    return [table[name].to_pylist() for name in names]


def _find_shared_prompts(built: list[ShardResult]) -> dict[str, str]:
    """Prompts that stand in several splits, and the one that keeps them: the most held-out one."""
    merged: dict[str, set[bytes]] = {}
    for part in built:
        for split, marks in part.prompts.items():
            merged.setdefault(split, set()).update(marks)
    train, validation, test = (merged.get(s, set[bytes]()) for s in ("train", "validation", "test"))
    shared = {mark.hex(): "validation" for mark in train & validation}
    return shared | {mark.hex(): "test" for mark in (train | validation) & test}
