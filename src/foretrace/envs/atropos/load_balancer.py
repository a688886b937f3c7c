"""Several model servers side by side: each rollout goes to the one that has least to do."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from foretrace.envs.rollout_model import RolloutModel


@dataclass
class _Load:
    """A server, and what it has to do."""

    model: RolloutModel
    slots: int
    running: int = 0
    """Rollouts that it serves now."""
    total: int = 0
    """Rollouts that it was given so far."""


class LoadBalancer:
    """Spreads rollouts over model servers.

    Args:
        models: each with the requests that its server takes at one time.
    """

    def __init__(self, models: Iterable[tuple[RolloutModel, int]]) -> None:
        self._loads = [_Load(model, slots) for model, slots in models]

    @property
    def spec(self) -> str:
        """What the first server is called."""
        return self._loads[0].model.spec

    def limit_sequences(self, max_tokens: int) -> None:
        """Let no sequence have more ids than that, whichever server it is sampled by."""
        for load in self._loads:
            load.model.max_sequence_tokens = max_tokens

    @contextmanager
    def choose(self) -> Generator[RolloutModel]:
        """The server for one rollout, until its end: the one with the fewest rollouts for its slots; where several have
        as few, the one that was given the fewest so far."""
        load = min(self._loads, key=lambda load: (load.running / load.slots, load.total / load.slots))
        load.running += 1
        load.total += 1
        try:
            yield load.model
        finally:
            load.running -= 1
