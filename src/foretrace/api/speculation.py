"""Live speculation out of names: who guesses at the calls of a run, and where they run early."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.core.completion import ChatMessage, Request, Sampling
from foretrace.core.errors import Setting, UsageError
from foretrace.core.message_columns import ChatText
from foretrace.core.predictions import PredictedCall, Prediction, read_guess, read_predictions
from foretrace.episodes.speculation import (
    NextTests,
    Proposer,
    RecordedGuesses,
    Situation,
    Speculation,
    SpeculationSettings,
)

if TYPE_CHECKING:
    from foretrace.dataset.prompts import PromptRenderer
    from foretrace.evaluation.predictors.base import Predictor
    from foretrace.models.base import ChatModel
    from foretrace.sandbox.base import Sandbox, SandboxSettings

_MAX_ANSWER = 512
"""Tokens of one answer of a model that guesses."""


class PredictorGuesses:
    """Guesses of a predictor that has learnt, at prompts as its dataset has them."""

    def __init__(self, name: str, predictor: Predictor, renderer: PromptRenderer) -> None:
        self.name, self._predictor, self._renderer = name, predictor, renderer
        self._thread = ThreadPoolExecutor(1, "guessing")  # beside the event loop; a predictor need not be thread-safe

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        """See `Proposer.propose`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guess, situation, k)

    def _guess(self, situation: Situation, k: int) -> list[Prediction]:
        from foretrace.evaluation.predict import check_guesses

        prompt = [ChatText(**each) for each in self._renderer.render(situation.messages, situation.tools)]
        found: list[Prediction] = []
        for rank, guess in enumerate(check_guesses(self._predictor.predict(prompt, k), k), 1):
            arguments = guess.arguments
            text = arguments if isinstance(arguments, str) else msgspec.json.encode(dict(arguments)).decode()
            calls = (PredictedCall(guess.tool, text),) if guess.tool else ()
            found.append(_make_prediction(situation, rank, guess.action, calls, confidence=guess.confidence))
        return found


class ModelGuesses:
    """One guess of a model, at prompts as the dataset that it was trained on has them."""

    def __init__(self, model: ChatModel, renderer: PromptRenderer) -> None:
        self.name, self.model, self._renderer = model.spec, model, renderer

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        """See `Proposer.propose`."""
        rendered: list[Any] = self._renderer.render(situation.messages, situation.tools)
        messages = tuple(ChatMessage(**each) for each in rendered)
        sampling = Sampling(temperature=0.0, max_tokens=_MAX_ANSWER, seed=0)
        reply = await self.model.complete(Request(messages=messages, sampling=sampling, logprobs=False))
        action, calls = read_guess({}, reply.text)
        tokens = None if reply.usage is None else reply.usage.completion_tokens
        return [_make_prediction(situation, 1, action, calls, completion=reply.text, tokens=tokens)]


def _make_prediction(
    situation: Situation, rank: int, action: str | None, calls: tuple[PredictedCall, ...], **more: Any
) -> Prediction:
    return Prediction(key=situation.key, step=len(situation.messages), rank=rank, action=action, calls=calls, **more)


def make_speculation(
    given: Mapping[str, Any], sandbox: Sandbox, sandbox_settings: SandboxSettings
) -> tuple[Speculation, list[Sandbox | ChatModel]]:
    """The speculation that the arguments of `generate` ask for, and what is to be closed after it.

    Args:
        sandbox: Where early programs run if it was given as an object; for a named one, another is made.

    Raises:
        UsageError: nothing of that name guesses, or a setting that cannot be served.
        PredictionError: the file of predictions, or the dataset, cannot be read.
    """
    from foretrace.registry import make_sandbox

    names = SpeculationSettings.__struct_fields__
    chosen = {name: given[f"speculate_{name}"] for name in names if given[f"speculate_{name}"] is not None}
    settings = SpeculationSettings(**chosen)
    settings.check()
    proposer = make_proposer(given)
    made: list[Sandbox | ChatModel] = [proposer.model] if isinstance(proposer, ModelGuesses) else []
    if isinstance(given["sandbox"], str):
        own = msgspec.structs.replace(sandbox_settings, workers=settings.width, max_sessions=1)
        made.append(sandbox := make_sandbox(given["sandbox"], own))
    return Speculation(proposer, sandbox, settings), made


def make_proposer(given: Mapping[str, Any]) -> Proposer:
    """What guesses: `tests`, predictions that were recorded, a predictor or a model.

    Raises:
        UsageError: there is no such, or it needs a dataset.
        PredictionError: the predictions or the dataset cannot be read.
    """
    name, dataset = given["speculate"], given["speculate_dataset"]
    if name == NextTests.name:
        return NextTests()
    if (path := Path(name)).exists():
        rows: dict[tuple[str, int], list[Prediction]] = {}
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            rows |= read_predictions(file).by_step()
        return RecordedGuesses(path.name, rows)
    if dataset is None:
        what = " learns from a dataset, whose prompts it is asked with: name one with "
        end = (", or give tests, or a file of predictions",)
        raise UsageError(Setting("speculate", name), what, Setting("speculate_dataset"), *end)
    return _make_learnt(name, Path(dataset), given["speculate_url"])


def _make_learnt(name: str, dataset: Path, url: str | None) -> Proposer:
    from foretrace.core.plugins import plugin_names
    from foretrace.dataset.prompts import PromptRenderer
    from foretrace.evaluation.dataset_rows import read_rows
    from foretrace.models.base import Server
    from foretrace.registry import make_model, make_predictor

    renderer = PromptRenderer(dataset)
    if name.partition(":")[0] in plugin_names("model"):
        return ModelGuesses(make_model(name, None if url is None else Server(base_url=url)), renderer)
    predictor = make_predictor(name)
    predictor.fit(read_rows(dataset, "proposer", "train"))
    return PredictorGuesses(name, predictor, renderer)
