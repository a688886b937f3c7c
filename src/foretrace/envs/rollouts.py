"""Rollouts for a trainer: from a problem to a trace and the token ids to train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from foretrace.core.completion import Sampling
from foretrace.core.problem import Problem
from foretrace.core.trace import Trace
from foretrace.envs.rollout_model import RolloutModel, choose_model
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.envs.trace_sink import TraceSink
from foretrace.envs.train_sequence import TrainSequence, make_sequence
from foretrace.episodes.episode import Episode, make_view
from foretrace.episodes.identity import Identity, derive_seed, describe_sampling
from foretrace.episodes.rollout import rollout
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.base import InteractionProtocol
from foretrace.sandbox.base import Sandbox


class Rollout(NamedTuple):
    """One finished episode, for a trainer."""

    trace: Trace
    sequence: TrainSequence | None
    """`None` if the episode failed."""
    why_unusable: str = ""
    """Why it cannot be trained on (a failure's kind, `no_ids` or `mismatch`); empty if it can."""


def describe_failures(rollouts: Sequence[Rollout]) -> str:
    """Why some of these are unusable: the number for each reason, and the last error."""
    counts = Counter(one.why_unusable for one in rollouts if one.why_unusable)
    reasons = ", ".join(f"{number} x {reason}" for reason, number in counts.most_common())
    errors = [one.trace.outcome.error.message for one in rollouts if one.trace.outcome.error]
    return f"{reasons}; the last error: {errors[-1]}" if errors else reasons


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """Settings shared by all rollouts of a run."""

    protocol: InteractionProtocol
    episode: EpisodeSettings
    identity: Identity
    """The origin of the traces: name of the run, and versions."""
    seed: int = 0
    """Determines an attempt's seed, together with the problem and the sample's number."""
    keep_inexact: bool = False
    """Accept a rollout with inexact tokens, which are then not trained on; otherwise it is unusable."""
    tries: int = 1
    """Most tries of an episode that turns out unusable."""


class RolloutRunner:
    """Runs episodes with the same settings.

    Args:
        sandbox: a started sandbox.
        sink: where the traces are written.
    """

    def __init__(self, settings: RolloutSettings, sandbox: Sandbox, tokenizer: LocalTokenizer, sink: TraceSink) -> None:
        self._settings, self._sandbox, self._tokenizer, self._sink = settings, sandbox, tokenizer, sink

    def render_prompt(self, problem: Problem) -> list[int]:
        """Ids of the messages that begin an episode."""
        return self._tokenizer.apply_template(self._settings.protocol.opening(make_view(problem)))

    async def run(self, problem: Problem, models: Sequence[RolloutModel], sampling: Sampling) -> Rollout:
        """Run one episode to its end, and again if it is unusable. `choose_model` picks the model of each try. The
        traces of failed tries are stored too, with the error. What is raised would fail other rollouts too."""
        for left in reversed(range(self._settings.tries)):
            made = await self._run_once(problem, choose_model(models), sampling)
            if not (made.why_unusable and left):
                return made
        raise AssertionError("at least one try")

    async def _run_once(self, problem: Problem, model: RolloutModel, sampling: Sampling) -> Rollout:
        settings = self._settings
        identity = msgspec.structs.replace(
            settings.identity, model=model.spec, sampling=describe_sampling(sampling, model.model), seed=settings.seed
        )
        sample = self._sink.next_sample(self._make_episode(problem, identity).key)
        seed = derive_seed(settings.seed, problem, sample)
        identity = msgspec.structs.replace(identity, sample=sample, sampling={**identity.sampling, "seed": seed})
        model.running += 1
        try:
            trace = await rollout(
                self._make_episode(problem, identity), model, msgspec.structs.replace(sampling, seed=seed)
            )
        finally:
            model.running -= 1
        await self._sink.put(trace)
        if trace.outcome.error is not None:
            return Rollout(trace, None, trace.outcome.error.kind)
        sequence = make_sequence(trace, self._tokenizer.end_id, self._tokenizer.end_ids)
        if sequence is None:
            return Rollout(trace, None, "no_ids")
        inexact = sequence.inexact or not sequence.trained
        return Rollout(trace, sequence, "mismatch" if inexact and not settings.keep_inexact else "")

    def _make_episode(self, problem: Problem, identity: Identity) -> Episode:
        settings = self._settings
        return Episode(
            problem,
            settings.protocol,
            self._sandbox,
            settings=settings.episode,
            identity=identity,
            tokens=self._tokenizer,
        )
