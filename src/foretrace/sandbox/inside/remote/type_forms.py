"""Types as annotations write them (`list[int]`, `Optional[str]`, `int | None`): told to the other process as values.

    ["ga", origin, args]           a `types.GenericAlias`, or one of a class that extends `Generic`
    ["un", args]                   a `types.UnionType`
    ["ta", name, args]             of `typing`: `Optional[int]` is Union with its two types
    ["tn", name]                   a special form of `typing`, as it stands: Any, Union, List, ...

Only what is made of classes, of other such types and of plain constants is told; Python can make and compare it without
asking any of them for anything.
"""

from __future__ import annotations

import collections.abc
import sys
import types
from typing import Any

TAGS = ("ga", "un", "ta", "tn")
_ALIASES = (types.GenericAlias, type(collections.abc.Callable[[], None]))
_CONSTANTS = (str, bytes, int, bool, type(None), type(Ellipsis))


def _typing() -> Any:
    return sys.modules.get("typing")


def is_special_form(value: Any) -> bool:
    """Whether it is something of `typing` that is known by its name."""
    typing = _typing()
    return typing is not None and _name_of(typing, value) is not None


def _name_of(typing: Any, value: Any) -> str | None:
    if type(type(value)) is not type or type(value).__module__ != "typing":
        return None  # among others what stands for an object of the other process
    name = "Any" if value is typing.Any else getattr(value, "_name", None)
    return name if type(name) is str and vars(typing).get(name) is value else None


def describe_type(value: Any) -> list[Any] | None:
    """The tag of a type and its parts, which are values still; None where it is told otherwise."""
    kind = type(value)
    if kind in _ALIASES:
        described: list[Any] = ["ga", value.__origin__, value.__args__]
    elif kind is types.UnionType:
        described = ["un", value.__args__]
    elif type(kind) is not type or kind.__module__ != "typing":
        return None
    else:
        described = _describe_of_typing(_typing(), value) or []
    if not described or not all(map(_is_part, described[1:])):
        return None
    if described[0] in ("un", "ta"):
        described[-1] = tuple(None if arg is type(None) else arg for arg in described[-1])
    return described


def _describe_of_typing(typing: Any, value: Any) -> list[Any] | None:
    name = _name_of(typing, value)
    if name is not None:
        return ["tn", name]
    if type(value) is typing.ForwardRef:
        return ["ta", "ForwardRef", (value.__forward_arg__,)]
    if not isinstance(value, typing._GenericAlias):
        return None
    args = tuple(value.__args__)
    if type(value) is typing._AnnotatedAlias:
        return ["ta", "Annotated", (value.__origin__, *value.__metadata__)]
    of_class = isinstance(value.__origin__, type)
    if of_class and value._name is None:
        return ["ga", value.__origin__, args]  # of a class that extends Generic
    name = value._name if of_class else _name_of(typing, value.__origin__)
    if name == "Callable":
        args = (args[0] if args[0] is Ellipsis else args[:-1], args[-1])
    return ["ta", name, args] if type(name) is str else None


def _is_part(part: Any) -> bool:
    if type(part) is tuple:
        return all(map(_is_part, part))
    if isinstance(part, type):
        return type(part).__hash__ is type.__hash__ and type(part).__or__ is type.__or__
    return type(part) in _CONSTANTS or describe_type(part) is not None


_MAX_ARGUMENTS = 200
"""Of one type; to join them takes time that grows with their square."""


def make_type(tag: Any, parts: list[Any]) -> Any:
    """The type of this process for what the other one has described.

    Raises:
        ValueError: it is none.
    """
    import typing

    if not all(map(_is_part, parts)):
        raise ValueError("a type that is made of other things")
    *named, args = parts
    if tag == "tn":
        found = vars(typing).get(args) if type(args) is str else None
        if not is_special_form(found):
            raise ValueError("no type of that name")
        return found
    if type(args) is not tuple or len(args) > _MAX_ARGUMENTS:
        raise ValueError("no arguments of a type")
    if tag == "un":
        made = args[0]
        for arg in args[1:]:
            made = made | arg
        return made
    if tag == "ga":
        return _make_alias(typing, named[0], args)
    return _make_of_typing(typing, named[0], args)


def _make_alias(typing: Any, origin: Any, args: tuple[Any, ...]) -> Any:
    if not isinstance(origin, type):
        raise ValueError("no class")
    if type(origin) is type and issubclass(origin, typing.Generic):
        return typing.Generic.__class_getitem__.__func__(origin, args)
    if origin is collections.abc.Callable:
        form: Any = origin
        return form[[*args[:-1]] if args[0] is not Ellipsis else ..., args[-1]]
    return types.GenericAlias(origin, args)


def _make_of_typing(typing: Any, name: Any, args: tuple[Any, ...]) -> Any:
    if name == "ForwardRef":
        return typing.ForwardRef(*args)
    form: Any = vars(typing).get(name) if type(name) is str else None
    if not is_special_form(form) and form is not typing.Annotated:
        raise ValueError("no type of that name")
    if name == "Callable":
        args = (list(args[0]) if type(args[0]) is tuple else args[0], args[1])
    return form[args if len(args) != 1 else args[0]]
