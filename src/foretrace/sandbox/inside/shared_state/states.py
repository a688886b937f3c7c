"""The kinds of state that two processes can share; each tells the other one with every message what has changed.

To add one, write a class with the members of `SharedState`, and name it in `_KINDS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from foretrace.sandbox.inside.shared_state.decimal_context import FinerDecimalContext, SharedDecimalContext
from foretrace.sandbox.inside.shared_state.environment import SharedEnvironment
from foretrace.sandbox.inside.shared_state.folder import SharedFolder
from foretrace.sandbox.inside.shared_state.log import SharedLog
from foretrace.sandbox.inside.shared_state.numpy_numbers import GivenNumpyRandom, SharedNumpyRandom
from foretrace.sandbox.inside.shared_state.random_numbers import GivenRandom, SharedRandom


class SharedState(Protocol):
    """One kind of state, of this process, as the other one was told of it."""

    def find_change(self) -> Any:
        """What the other side does not know yet, as JSON; None or empty where it knows all."""
        ...

    def apply(self, change: Any) -> None:
        """Take over what the other side found. It may be anything, and never raises."""
        ...


_KINDS: dict[str, Any] = {
    "files": SharedFolder,
    "random": SharedRandom,
    "seeds": SharedRandom,
    "numpy seeds": SharedNumpyRandom,
    "numpy": SharedNumpyRandom,
    "environment": SharedEnvironment,
    "log": SharedLog,
    "decimal": SharedDecimalContext,
}
_OF_TESTS: dict[str, Any] = {
    **_KINDS,
    "decimal": FinerDecimalContext,
    "random": GivenRandom,
    "numpy": GivenNumpyRandom,
}
SEEDED: dict[str, str] = {"random": "seeds", "numpy": "numpy seeds"}
"""What random numbers are called where the code may set those of the tests."""


class SharedStates:
    """The kinds of state that are shared in a conversation."""

    def __init__(self, names: Iterable[str] = (), *, of_tests: bool = False) -> None:
        kinds = _OF_TESTS if of_tests else _KINDS
        self._states: dict[str, SharedState] = {name: kinds[name]() for name in names}

    def find_changes(self) -> dict[str, Any]:
        """The change of each kind that has one."""
        found = {name: state.find_change() for name, state in self._states.items()}
        return {name: change for name, change in found.items() if change}

    def apply(self, changes: dict[str, Any]) -> None:
        """Take over what the other side found; other names in it are left alone."""
        for name, state in self._states.items():
            if name in changes:
                state.apply(changes[name])
