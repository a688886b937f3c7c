"""Make live speculation from names: the proposer that guesses the calls of a run, and where they run early."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.core.predictions import read_predictions
from foretrace.episodes.proposers import NextTests, Proposer, RecordedGuesses
from foretrace.episodes.speculation import Speculation
from foretrace.episodes.speculation_report import SpeculationSettings

if TYPE_CHECKING:
    from foretrace.sandbox.base import Sandbox, SandboxSettings

_MAX_ANSWER = 512
"""Most tokens of one answer of a model that guesses."""


def make_speculation(
    given: Mapping[str, Any], sandbox: Sandbox, sandbox_settings: SandboxSettings
) -> tuple[Speculation, list[Sandbox | Proposer]]:
    """The speculation that the arguments of `generate` ask for, and what to close after it.

    Args:
        sandbox: Where early programs run if it was given as an object; if it was given by name, another is made.

    Raises:
        UsageError: there is no such proposer, or a setting is invalid.
        PredictionError: the file of predictions or the dataset cannot be read.
    """
    from foretrace.registry import make_sandbox

    names = SpeculationSettings.__struct_fields__
    chosen = {name: given[f"speculate_{name}"] for name in names if given[f"speculate_{name}"] is not None}
    settings = SpeculationSettings(**chosen)
    settings.check()
    proposer = make_proposer(given)
    made: list[Sandbox | Proposer] = [proposer]
    if isinstance(given["sandbox"], str):
        own = msgspec.structs.replace(sandbox_settings, workers=settings.width, max_sessions=1)
        made.append(sandbox := make_sandbox(given["sandbox"], own))
    return Speculation(proposer, sandbox, settings), made


def make_proposer(given: Mapping[str, Any]) -> Proposer:
    """The proposer: `tests`, recorded predictions, a predictor or a model.

    Raises:
        UsageError: there is no such proposer, or it needs a dataset.
        PredictionError: the predictions or the dataset cannot be read.
    """
    from foretrace.api.guessers import make_guesser
    from foretrace.evaluation.predict_with_model import ModelSettings
    from foretrace.models.base import Server

    name, dataset = given["speculate"], given["speculate_dataset"]
    path = Path(name)
    if name == NextTests.name or path.exists():
        for unused in ("speculate_dataset", "speculate_url"):
            if given[unused] is not None:
                raise UsageError(
                    Setting(unused), " is for a predictor or a model, and not for ", Setting("speculate", name)
                )
    if name == NextTests.name:
        if given["speculate_threshold"] is not None:
            raise UsageError(
                Setting("speculate_threshold"), " needs a confidence, and ", Setting("speculate", name), " gives none"
            )
        return NextTests()
    if path.exists():
        return RecordedGuesses(path.name, read_predictions(path).by_step())
    if ":" not in name and (path.suffix or len(path.parts) > 1):
        raise UsageError(Setting("speculate", name), ": no such file or folder")
    if dataset is None:
        what = " learns from a dataset, whose prompts it is asked with: name one with "
        end = (", or give tests, or a file of predictions",)
        raise UsageError(Setting("speculate", name), what, Setting("speculate_dataset"), *end)
    url = given["speculate_url"]
    how = ModelSettings(samples=1, temperature=0.0, max_tokens=_MAX_ANSWER)
    server = None if url is None else Server(base_url=url)
    return make_guesser(name, Path(dataset), server=server, settings=how)
