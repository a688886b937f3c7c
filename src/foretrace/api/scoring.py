"""Measure what predictions and a verifier are worth, beside predictors that cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from foretrace.api.evaluation import predict
from foretrace.api.event_loop import run_with_model
from foretrace.core.errors import Setting, UsageError
from foretrace.core.places import make_local_path

if TYPE_CHECKING:
    from foretrace.core.progress import ProgressFunc
    from foretrace.core.references import References
    from foretrace.evaluation.pair_accuracy import PairReport
    from foretrace.evaluation.score_report import ScoreReport
    from foretrace.evaluation.verify import Asking, VerifyReport
    from foretrace.models.base import ChatModel, Server

    PredictReferences = Callable[[Path, Path, ProgressFunc], None]

REFERENCES = ("majority", "markov:1", "markov:2", "markov:3", "regression", "memory")
"""Predictors whose figures stand beside every score."""


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
        predictions: JSON lines with `key` and `step` of an eval row, and the guess (docs/speculation.md).
        dataset: What `foretrace build` wrote.
        against: Other predictions: by how much are these better?
        validation: Scored predictions for validation rows, to choose a verifier's thresholds on; else half of the test
            groups serves for that.
        allow: Also safe to run early, beside pure_read: sandbox_exec; may be repeated.
        cascade: Cost of a guess relative to one step of the large model, e.g. 0.05: measure a cascade, which takes the
            guesses that are sure enough and asks the large model otherwise.
        seed: Seed of the bootstrap.
        allow_partial: Score although most predictions are for rows that the dataset lacks.
        allow_other_version: Score although the file names another version of the dataset.

    Raises:
        UsageError: a setting that cannot be served.
        PredictionError: no eval rows, or predictions that cannot be read, or that are for other rows.
    """
    from foretrace.evaluation.score import score as run

    return run(
        make_local_path(predictions),
        make_local_path(dataset),
        against=None if against is None else make_local_path(against),
        validation=None if validation is None else make_local_path(validation),
        allow=allow,
        cascade=cascade,
        seed=seed,
        allow_partial=allow_partial,
        allow_other_version=allow_other_version,
    )


def add_references(
    dataset: str | Path, *, predict: PredictReferences | None = None, progress: ProgressFunc | None = None
) -> References:
    """Write what free predictors reach on a dataset into it: their predictions to `references/NAME.jsonl`, the figures
    to `references.json`, and a table into its card. `build(..., references=True)` does this.

    Args:
        predict: Writes the predictions, in place of the free predictors: called with the dataset, the folder
            `references` in it, and what shows progress. Files that are there already count too.

    Raises:
        PredictionError: predictions that cannot be made or scored.
    """
    from foretrace.core.files import replace_file
    from foretrace.core.progress import ignore_progress
    from foretrace.core.references import FOLDER, write_references
    from foretrace.dataset.card import put_references
    from foretrace.evaluation.score import score_references

    dataset = make_local_path(dataset)
    (predict or _predict_references)(dataset, dataset / FOLDER, progress or ignore_progress)
    references = score_references(dataset)
    write_references(dataset, references)
    card = dataset / "README.md"
    replace_file(card, put_references(card.read_text("utf-8"), references).encode())
    return references


def _predict_references(dataset: Path, folder: Path, progress: ProgressFunc) -> None:
    """Let the predictors that cost nothing predict the eval rows. Without times, so that the same dataset has the same
    bytes."""
    folder.mkdir(exist_ok=True)
    for predictor in REFERENCES:
        out = folder / f"{predictor.replace(':', '-')}.jsonl"
        predict(dataset, out=out, predictor=predictor, times=False, progress=progress)


def score_pairs(
    scores: str | Path,
    dataset: str | Path,
    *,
    seed: int = 0,
    allow_partial: bool = False,
    allow_other_version: bool = False,
) -> PairReport:
    """Measure how often a verifier prefers the right action, on the test pairs of a dataset (docs/speculation.md).

    Args:
        scores: JSON lines with `key`, `step`, `family` and `pair` of a `verifier` row, and the scores `chosen` and
            `rejected`; `verify_pairs` writes such a file.
        seed: Seed of the bootstrap over groups.
        allow_partial: Score although most of them are of pairs that the dataset does not have.
        allow_other_version: Score although the file names another version of the dataset.

    Raises:
        PredictionError: no test pairs, or scores that cannot be read or do not fit.
    """
    from foretrace.evaluation.pair_accuracy import score_pairs as run

    return run(scores, dataset, seed=seed, allow_partial=allow_partial, allow_other_version=allow_other_version)


def verify(
    predictions: str | Path,
    dataset: str | Path,
    *,
    out: str | Path,
    model: str | ChatModel | None = None,
    server: Server | None = None,
    scores: str | Path | None = None,
    concurrency: int = 8,
    max_tokens: int = 8,
    allow_other_version: bool = False,
    progress: ProgressFunc | None = None,
) -> VerifyReport:
    """Write predictions to the file `out` with a verifier's score of each; a call that was interrupted goes on.

    Args:
        out: File to write, JSON lines.
        model: Model that says yes or no, e.g. openai:NAME; the score is the probability of a yes.
        server: Where the model server is, for a model that is named.
        scores: Instead of a model, JSON lines with key, step, rank and score, such as of a reward model.
        concurrency: Requests at one time.
        max_tokens: Tokens of an answer; a model that thinks first needs more.
        allow_other_version: Verify although the file names another version of the dataset.

    Raises:
        UsageError: neither a model nor scores, or both, or a setting that cannot be served.
        PredictionError: predictions, scores or a dataset that cannot be read or do not fit.
        ModelError: the server cannot be reached or refuses for good; what was answered is kept.
    """
    from foretrace.evaluation.verify import add_scores, verify_predictions

    predictions, dataset, out = make_local_path(predictions), make_local_path(dataset), make_local_path(out)
    if model is None and server is not None:
        raise UsageError(Setting(server.list_settings_except()[0]), " is for ", Setting("model"))
    if (model is None) == (scores is None):
        raise UsageError("verify takes either ", Setting("model"), " or ", Setting("scores"))
    asking, allowed = _make_asking(concurrency, max_tokens), {"allow_other_version": allow_other_version}
    if scores is not None:
        report = add_scores(predictions, dataset, out, make_local_path(scores), **allowed)
    else:
        assert model is not None
        report = run_with_model(
            model,
            server,
            lambda asked: verify_predictions(predictions, dataset, out, asked, asking, **allowed, progress=progress),
        )
    return msgspec.structs.replace(report, dataset=str(dataset))


def verify_pairs(
    dataset: str | Path,
    *,
    out: str | Path,
    model: str | ChatModel,
    server: Server | None = None,
    concurrency: int = 8,
    max_tokens: int = 8,
    progress: ProgressFunc | None = None,
) -> VerifyReport:
    """Write a model's scores of both actions of each test pair to the file `out`, for `score_pairs`.

    Args and errors are those of `verify`.
    """
    from foretrace.evaluation.verify import verify_pairs as run

    dataset, out = make_local_path(dataset), make_local_path(out)
    asking = _make_asking(concurrency, max_tokens)
    report = run_with_model(model, server, lambda asked: run(dataset, out, asked, asking, progress=progress))
    return msgspec.structs.replace(report, dataset=str(dataset), what="pairs")


def _make_asking(concurrency: int, max_tokens: int) -> Asking:
    from foretrace.evaluation.checked_settings import check_number
    from foretrace.evaluation.verify import Asking

    check_number("concurrency", concurrency, lowest=1)
    check_number("max_tokens", max_tokens, lowest=1)
    return Asking(concurrency=concurrency, max_tokens=max_tokens)
