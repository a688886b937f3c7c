"""Let a predictor guess the steps of a dataset, and write its guesses to a file of predictions."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from foretrace.core.digest import digest
from foretrace.core.errors import PredictionError, Setting, UsageError, find_first_line
from foretrace.core.predictions import (
    PredictedCall,
    Prediction,
    PredictionId,
    PredictionsHeader,
    digest_dataset,
    read_origin,
    write_predictions,
)
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.report import Report
from foretrace.core.version import __version__
from foretrace.evaluation.dataset_rows import ACTIONS, PLACES, DatasetRow, RowKind, read_rows_of_kind, read_target
from foretrace.evaluation.predictors.base import Guess, Predictor
from foretrace.evaluation.savings import check_number

FOLDS = 5
"""Default number of folds of the train rows."""
_GUESSES: Any = list[tuple[Literal[tuple(ACTIONS)], str | None, dict[str, Any] | str, Any]]
"""The shape of what a predictor returns."""


class PredictSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows are predicted, and how."""

    rows: RowKind = "eval"
    """`eval` and `validation` rows are predicted after learning from all train rows; train rows (`proposer`), each
    after learning from other groups."""
    k: int = 5
    limit: int | None = None
    seed: int = 0
    """Assigns groups to folds, and seeds the samples of a model."""
    folds: int | None = None
    """Folds of the train rows, by group: each is predicted after learning from the others. None is `FOLDS`."""
    times: bool = True
    """Write how long each step took. Without times, the same rows give the same bytes."""

    def check(self) -> None:
        for name in ("k", "limit"):
            check_number(name, getattr(self, name), lowest=1)
        if self.folds is not None and self.rows != "proposer":
            what = f" is for train rows, and {self.rows} rows are predicted by what all of them taught; leave it out"
            raise UsageError(Setting("folds", self.folds), what)
        check_number("folds", self.folds, lowest=2)


class PredictReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """Counts and times of the predictions."""

    predictor: str
    config: str
    split: str
    out: str
    learned_rows: int
    """Train rows that were learned from."""
    steps: int
    guesses: int
    faults: dict[str, int]
    """Faults by kind, as in the header."""
    example: str | None
    fit_s: float
    latency_s: dict[str, float]
    """Seconds per step: `p50`, `p95`, `mean`."""
    requests: int = 0
    """Completions of a model in this run, without those of an interrupted run that it continues."""
    completion_tokens: int = 0
    lost_samples: dict[str, int] = {}
    """Samples of a model that gave no guess, in rows that have one: `failed`, or `no_action`. Each of them lowers a
    confidence that is a share of the samples."""


class BadGuessError(ValueError):
    """What a predictor returned is not a list of guesses."""


class Guessed:
    """The guesses of all rows, and the faults."""

    def __init__(self) -> None:
        self.rows: list[Prediction] = []
        self.seconds: list[float] = []
        self.faults: Counter[str] = Counter()
        self.example: str | None = None

    def count(self, fault: str, row: DatasetRow, example: str) -> None:
        self.faults[fault] += 1
        self.example = self.example or f"{row.key} step {row.step}: {example}"


def predict(
    dataset: Path,
    name: str,
    make: Callable[[], Predictor],
    out: Path,
    settings: PredictSettings,
    progress: ProgressFunc = ignore_progress,
) -> PredictReport:
    """Fit predictors (from `make`, one for each fold) on the train rows, and write their guesses.

    Raises:
        UsageError: a setting is invalid.
        PredictionError: there is no dataset or no row, or the predictor fails to learn or fails on every row.
        StoreError: `out` cannot be written.
    """
    from threadpoolctl import threadpool_limits

    settings.check()
    header = start_header(dataset, name, settings)
    asked = read_rows_of_kind(dataset, settings.rows)[: settings.limit]
    train = read_rows_of_kind(dataset, "proposer")
    fold_of = _assign_folds(dataset, train, settings) if settings.rows == "proposer" else {}
    guessed, fit_s, done, learned_rows, guesses_types = Guessed(), 0.0, 0, set[int](), False
    for fold in sorted({fold_of.get(row.group, 0) for row in asked}):
        learned = [row for row in train if not fold_of or fold_of[row.group] != fold]
        learned_rows.update(map(id, learned))
        predictor = make()
        progress(f"{name} learns from {len(learned):,} rows", 0, None)
        fit_s += fit(predictor, name, learned)
        guesses_types = getattr(predictor, "target", "call") == "type"
        with threadpool_limits(1):  # after the fit, which loads the libraries to limit
            for row in asked:
                if fold_of.get(row.group, 0) == fold:
                    _ask(predictor, row, settings, guessed)
                    done += 1
                    progress(f"predicting with {name}", done, len(asked))
    order = {(row.key, row.step): place for place, row in enumerate(asked)}
    guessed.rows.sort(key=lambda row: (order[row.key, row.step], row.rank))
    header = msgspec.structs.replace(
        header,
        target="type" if guesses_types else header.target,
        steps=len(asked),
        settings={"folds": len({*fold_of.values()})} if fold_of else {},
    )
    return write_guesses(out, header, guessed, times=settings.times, learned_rows=len(learned_rows), fit_s=fit_s)


def _assign_folds(dataset: Path, train: Sequence[DatasetRow], settings: PredictSettings) -> dict[str, int]:
    groups = sorted({row.group for row in train}, key=lambda group: digest("folds", str(settings.seed), group))
    if len(groups) < 2:
        raise PredictionError(f"{dataset}: its train rows are of one group; there is no other one to learn from")
    count = min(settings.folds or FOLDS, len(groups))
    return {group: place % count for place, group in enumerate(groups)}


def fit(predictor: Predictor, name: str, rows: Sequence[DatasetRow]) -> float:
    """Let a predictor learn; returns the seconds that it took. Raises a PredictionError if it fails."""
    started = time.perf_counter()
    try:
        predictor.fit(rows)
    except (Exception, SystemExit) as error:  # a user's own class may fail in any way
        raise PredictionError(f"{name}: cannot learn from {len(rows):,} rows: {_name_error(error)}") from error
    return time.perf_counter() - started


def _ask(predictor: Predictor, row: DatasetRow, settings: PredictSettings, guessed: Guessed) -> None:
    started = time.perf_counter()
    try:
        given = predictor.predict(row.prompt, settings.k)
        seconds = time.perf_counter() - started
        guesses = check_guesses(given, settings.k)
    except BadGuessError as error:
        guessed.count("bad_guess", row, str(error))
        return
    except (Exception, SystemExit) as error:  # a user's own class may fail in any way
        guessed.count("raised", row, _name_error(error))
        return
    guessed.seconds.append(seconds)
    if not guesses:
        guessed.count("no_guess", row, "an empty list")
    guessed.rows.extend(make_predictions(row, guesses, round(seconds, 6) if settings.times else None))


def _name_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {find_first_line(error)}"


def start_header(dataset: Path, name: str, settings: PredictSettings) -> PredictionsHeader:
    config, split = PLACES[settings.rows]
    return PredictionsHeader(
        predictor=name,
        dataset=digest_dataset(dataset),
        built_from=read_origin(dataset),
        config=config,
        split=split,
        target=read_target(dataset),
        k=settings.k,
        seed=settings.seed,
        versions={"foretrace": __version__} | {each: version(each) for each in ("numpy", "scikit-learn")},
    )


def write_guesses(
    out: Path, header: PredictionsHeader, guessed: Guessed, *, times: bool, learned_rows: int = 0, fit_s: float = 0.0
) -> PredictReport:
    """Write the file of predictions, and report on it; raises a PredictionError if no row has a guess."""
    if header.steps == guessed.faults.total():
        what = f"gave no guess at any of {header.steps:,} rows, e.g. {guessed.example}"
        raise PredictionError(f"{header.predictor}: {what}")
    latency, faults = summarize_latency(guessed.seconds), dict(sorted(guessed.faults.items()))
    header = msgspec.structs.replace(header, faults=faults, latency_s=latency if times else {})
    write_predictions(out, header, guessed.rows)
    return PredictReport(
        predictor=header.predictor,
        config=header.config,
        split=header.split,
        out=str(out),
        learned_rows=learned_rows,
        steps=header.steps,
        guesses=len(guessed.rows),
        faults=faults,
        example=guessed.example,
        fit_s=round(fit_s, 3),
        latency_s=latency,
    )


def summarize_latency(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and mean, in seconds; empty if nothing was measured."""
    if not seconds:
        return {}
    values = {"p50": np.quantile(seconds, 0.5), "p95": np.quantile(seconds, 0.95), "mean": np.mean(seconds)}
    return {name: round(float(value), 6) for name, value in values.items()}


def make_predictions(
    row: DatasetRow | PredictionId, guesses: Sequence[Guess], seconds: float | None
) -> Iterator[Prediction]:
    for rank, guess in enumerate(guesses, 1):
        arguments = guess.arguments if isinstance(guess.arguments, str) else json.dumps(dict(guess.arguments))
        yield Prediction(
            key=row.key,
            step=row.step,
            rank=rank,
            action=guess.action,
            calls=(PredictedCall(guess.tool, arguments),) if guess.tool else (),
            confidence=None if guess.confidence is None else round(guess.confidence, 6),
            seconds=seconds,
        )


def check_guesses(given: Any, k: int) -> list[Guess]:
    """A predictor's return value as guesses, without repetitions and at most `k`.

    Raises:
        BadGuessError: it is not a list of (action, tool, arguments, confidence); says what is wrong.
    """
    guesses: dict[tuple[str, str, str], Guess] = {}
    try:
        for action, tool, arguments, confidence in msgspec.convert(given, _GUESSES):
            value = json.loads(arguments) if isinstance(arguments, str) else arguments
            text = json.dumps(value, allow_nan=False, sort_keys=True)
            f"{tool}{arguments}".encode()  # fails for a lone surrogate, which no file can hold
            if isinstance(confidence, bool | str):
                raise ValueError(f"confidence {confidence!r} is not a number in [0, 1]")
            share = None if confidence is None else float(confidence)
            if not isinstance(value, dict):
                raise ValueError(f"arguments {text[:80]} are not a JSON object")
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"confidence {share!r} is not a number in [0, 1]")
            guesses.setdefault((action, tool or "", text), Guess(action, tool, arguments, share))
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        why = f"a list of guesses (action, tool, arguments, confidence) is wanted: {find_first_line(error)}"
        raise BadGuessError(why) from None
    return [*guesses.values()][:k]
