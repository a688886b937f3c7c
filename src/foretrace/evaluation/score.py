"""Score predictions of next actions against the `eval` rows of a dataset, with bootstrap intervals by group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from foretrace.core.errors import PredictionError, Setting
from foretrace.core.predictions import Prediction, PredictionsFile, digest_dataset, read_predictions
from foretrace.core.references import FILE, Reference, ScoreRow, read_references
from foretrace.evaluation.accepting import measure_verifier
from foretrace.evaluation.bootstrap import Resamples, find_interval
from foretrace.evaluation.calibration import measure_calibration
from foretrace.evaluation.checked_settings import check_number, choose_safe_effects
from foretrace.evaluation.figures import (
    Measured,
    list_units,
    make_score_rows,
    measure_ahead,
    measure_arguments,
    measure_figures,
    measure_parts,
)
from foretrace.evaluation.gold_steps import GoldStep, read_eval_steps, read_target, read_validation_steps
from foretrace.evaluation.judged_steps import Guesses, JudgedSteps, has_action, is_eligible, judge_guesses
from foretrace.evaluation.score_report import Calibration, Comparison, Difference, ScoreReport

SLICES = ("natural", "balanced", "eligible")
"""As the steps come; equally many of each class; of the first, the steps whose calls can be run early."""


class _Gold(NamedTuple):
    """The steps of a dataset that predictions are scored on."""

    dataset: Path
    target: str
    steps: list[GoldStep]

    def find_slice(self, name: str, safe: Collection[str]) -> Any:
        """The steps of a slice, a mask of (steps,)."""
        if name == "eligible":
            chosen = ("natural" in step.slices and is_eligible(step, safe) for step in self.steps)
        else:
            chosen = (name in step.slices for step in self.steps)
        return np.fromiter(chosen, bool, len(self.steps))


class _Predictions(NamedTuple):
    """A file of predictions that fits the dataset."""

    file: PredictionsFile
    guesses: dict[tuple[str, int], list[Prediction]]
    judged: JudgedSteps
    unknown: int
    most: int
    """Guesses a step at most."""


def score(
    predictions: Path | str,
    dataset: Path | str,
    *,
    seed: int = 0,
    allow_partial: bool = False,
    allow_other_version: bool = False,
    allow: Sequence[str] = (),
    against: Path | str | None = None,
    validation: Path | str | None = None,
) -> ScoreReport:
    """Score a file of predictions (see `core/predictions.py`) on the eval rows of a dataset.

    Metrics on the natural slice, the class-balanced one and, of the natural one, the steps whose calls are safe to run
    early: type accuracy, macro-F1 over the classes in the gold, and the F1 of each class; over the steps that call a
    tool: tool, exact call (type aside: same tool and arguments as JSON), normalised call; all but F1 also among the
    first three and five guesses.

    Args:
        predictions: The file.
        dataset: Folder that `build` wrote.
        seed: Seed of the bootstrap.
        allow_partial: Score although most predictions are for rows that the dataset does not have.
        allow_other_version: Score although the predictions were made for another version of the dataset.
        allow: Effects whose calls are safe to run early beside `pure_read`: `sandbox_exec`.
        against: Another file of predictions, with which each figure is compared.
        validation: Scored predictions for the validation rows of `proposer`: thresholds of the verifier are chosen on
            them. Without them they are chosen on half of the test groups, and measured on the other half.

    Raises:
        UsageError: an effect that cannot be allowed, or a negative seed.
        PredictionError: no eval rows, predictions that cannot be read, that are for another version of the dataset, or
            most of which are for other rows.
    """
    safe = choose_safe_effects(allow)
    check_number("seed", seed)
    dataset = Path(dataset)
    target = read_target(dataset)
    gold = _Gold(dataset, target, read_eval_steps(dataset, target))
    allowed = _Allowed(partial=allow_partial, other_version=allow_other_version)
    own = _read(Path(predictions), gold, allowed)
    other = None if against is None else _read(Path(against), gold, allowed)
    tuned = None if validation is None else _read_validation(Path(validation), gold, allowed)
    return _make_report(own, other, tuned, gold, safe, seed)


def _make_report(
    own: _Predictions,
    other: _Predictions | None,
    validation: JudgedSteps | None,
    gold: _Gold,
    safe: Collection[str],
    seed: int,
) -> ScoreReport:
    """All figures of the predictions, and the differences from the others."""
    slices = [_Slice(name, gold.find_slice(name, safe), seed) for name in SLICES]
    natural = own.judged.choose(slices[0].chosen)
    resamples = Resamples(list_units(natural.steps, "group"), seed)
    known = set(own.guesses)
    readable = {at for at, guesses in own.guesses.items() if any(map(has_action, guesses))}
    references, left_out = _find_references(gold, safe)
    header = own.file.header
    return ScoreReport(
        predictor=own.file.predictor,
        predicted=gold.target if header is None else header.target,
        target=gold.target,
        scores=[row for each in slices for row in each.score(own)],
        rows=len(gold.steps),
        missing=len(gold.steps) - len(known),
        unreadable=len(known - readable),
        without_first=_count_without_first(own.guesses),
        unknown=own.unknown,
        problems=own.file.problems,
        guesses=own.most,
        tasks=len({step.task for step in gold.steps}),
        groups=len({step.group for step in gold.steps}),
        allow=sorted(safe),
        eligible=int(slices[2].chosen.sum()),
        by_action=measure_parts(natural, resamples, lambda step: step.action),
        by_tool=measure_parts(natural, resamples, lambda step: step.tool),
        by_source=measure_parts(natural, resamples, lambda step: step.source),
        arguments=measure_arguments(natural.steps, own.guesses, seed),
        ahead=measure_ahead(natural, resamples),
        calibration=_calibrate(natural, gold.target),
        verifier=measure_verifier(
            natural,
            own.guesses,
            gold.target,
            verifier=None if header is None else header.verifier,
            validation=validation,
            seed=seed,
        ),
        against=None if other is None else _compare(own, other, slices),
        references=references,
        references_left_out=left_out,
        latency_s={} if header is None else header.latency_s,
        seed=seed,
    )


def _find_references(gold: _Gold, safe: Collection[str]) -> tuple[list[Reference], str | None]:
    """The figures of the dataset's references that can be compared, and why there are none where there are some."""
    found = read_references(gold.dataset)
    if found is None:
        return [], None
    if found.dataset != digest_dataset(gold.dataset):
        return [], f"{gold.dataset / FILE} is of another version of the dataset"
    if {*found.allow} == {*map(str, safe)}:
        return found.predictors, None
    # Other calls are safe to run early now, so that the slice is another one.
    return [
        msgspec.structs.replace(each, scores=[row for row in each.scores if row.slice != "eligible"])
        for each in found.predictors
    ], None


def _count_without_first(guesses: Guesses) -> int:
    """The steps that have guesses, and none of rank 1."""
    return sum(all(guess.rank != 1 for guess in found) for found in guesses.values())


class _Allowed(NamedTuple):
    """What is scored although it does not fit."""

    partial: bool
    other_version: bool


def _read(path: Path, gold: _Gold, allowed: _Allowed) -> _Predictions:
    """Read predictions and hold them against the steps.

    Raises:
        PredictionError: they do not fit the dataset.
    """
    file = read_predictions(path)
    _check_header(file, gold, "eval", allowed)
    file.check_not_empty()
    guesses, unknown = _match(file, gold, "eval", allowed)
    most = max((guess.rank for found in guesses.values() for guess in found), default=1)
    return _Predictions(file, guesses, judge_guesses(gold.steps, guesses, gold.target), unknown, most)


def _read_validation(path: Path, gold: _Gold, allowed: _Allowed) -> JudgedSteps:
    """Read predictions for the validation rows.

    Raises:
        PredictionError: they do not fit the dataset, or none of them has a score.
    """
    gold = gold._replace(steps=read_validation_steps(gold.dataset, gold.target))
    file = read_predictions(path)
    _check_header(file, gold, "proposer", allowed)
    if not any(row.score is not None for row in file.rows):
        raise PredictionError(f"{path}: has no scores to choose a threshold on; let a verifier score it first")
    guesses, _ = _match(file, gold, "validation", allowed)
    return judge_guesses(gold.steps, guesses, gold.target)


def _match(
    file: PredictionsFile, gold: _Gold, kind: str, allowed: _Allowed
) -> tuple[dict[tuple[str, int], list[Prediction]], int]:
    """The guesses at the steps of the dataset, and the number of other steps that are predicted.

    Raises:
        PredictionError: most of them are others.
    """
    by_step = file.by_step()
    places = {(step.key, step.step) for step in gold.steps}
    guesses = {at: found for at, found in by_step.items() if at in places}
    unknown = len(by_step) - len(guesses)
    if unknown > len(guesses) and not allowed.partial:
        raise PredictionError(
            f"{file.path}: {unknown:,} of {len(by_step):,} predictions are for rows that are not among the {kind} "
            f"rows of {gold.dataset}: name the dataset whose prompts were answered, or ",
            Setting("allow_partial", True),
            " scores the others",
        )
    return guesses, unknown


def _check_header(file: PredictionsFile, gold: _Gold, config: str, allowed: _Allowed) -> None:
    header = file.header
    if header is None:
        return
    if header.config != config:
        raise PredictionError(
            f"{file.path}: predicts rows of the config {header.config}; rows of {config} are wanted here"
        )
    if header.dataset and header.dataset != digest_dataset(gold.dataset) and not allowed.other_version:
        raise PredictionError(
            f"{file.path}: was made for another dataset, or another version of {gold.dataset}: predict again, or ",
            Setting("allow_other_version", True),
            " scores what fits",
        )


class _Slice(NamedTuple):
    """Some steps, and what is drawn of them."""

    name: str
    chosen: Any
    """A mask of (steps,)."""
    seed: int

    def measure(self, predictions: _Predictions, unit: str, guesses: int) -> dict[str, Measured]:
        """The figures over draws of tasks or groups; nothing where no step is chosen."""
        judged = predictions.judged.choose(self.chosen)
        if not judged.steps:
            return {}
        resamples = Resamples(list_units(judged.steps, unit), self.seed)
        return measure_figures(judged, resamples, guesses, classes=self.name != "eligible")

    def score(self, predictions: _Predictions) -> list[ScoreRow]:
        """The figures with their intervals over groups."""
        return make_score_rows(self.name, self.measure(predictions, "group", predictions.most))


def _calibrate(natural: JudgedSteps, target: str) -> list[Calibration] | None:
    found = [measure_calibration(natural.confidence, natural.is_right("type_accuracy"), "type")]
    if target == "call":
        found.append(measure_calibration(natural.confidence, natural.right, "call"))
    return [each for each in found if each is not None] or None


def _compare(own: _Predictions, other: _Predictions, slices: Sequence[_Slice]) -> Comparison:
    """The differences of all figures that both have, on the same draws of tasks."""
    most = min(own.most, other.most)
    differences: list[Difference] = []
    for each in slices:
        ours, theirs = (each.measure(predictions, "task", most) for predictions in (own, other))
        for metric, (values, n) in ours.items():
            difference = values - theirs[metric].values
            low, high = find_interval(difference) or (difference[0], difference[0])
            value, low, high = (round(float(number), 4) for number in (difference[0], low, high))
            differences.append(Difference(slice=each.name, metric=metric, value=value, low=low, high=high, n=n))
    return Comparison(
        other=other.file.path,
        predictor=other.file.predictor,
        tasks=len({step.task for step in own.judged.steps}),
        missing=len(other.judged.steps) - len(other.guesses),
        without_first=_count_without_first(other.guesses),
        scores=[row for each in slices for row in each.score(other)],
        differences=differences,
    )
