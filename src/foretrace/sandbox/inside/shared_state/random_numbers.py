"""One sequence of random numbers for the tests and the code: what one of them seeds or draws, the other sees."""

from __future__ import annotations

import sys
from typing import Any


class SharedRandom:
    """The module's own generator of this process, as the other one was told of it."""

    def __init__(self) -> None:
        self._random = sys.modules["random"]
        self._known: Any = None

    def find_change(self) -> list[Any] | None:
        """Where the generator stands; None where the other side knows."""
        state = self._random.getstate()
        if state == self._known:
            return None
        self._known = state
        version, words, gauss = state
        return [version, list(words), gauss]

    def apply(self, state: Any) -> None:
        """Take over where the other side's stands."""
        if isinstance(state, list) and len(state) == 3 and isinstance(state[1], list):
            try:
                self._random.setstate((state[0], tuple(state[1]), state[2]))
            except (ValueError, TypeError, OverflowError):
                return
            self._known = self._random.getstate()


class GivenRandom(SharedRandom):
    """That of the tests, which the other side does not move: who chooses what the tests draw chooses their cases. What
    the tests seed or draw, the other side takes over; what it draws itself is its own affair."""

    def __init__(self) -> None:
        super().__init__()
        self._is_set = False
        generator = self._random._inst
        kept = vars(generator)

        def note(_: Any, value: Any) -> None:
            self._is_set, kept["gauss_next"] = True, value

        # Both `seed` and `setstate` set this one, by whatever name the tests have them.
        noted = {"gauss_next": property(lambda _: kept["gauss_next"], note)}
        generator.__class__ = type("Random", (self._random.Random,), noted)

    def find_change(self) -> list[Any] | None:
        """Where the generator stands, if the tests have drawn from it or set it, be it to where it stood before."""
        if self._is_set:
            self._known, self._is_set = None, False
        return super().find_change()

    def apply(self, state: Any) -> None:
        """Leave it where it stands."""
