"""What a class of the other process has beside methods: properties, class methods, values, also found by `super()`."""

from __future__ import annotations

import types
from typing import Any

_MAX_ATTRIBUTES = 300
_own_dict: Any = type.__dict__["__dict__"].__get__
_own_mro: Any = type.__dict__["__mro__"].__get__


def find_attributes(kind: type, methods: dict[str, Any]) -> list[str]:
    """Names of attributes that a class defines and that are no methods."""
    names = [name for name in _own_dict(kind) if type(name) is str and name not in methods]
    return [name for name in names if name.isidentifier() and not name.startswith(("__", "_abc_"))][:_MAX_ATTRIBUTES]


def make_attribute(name: str) -> tuple[Any, list[Any]]:
    """What stands for an attribute in a local class, and the cell that is to hold that class."""
    made = _ClassAttribute(name)
    return made, made.cell


def relay_values(namespace: dict[str, Any]) -> dict[str, Any]:
    """What a class statement of this side defines whose base is one of the other: values of the class are asked for
    there, since its objects, which live there, may have others."""
    return {
        name: value if name.startswith("__") or hasattr(type(value), "__get__") else _ClassAttribute(name)
        for name, value in namespace.items()
    }


class _ClassAttribute:
    def __init__(self, name: str) -> None:
        self._name = name
        self.cell: list[Any] = []

    def __set_name__(self, owner: Any, name: str) -> None:
        self.cell.append(owner)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        first = next((base for base in _own_mro(kind) if self._name in _own_dict(base)), None)
        if first is None or _own_dict(first)[self._name] is self:
            return kind.__peer__.get_attribute(kind if owner is None else owner, self._name)
        return kind.__peer__.request("inherited", "", (self.cell[0], self._name, owner, kind))  # by `super()`


def get_inherited(asked: Any) -> Any:
    """An attribute as a class has it, for an object or a class that has another one of that name."""
    owner, name, target, kind = asked
    found = next(_own_dict(base)[name] for base in _own_mro(owner) if name in _own_dict(base))
    bind = getattr(type(found), "__get__", None)
    return found if bind is None else bind(found, target, kind)


def find_abstract_methods(kind: type) -> list[str]:
    """Names of the methods that its objects lack."""
    try:
        return sorted(map(str, type.__dict__["__abstractmethods__"].__get__(kind)))
    except AttributeError:  # it is no abstract class
        return []


def has_own_subscript(kind: type) -> bool:
    """Whether a class says itself what it gives in brackets."""
    function = getattr(kind.__dict__.get("__class_getitem__"), "__func__", None)
    return type(function) is types.FunctionType


def is_special_name(name: str) -> bool:
    """Whether a name is one by which Python works: methods of such names are special, however they are described. Only
    code of `dataclasses` calls `__post_init__`."""
    return name.startswith("__") and name.endswith("__") and name != "__post_init__"
