"""One sequence of numpy's random numbers for the tests and the code, as for those of Python's."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

_WORDS = 624


def _find_generator() -> Any:
    """The module, which numpy itself imports when it is first used."""
    return importlib.import_module("numpy.random") if "numpy" in sys.modules else None


class SharedNumpyRandom:
    """The generator of `numpy.random` itself in this process, as the other one was told of it."""

    def __init__(self) -> None:
        self._known: Any = None

    def find_change(self) -> list[Any] | None:
        """Where the generator stands; None where the other side knows."""
        random = _find_generator()
        if random is None:
            return None
        kind, words, *rest = random.get_state()
        state = [kind, words.tolist(), *rest]
        if state == self._known:
            return None
        self._known = state
        return state if kind == "MT19937" else None

    def apply(self, state: Any) -> None:
        """Take over where the other side's stands."""
        random = _find_generator()
        if random is None or type(state) is not list or len(state) != 5 or state[0] != "MT19937":
            return
        _, words, place, has_gauss, gauss = state
        if type(words) is not list or len(words) != _WORDS or place not in range(_WORDS + 1):
            return
        if (
            type(has_gauss) is int
            and type(gauss) in (int, float)
            and all(type(word) is int and 0 <= word < 1 << 32 for word in words)
        ):
            random.set_state(("MT19937", words, place, has_gauss, gauss))
            self._known = state


class GivenNumpyRandom(SharedNumpyRandom):
    """That of the tests, which the other side does not move; see `GivenRandom`."""

    def __init__(self) -> None:
        super().__init__()
        with contextlib.suppress(ImportError):
            module: Any = importlib.import_module("numpy.random")
            module.seed, module.set_state = map(self._note, (module.seed, module.set_state))

    def _note(self, sets: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(sets)
        def note(*args: Any, **named: Any) -> Any:
            self._known = None  # the other side is told, be it set to where it stood before
            return sets(*args, **named)

        return note

    def apply(self, state: Any) -> None:
        """Leave it where it stands."""
