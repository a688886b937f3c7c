"""Several model servers side by side: each rollout goes to the one that has least to do."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from foretrace.envs.rollouts import Lane


@dataclass
class _Place:
    lane: Lane
    slots: int
    running: int = 0
    given: int = 0


class Lanes:
    """The lanes to all model servers.

    Args:
        lanes: each with the requests that its server takes at one time.
    """

    def __init__(self, lanes: Iterable[tuple[Lane, int]]) -> None:
        self._places = [_Place(lane, slots) for lane, slots in lanes]

    @property
    def spec(self) -> str:
        """What the first server is called."""
        return self._places[0].lane.spec

    def limit(self, most: int) -> None:
        """Let no sequence have more ids than that."""
        for place in self._places:
            place.lane.most = most

    @contextmanager
    def taken(self) -> Generator[Lane]:
        """The lane for one rollout, until its end: the one with the fewest rollouts for its slots; where several have
        as few, the one that was given the fewest so far."""
        place = min(self._places, key=lambda place: (place.running / place.slots, place.given / place.slots))
        place.running += 1
        place.given += 1
        try:
            yield place.lane
        finally:
            place.running -= 1
