"""Classes of one process whose base is one of the other: the other one gets a subclass with the same methods."""

from __future__ import annotations

import types
from typing import Any

from foretrace.sandbox.inside.remote.classes import RemoteClass, RemoteObject

_OF_PYTHON = ("__module__", "__qualname__", "__classcell__", "__dict__", "__weakref__", "__orig_bases__")


def collect_members(bases: tuple[type, ...], namespace: dict[str, Any]) -> dict[str, Any]:
    """What a class defines, itself or by bases of this side: methods as plain functions."""
    members: dict[str, Any] = {}
    for mixin in reversed([base for base in bases if not isinstance(base, RemoteClass)]):
        for owner in reversed(type.mro(mixin)[:-1]):
            members |= owner.__dict__
    members |= namespace
    return {key: _unwrap(value) for key, value in members.items() if key not in _OF_PYTHON}


def _unwrap(value: Any) -> Any:
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value


def make_field_setter(peer: Any) -> Any:
    """What `dataclasses` takes for `object` where it sets the fields of frozen objects: those of objects of the other
    side are set there."""

    def set_field(target: Any, name: str, value: Any) -> None:
        if isinstance(target, RemoteObject):
            peer.call_unbound(object, "__setattr__", (target, name, value), {})
        else:
            object.__setattr__(target, name, value)

    return types.SimpleNamespace(__setattr__=set_field)


def make_subclass(name: str, keywords: dict[str, Any], *bases: Any, members: dict[str, Any]) -> Any:
    """The class of this side: functions of the other side become its methods."""

    def method(function: Any) -> Any:
        def call(self: Any, *args: Any, **named: Any) -> Any:
            return function(self, *args, **named)

        return call

    namespace = {
        key: method(value) if isinstance(value, RemoteObject) and callable(value) else value
        for key, value in members.items()
    }
    return types.new_class(name, bases, keywords, lambda ns: ns.update(namespace))
