"""Add verifier scores to predictions, and the results of free predictors to a dataset."""

from __future__ import annotations

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
    from foretrace.evaluation.verify import VerifyReport
    from foretrace.models.base import ChatModel, Server

REFERENCES = ("majority", "markov:1", "markov:2", "markov:3", "regression", "memory")
"""Predictors whose figures are shown next to every score."""


def add_references(dataset: str | Path, *, progress: ProgressFunc | None = None) -> References:
    """Add the results of free predictors to a dataset: their predictions to `references/NAME.jsonl`, the figures to
    `references.json`, and a table to its card. `build(..., references=True)` does this. Predictions of other
    predictors in that folder are included.

    Raises:
        PredictionError: predictions cannot be made or scored.
    """
    from foretrace.core.files import replace_file
    from foretrace.core.references import FOLDER, write_references
    from foretrace.dataset.card import put_references
    from foretrace.evaluation.score import score_references

    dataset = make_local_path(dataset)
    folder = dataset / FOLDER
    folder.mkdir(exist_ok=True)
    for predictor in REFERENCES:  # without times, so that the same dataset has the same bytes
        out = folder / f"{predictor.replace(':', '-')}.jsonl"
        predict(dataset, out=out, predictor=predictor, times=False, progress=progress)
    references = score_references(dataset)
    write_references(dataset, references)
    card = dataset / "README.md"
    replace_file(card, put_references(card.read_text("utf-8"), references).encode())
    return references


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
        out: File to write, NAME.jsonl.
        model: Model that says yes or no, e.g. openai:NAME; the score is the probability of a yes.
        server: Where the model server is, for a model that is named.
        scores: Instead of a model, JSON lines with key, step, rank and score, such as of a reward model.
        concurrency: Requests at one time.
        max_tokens: Tokens of an answer; a model that thinks first needs more.
        allow_other_version: Verify even if the file names another version of the dataset.

    Raises:
        UsageError: neither a model nor scores are given, or both, or a setting is invalid.
        PredictionError: the predictions, scores or dataset cannot be read or do not match.
        ModelError: the server cannot be reached or refuses permanently; answers so far are kept.
    """
    from foretrace.core.files import check_suffix
    from foretrace.evaluation.verify import Asking, add_scores, verify_predictions

    predictions, dataset, out = make_local_path(predictions), make_local_path(dataset), make_local_path(out)
    check_suffix(out, ".jsonl")
    if model is None and server is not None:
        raise UsageError(Setting(server.list_settings_except()[0]), " is for ", Setting("model"))
    if (model is None) == (scores is None):
        raise UsageError("verify takes either ", Setting("model"), " or ", Setting("scores"))
    asking = Asking(concurrency=concurrency, max_tokens=max_tokens)
    allowed = {"allow_other_version": allow_other_version}
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
    from foretrace.core.files import check_suffix
    from foretrace.evaluation.verify import Asking
    from foretrace.evaluation.verify import verify_pairs as run

    dataset, out = make_local_path(dataset), make_local_path(out)
    check_suffix(out, ".jsonl")
    asking = Asking(concurrency=concurrency, max_tokens=max_tokens)
    report = run_with_model(model, server, lambda asked: run(dataset, out, asked, asking, progress=progress))
    return msgspec.structs.replace(report, dataset=str(dataset), what="pairs")
