"""What a function takes, told to the other process: its parameters, without its code."""

from __future__ import annotations

import inspect
import types
from typing import Any

_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
)


def describe_signature(function: Any) -> list[list[Any]]:
    """Name, kind, defaults (none, or one) and annotations (none, or one) of each parameter; behind them the annotation
    of the result (none, or one)."""
    signature = inspect.signature(function)
    described: list[list[Any]] = [
        [
            parameter.name,
            int(parameter.kind),
            [] if parameter.default is parameter.empty else [parameter.default],
            [] if parameter.annotation is parameter.empty else [parameter.annotation],
        ]
        for parameter in signature.parameters.values()
    ]
    result = signature.return_annotation
    return [*described, [] if result is signature.empty else [result]]


def make_signature(described: Any) -> inspect.Signature:
    """The signature that the other side has described."""
    empty = inspect.Parameter.empty
    *described, result = described
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                _KINDS[kind],
                default=default[0] if default else empty,
                annotation=annotation[0] if annotation else empty,
            )
            for name, kind, default, annotation in described
        ],
        return_annotation=result[0] if result else empty,
    )


_TOLD_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def describe_code(function: Any) -> int:
    """What a call of it gives: the flags of a generator's code, a coroutine's, ..."""
    code = getattr(function, "__code__", None)
    return code.co_flags & _TOLD_FLAGS if isinstance(code, types.CodeType) else 0


class CodeFacts:
    """What `__code__` of a function of the other process says of its parameters, and of what a call gives."""

    def __init__(self, name: str, signature: inspect.Signature, flags: Any) -> None:
        kinds = [p.kind for p in signature.parameters.values()]
        names = [*signature.parameters]
        self.co_name = self.co_qualname = name
        self.co_posonlyargcount = kinds.count(inspect.Parameter.POSITIONAL_ONLY)
        self.co_argcount = self.co_posonlyargcount + kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.co_kwonlyargcount = kinds.count(inspect.Parameter.KEYWORD_ONLY)
        variadic = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
        plain = [n for n, kind in zip(names, kinds, strict=True) if kind not in variadic]
        self.co_varnames = (*plain, *(n for n, kind in zip(names, kinds, strict=True) if kind in variadic))
        self.co_nlocals = len(self.co_varnames)
        self.co_flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | (flags & _TOLD_FLAGS if type(flags) is int else 0)
        self.co_flags |= inspect.CO_VARARGS if variadic[0] in kinds else 0
        self.co_flags |= inspect.CO_VARKEYWORDS if variadic[1] in kinds else 0
