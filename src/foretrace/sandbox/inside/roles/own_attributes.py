"""Attributes of an object of the tests', as the code finds them in its `__dict__`: descriptors keep values there."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from foretrace.sandbox.inside.roles.objects_of_tests import may_be_changed


class TestAttributes(MutableMapping[str, Any]):
    """The public attributes, and those that the code itself has set.

    Args:
        target: the object.
        own: the private ones that the code has set, by the object's id.
    """

    __test__ = False

    def __init__(self, target: Any, own: set[tuple[int, str]]) -> None:
        self._target, self._own = target, own

    def _may_read(self, name: Any) -> bool:
        return type(name) is str and (not name.startswith("_") or (id(self._target), name) in self._own)

    def __getitem__(self, name: str) -> Any:
        if not self._may_read(name):
            raise KeyError(name)
        return vars(self._target)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if type(name) is not str or (name in vars(self._target) and not self._may_read(name)):
            raise KeyError(name)
        if not may_be_changed(self._target, name, value):
            raise KeyError(name)
        self._own.add((id(self._target), name))
        vars(self._target)[name] = value

    def __delitem__(self, name: str) -> None:
        if not self._may_read(name) or not may_be_changed(self._target, name):
            raise KeyError(name)
        del vars(self._target)[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in vars(self._target) if self._may_read(name)])

    def __len__(self) -> int:
        return sum(1 for _ in self)
