"""Several model servers side by side: each rollout goes to the one that has least to do, and none to a dead one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from foretrace.envs.rollout_model import RolloutModel

_log = logging.getLogger("foretrace.envs")
_SERVER_KINDS = frozenset({"refused", "timeout", "server", "stream", "dns", "tls", "bad_reply"})
"""Kinds of failure that concern the server, and would meet the next rollout, too."""
_MAX_FAILURES = 2
"""Rollouts in a row that a server may fail before it gets no more for a while."""
_PAUSE_S, _MAX_PAUSE_S = 10.0, 300.0
"""First while, seconds; doubled each time that the one rollout fails by which the server is tried again."""


@dataclass
class _Load:
    """A server, and what it has to do."""

    model: RolloutModel
    slots: int
    running: int = 0
    """Rollouts that it serves now."""
    total: int = 0
    """Rollouts that it was given so far."""
    failures: int = 0
    """Rollouts in a row that it failed."""
    out_until: float = 0.0
    """Before this time it gets none."""

    def is_usable(self, now: float) -> bool:
        """Whether it gets a rollout: one at a time after a while without, until one succeeds."""
        return self.failures < _MAX_FAILURES or (now >= self.out_until and not self.running)


class LoadBalancer:
    """Spreads rollouts over model servers.

    Args:
        models: each with the requests that its server takes at one time.
        clock: seconds.
    """

    def __init__(self, models: Iterable[tuple[RolloutModel, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._loads = [_Load(model, slots) for model, slots in models]
        self._clock = clock

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
        as few, the one that was given the fewest so far.

        A server that failed its last rollouts is left out for a while, unless all are.
        """
        now = self._clock()
        usable = [load for load in self._loads if load.is_usable(now)] or self._loads
        load = min(usable, key=lambda load: (load.running / load.slots, load.total / load.slots))
        load.running += 1
        load.total += 1
        try:
            yield load.model
        finally:
            load.running -= 1

    def record_end(self, model: RolloutModel, error_kind: str | None) -> None:
        """Note how a rollout ended that was given to a server.

        Args:
            error_kind: of its failure; `None` where it did not fail.
        """
        load = next(load for load in self._loads if load.model is model)
        if error_kind not in _SERVER_KINDS:
            if load.failures >= _MAX_FAILURES:
                _log.warning("%s at %s answers again", model.spec, model.endpoint)
            load.failures = 0
            return
        now = self._clock()
        if now < load.out_until:  # it was under way when others failed
            return
        load.failures += 1
        if load.failures < _MAX_FAILURES:
            return
        pause_s = min(_PAUSE_S * 2 ** (load.failures - _MAX_FAILURES), _MAX_PAUSE_S)
        load.out_until = now + pause_s
        _log.warning("%s at %s fails (%s): not asked for %g s", model.spec, model.endpoint, error_kind, pause_s)
