"""Guessers of a running agent's next action, by name, and the speculation of a run on what they guess."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.core.message_columns import ChatText
from foretrace.core.predictions import PredictionId
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.episodes.proposers import NextTests, Proposer, RecordedGuesses, Situation

if TYPE_CHECKING:
    from foretrace.core.predictions import Prediction
    from foretrace.dataset.prompts import PromptRenderer
    from foretrace.episodes.speculation import Speculation
    from foretrace.evaluation.predict_with_model import ModelSettings
    from foretrace.evaluation.predictors.base import Predictor
    from foretrace.models.base import ChatModel, Server
    from foretrace.sandbox.base import Sandbox, SandboxSettings

_MAX_ANSWER = 512
"""Most tokens of one answer of a model that guesses for a run."""


class PredictorGuesser(Proposer):
    """Asks a predictor in one thread next to the event loop, since the predictor may not be thread-safe."""

    def __init__(self, name: str, predictor: Predictor, renderer: PromptRenderer) -> None:
        self.name, self._predictor, self._renderer = name, predictor, renderer
        self._thread = ThreadPoolExecutor(1, "guessing")

    async def propose(self, situation: Situation, k: int) -> list[Prediction]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guess, situation, k)

    def _guess(self, situation: Situation, k: int) -> list[Prediction]:
        from foretrace.evaluation.predict import check_guesses, make_predictions

        given = self._predictor.predict(_render(self._renderer, situation), k)
        return [*make_predictions(_find_place(situation), check_guesses(given, k), None)]

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class ModelGuesser(Proposer):
    """Asks a model."""

    def __init__(self, model: ChatModel, renderer: PromptRenderer, settings: ModelSettings, seed: int) -> None:
        self.name, self.max_tokens, self._model, self._renderer = model.spec, settings.max_tokens, model, renderer
        self._settings, self._seed = settings, seed

    async def propose(self, situation: Situation, k: int) -> list[Prediction]:
        from foretrace.evaluation.predict_with_model import guess_with_model

        prompt, at = _render(self._renderer, situation), _find_place(situation)
        return (await guess_with_model(self._model, at, prompt, self._seed, self._settings))[:k]

    async def start(self) -> None:
        await self._model.probe()

    async def close(self) -> None:
        await self._model.close()


def _find_place(situation: Situation) -> PredictionId:
    return PredictionId(situation.key, len(situation.messages))


def _render(renderer: PromptRenderer, situation: Situation) -> list[ChatText]:
    return [ChatText(**message) for message in renderer.render(situation.messages, situation.tools)]


def make_guesser(
    predictor: str | Predictor,
    dataset: Path,
    *,
    server: Server | None = None,
    tokenizer: str | Path | None = None,
    settings: ModelSettings,
    seed: int = 0,
    progress: ProgressFunc = ignore_progress,
) -> Proposer:
    """The guesser with that name, or of that predictor, which is fitted here to the dataset. The dataset also
    determines the prompts; `settings` say how a model is asked, and `tokenizer` is the one that the dataset was built
    with."""
    from threadpoolctl import threadpool_limits

    from foretrace.core.plugins import plugin_names
    from foretrace.dataset.prompts import PromptRenderer
    from foretrace.evaluation.dataset_rows import read_rows_of_kind
    from foretrace.evaluation.predict import fit
    from foretrace.registry import make_model, make_predictor

    settings.check()
    renderer = PromptRenderer(dataset, tokenizer=tokenizer)
    if isinstance(predictor, str) and predictor.partition(":")[0] in plugin_names("model"):
        return ModelGuesser(make_model(predictor, server), renderer, settings, seed)
    if server is not None:
        raise UsageError(Setting(server.list_settings_except()[0]), " is for a model, and a predictor needs no server")
    name = predictor if isinstance(predictor, str) else type(predictor).__name__
    made = make_predictor(predictor) if isinstance(predictor, str) else predictor
    rows = read_rows_of_kind(dataset, "proposer")
    progress(f"{name} learns from {len(rows):,} rows", 0, None)
    fit(made, name, rows)
    threadpool_limits(1)  # after the fit, which loads the libraries to limit
    return PredictorGuesser(name, made, renderer)


def make_speculation(
    given: Mapping[str, Any], sandbox: Sandbox, sandbox_settings: SandboxSettings
) -> tuple[Speculation, list[Sandbox | Proposer]]:
    """The speculation that the arguments of `generate` ask for, and what to close after it. Early programs run in
    `sandbox` if it was given as an object, else in another one of its name."""
    from foretrace.episodes.speculation import Speculation
    from foretrace.episodes.speculation_report import SpeculationSettings
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
    """The proposer: `tests`, recorded predictions, a predictor or a model."""
    from foretrace.core.predictions import read_predictions
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
