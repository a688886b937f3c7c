"""The guesses of a proposer whose mistakes become pairs. They are read from files of predictions, and refused if made
for other rows or by a proposer that may have learned the rows' answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import PredictionError, Setting
from foretrace.core.files import compute_sha256
from foretrace.core.predictions import Prediction, PredictionsHeader, read_header, read_predictions
from foretrace.core.segments import choose_shard
from foretrace.core.store import TraceStore

GuessesByKey = dict[str, dict[int, list[Prediction]]]
"""By key of the trace: the guesses at each step, best first."""


class ProposerGuesses(msgspec.Struct, frozen=True):
    """All guesses, and the files they come from."""

    files: list[dict[str, Any]]
    """For the manifest, for each file: the predictor, the split of the rows (empty if unknown), the folds (parts of the
    groups, each predicted by a proposer that learned the others), the number of steps with a guess, the digest, and the
    number of faulty lines by kind."""
    by_key: GuessesByKey

    @property
    def steps(self) -> int:
        return sum(file["steps"] for file in self.files)

    def share_out(self, stores: Sequence[TraceStore], shards: Sequence[Iterable[int]]) -> list[GuessesByKey]:
        """The guesses that each job needs, given the shards that each reads."""
        job_of = {shard: number for number, of_job in enumerate(shards) for shard in of_job}
        shared: list[GuessesByKey] = [{} for _ in shards]
        for store in stores:
            table = store.read_columns("key", "task_id")
            for key, task in zip(table["key"].to_pylist(), table["task_id"].to_pylist(), strict=True):
                if key in self.by_key:
                    shared[job_of[choose_shard(task, store.manifest.shards)]][key] = self.by_key[key]
        return shared


def check_guess_file(path: Path, *, allow_unchecked: bool) -> None:
    """Refuse a file by its header, before any work is done: it must guess calls, and state that no row's own answer was
    learned."""
    header = read_header(path)
    if header is not None and header.target != "call":
        raise PredictionError(
            f"{path}: {header.predictor or 'its predictor'} guesses types and no whole calls, so that empty arguments "
            "would tell its mistakes; take a predictor that guesses calls, such as memory"
        )
    if not allow_unchecked and (why := _find_doubt(header)) is not None:
        raise PredictionError(
            f"{path}: {why}; predict again, in folds, or where nothing was learned from these rows say so by ",
            Setting("allow_unchecked", True),
        )


def _find_doubt(header: PredictionsHeader | None) -> str | None:
    """Why the guesses may be from a proposer that learned the rows' own answers, or for other rows."""
    if header is None:
        return "has no header that says how it was made"
    if not header.built_from:
        return "does not say what its dataset was built from"
    folds = header.settings.get("folds")
    if header.split not in ("validation", "test") and not (isinstance(folds, int) and folds >= 2):
        return "train rows were not predicted in folds, so that their answers may have been learned"
    return None


def read_guesses(paths: Sequence[Path], origin: Mapping[str, Any], *, allow_unchecked: bool) -> ProposerGuesses:
    """Read files of predictions, for rows that are made from `origin` (`describe_origin`)."""
    by_key: GuessesByKey = {}
    files: list[dict[str, Any]] = []
    for path in paths:
        check_guess_file(path, allow_unchecked=allow_unchecked)
        found = read_predictions(path)
        if not found.rows:
            raise PredictionError(f"{path}: holds no predictions")
        header = found.header or PredictionsHeader()
        _check_origin(path, header.built_from, origin)
        by_step = found.by_step()
        for (key, step), guesses in by_step.items():
            if step in by_key.setdefault(key, {}):
                raise PredictionError(f"{path}: predicts {key} step {step}, as another of the files does; give one")
            by_key[key][step] = guesses
        about = {"predictor": header.predictor or path.name, "split": header.split, "steps": len(by_step)}
        about |= {"folds": header.settings.get("folds"), "sha256": compute_sha256(path), "problems": found.problems}
        files.append(about)
    return ProposerGuesses(files, by_key)


def _check_origin(path: Path, built_from: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
    own = json.loads(json.dumps(origin))
    differing = [name for name in (*own, *built_from) if own.get(name) != built_from.get(name)] if built_from else []
    if differing:
        told = ", ".join(
            "other traces" if name == "traces" else f"{name} {built_from.get(name)} (here {own.get(name)})"
            for name in dict.fromkeys(differing)
        )
        raise PredictionError(
            f"{path}: was made for rows of another build: {told}; predict a dataset that was built from the same "
            "traces with the same settings"
        )


def check_matched(guesses: ProposerGuesses, matched: int) -> list[str]:
    """Warnings about guesses that were left out; a `PredictionError` if most of them are for other rows."""
    unknown = guesses.steps - matched
    if unknown > matched:
        raise PredictionError(
            f"the mistakes: {unknown:,} of {guesses.steps:,} predicted steps are not rows of this dataset; name "
            "predictions of a dataset that was built from the same traces with the same settings"
        )
    problems: Counter[str] = Counter()
    for file in guesses.files:
        problems.update({name: count for name, count in file["problems"].items() if name != "no_action"})
    told = [f"lines of the predictions with {name}: {count:,}" for name, count in sorted(problems.items())]
    if unknown > 0:
        told.insert(0, f"{unknown:,} of {guesses.steps:,} predicted steps are not rows of this dataset")
    return [f"mistakes: {each}" for each in told]


def describe_mistakes(files: Iterable[Mapping[str, Any]]) -> str:
    """Whose mistakes they are, for the card: `memory (4,628 train steps in 5 folds, sha256 5f0c...)`."""
    return ", ".join(
        f"{file['predictor']} ({file['steps']:,} {file['split'] or 'other'} steps"
        f"{'' if file['folds'] is None else ' in {} folds'.format(file['folds'])}, sha256 {file['sha256'][:12]})"
        for file in files
    )
