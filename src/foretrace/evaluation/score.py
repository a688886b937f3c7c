"""Score predictions of next actions against the `eval` rows of a dataset, with bootstrap intervals by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from foretrace.core.errors import PredictionError
from foretrace.core.places import make_local_path
from foretrace.core.predictions import Prediction, PredictionsFile, PredictionsHeader, digest_dataset, read_predictions
from foretrace.core.references import FILE, FOLDER, Reference, References, ScoreRow, read_references
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.confidences import measure_calibration, measure_cascade, measure_verifier
from foretrace.evaluation.dataset_rows import ACTIONS, GoldStep, check_fit, read_gold_steps, read_target
from foretrace.evaluation.figures import (
    JudgedSteps,
    Measured,
    is_eligible,
    judge_guesses,
    measure_figures,
    measure_parts,
    round_estimate,
)
from foretrace.evaluation.savings import check_number, choose_safe_effects
from foretrace.evaluation.score_report import CascadeRow, Comparison, ScoreReport


class _Gold(NamedTuple):
    """The steps of a dataset that predictions are scored on."""

    dataset: Path
    target: str
    kind: Literal["eval", "validation"]
    steps: list[GoldStep]

    @classmethod
    def read(cls, dataset: Path, kind: Literal["eval", "validation"]) -> _Gold:
        target = read_target(dataset)
        return cls(dataset, target, kind, read_gold_steps(dataset, target, kind))


class _Predictions(NamedTuple):
    """A file of predictions that fits the dataset."""

    file: PredictionsFile
    guesses: dict[tuple[str, int], list[Prediction]]
    judged: JudgedSteps
    unknown: int
    most: int


class _Slice(NamedTuple):
    """A selection of steps: in their natural distribution, equally many of each class (`balanced`), or natural steps
    whose calls may run early (`eligible`)."""

    name: str
    chosen: Any
    """A mask of (steps,)."""
    seed: int

    def measure(self, predictions: _Predictions, unit: Literal["task", "group"], guesses: int) -> dict[str, Measured]:
        judged = predictions.judged.choose(self.chosen)
        if not judged.steps:
            return {}
        resamples = Resamples([getattr(step, unit) for step in judged.steps], self.seed)
        return measure_figures(judged, resamples, guesses, classes=self.name != "eligible")

    def score(self, predictions: _Predictions) -> list[ScoreRow]:
        figures = self.measure(predictions, "group", predictions.most)
        return [ScoreRow(self.name, metric, *round_estimate(values), n) for metric, (values, n) in figures.items()]


def score(
    predictions: str | Path,
    dataset: str | Path,
    *,
    against: str | Path | None = None,
    validation: str | Path | None = None,
    allow: Sequence[str] = (),
    cascade: float | None = None,
    seed: int = 0,
    allow_partial: bool = False,
    allow_other_version: bool = False,
) -> ScoreReport:
    """Score a file of predictions on the eval rows of a dataset (docs/speculation.md).

    Args:
        predictions: JSON lines or Parquet with `key` and `step` of an eval row, and the guess (docs/speculation.md);
            or a folder of such files.
        dataset: What `foretrace build` wrote.
        against: Other predictions: by how much are these better?
        validation: Scored predictions for validation rows, to choose a verifier's thresholds on; else half of the test
            groups serves for that.
        allow: Effects that are safe to run early besides pure_read: sandbox_exec; may be repeated.
        cascade: Cost of a guess relative to one step of the large model, e.g. 0.05: measure a cascade, which takes the
            guesses that are confident enough and asks the large model otherwise.
        seed: Seed of the bootstrap.
        allow_partial: Score even if most predictions are for rows that the dataset lacks.
        allow_other_version: Score even if the file names another version of the dataset.

    Raises:
        UsageError: a setting is invalid.
        PredictionError: no eval rows, or predictions that cannot be read or are for other rows.
    """
    safe = choose_safe_effects(allow)
    check_number("seed", seed)
    check_number("cascade", cascade)
    gold = _Gold.read(make_local_path(dataset), "eval")
    allowed = {"allow_partial": allow_partial, "allow_other_version": allow_other_version}
    own = _read(predictions, gold, **allowed)
    own.file.check_not_empty()
    other = None if against is None else _read(against, gold, **allowed)
    tuned = None if validation is None else _read(validation, _Gold.read(gold.dataset, "validation"), **allowed)
    if tuned is not None and all(row.score is None for row in tuned.file.rows):
        raise PredictionError(f"{validation}: has no scores to choose a threshold on; let a verifier score it first")
    natural, balanced = (np.array([name in step.slices for step in gold.steps]) for name in ("natural", "balanced"))
    eligible = natural & np.array([is_eligible(step, safe) for step in gold.steps])
    masks = {"natural": natural, "balanced": balanced, "eligible": eligible}
    slices = [_Slice(name, mask, seed) for name, mask in masks.items()]
    judged = own.judged.choose(natural)
    resamples = Resamples([step.group for step in judged.steps], seed)
    calibration = [measure_calibration(judged.confidence, judged.is_right("type_accuracy"), "type")]
    if gold.target == "call":
        calibration.append(measure_calibration(judged.confidence, judged.is_right(), "guess"))
    readable = sum(any(guess.action in ACTIONS for guess in guesses) for guesses in own.guesses.values())
    scores = [row for each in slices for row in each.score(own)]
    references, left_out = _find_references(gold, safe)
    references = [each for each in references if not _is_same(each, own.file.predictor, scores)]
    header = own.file.header or PredictionsHeader(target=gold.target)
    tuned_on = None if tuned is None else tuned.judged
    return ScoreReport(
        predictor=own.file.predictor,
        predicted=header.target,
        target=gold.target,
        scores=scores,
        rows=len(gold.steps),
        missing=len(gold.steps) - len(own.guesses),
        unreadable=len(own.guesses) - readable,
        unknown=own.unknown,
        problems=own.file.problems,
        guesses=own.most,
        tasks=len({step.task for step in gold.steps}),
        groups=len({step.group for step in gold.steps}),
        allow=sorted(safe),
        eligible=int(eligible.sum()),
        by_action=measure_parts(judged, resamples, lambda step: step.action),
        by_tool=measure_parts(judged, resamples, lambda step: step.tool),
        by_source=measure_parts(judged, resamples, lambda step: step.source),
        calibration=[each for each in calibration if each is not None] or None,
        verifier=measure_verifier(judged, own.guesses, gold.target, header.verifier, tuned_on, seed),
        against=None if other is None else _compare(own, other, slices),
        references=references,
        references_left_out=left_out,
        cascade=[] if cascade is None else _list_cascades(own, gold, natural, resamples, references, cascade),
        latency_s=header.latency_s,
        seed=seed,
    )


def _read(path: str | Path, gold: _Gold, **allowed: bool) -> _Predictions:
    file = read_predictions(path)
    header = file.header or PredictionsHeader(config="eval" if gold.kind == "eval" else "proposer")
    wanted = "eval" if gold.kind == "eval" else "proposer"
    if header.config != wanted:
        what = f"predicts rows of the config {header.config}; rows of {wanted} are wanted here"
        raise PredictionError(f"{file.path}: {what}")
    by_step, places = file.by_step(), {step[:2] for step in gold.steps}
    unknown = check_fit(file.path, header.dataset, gold.dataset, by_step, places, f"{gold.kind} rows", **allowed)
    guesses = {at: found for at, found in by_step.items() if at in places}
    most = max((guess.rank for found in guesses.values() for guess in found), default=1)
    return _Predictions(file, guesses, judge_guesses(gold.steps, guesses, gold.target), unknown, most)


def _compare(own: _Predictions, other: _Predictions, slices: Sequence[_Slice]) -> Comparison:
    most = min(own.most, other.most)
    differences: list[ScoreRow] = []
    for each in slices:
        ours, theirs = (each.measure(predictions, "task", most) for predictions in (own, other))
        for metric, (values, n) in ours.items():
            differences.append(ScoreRow(each.name, metric, *round_estimate(values - theirs[metric].values), n))
    return Comparison(
        other=other.file.path,
        predictor=other.file.predictor,
        tasks=len({step.task for step in own.judged.steps}),
        missing=len(other.judged.steps) - len(other.guesses),
        scores=[row for each in slices for row in each.score(other)],
        differences=differences,
    )


def _list_cascades(
    own: _Predictions, gold: _Gold, natural: Any, resamples: Resamples, references: Sequence[Reference], cost: float
) -> list[CascadeRow]:
    found = [(own.file.predictor or Path(own.file.path).name, own, cost)]
    for each in references:
        path = gold.dataset / each.predictions
        if path.is_file():  # a pushed dataset only has their figures
            found.append((f"{each.predictor} (reference)", _read(path, gold), 0.0))
    return [
        row
        for name, predictions, of_guess in found
        for row in measure_cascade(predictions.judged.choose(natural), resamples, name=name, cost=of_guess)
    ]


def score_references(dataset: Path) -> References:
    """Score all predictions in the dataset's folder `references`. Each is named after its predictor, or after its file
    if it names no predictor or the same one as another file."""
    paths = sorted((dataset / FOLDER).glob("*.jsonl"))
    if not paths:
        raise PredictionError(f"{dataset / FOLDER}: holds no predictions (NAME.jsonl)")
    reports = {path: score(path, dataset) for path in paths}
    named = Counter(report.predictor for report in reports.values() if report.predictor)
    return References(
        dataset=digest_dataset(dataset),
        allow=next(iter(reports.values())).allow,
        predictors=[
            Reference(
                predictor=report.predictor if named[report.predictor] == 1 else path.stem,
                predictions=f"{FOLDER}/{path.name}",
                scores=report.scores,
            )
            for path, report in reports.items()
        ],
    )


def _is_same(reference: Reference, predictor: str, scores: Sequence[ScoreRow]) -> bool:
    """Whether a reference is the scored predictor itself, so that it need not be shown twice."""
    own = {(row.slice, row.metric, row.value) for row in scores}
    return reference.predictor == predictor and all((r.slice, r.metric, r.value) in own for r in reference.scores)


def _find_references(gold: _Gold, safe: Collection[str]) -> tuple[list[Reference], str | None]:
    """The comparable figures of the dataset's references, and the reason if existing ones are left out."""
    found = read_references(gold.dataset)
    if found is None:
        return [], None
    if found.dataset != digest_dataset(gold.dataset):
        return [], f"{gold.dataset / FILE} is of another version of the dataset"
    if {*found.allow} == {*map(str, safe)}:
        return found.predictors, None
    # With other calls safe to run early, the eligible slice is a different one.
    return [
        msgspec.structs.replace(each, scores=[row for row in each.scores if row.slice != "eligible"])
        for each in found.predictors
    ], None
