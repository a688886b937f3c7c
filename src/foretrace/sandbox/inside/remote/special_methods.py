"""What a special method that the other process asks for does here."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.inside.remote.exceptions import make_traceback

_CALLABLES: dict[str, Callable[..., Any]] = {
    "__bool__": bool,
    "__len__": len,
    "__hash__": hash,
    "__repr__": repr,
    "__str__": str,
    "__format__": format,
    "__int__": int,
    "__float__": float,
    "__complex__": complex,
    "__index__": operator.index,
    "__iter__": iter,
    "__reversed__": reversed,
    "__contains__": operator.contains,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__dir__": dir,
    "__bytes__": bytes,
}
"""Operations whose builtin function does what the special method alone would not, such as falling back on another."""


def call_special_method(name: str, target: Any, args: list[Any], named: dict[str, Any]) -> Any:
    """Do what Python does where it calls this special method of an object."""
    if name == "__call__":
        return target(*args, **named)
    if name in ("__exit__", "__aexit__") and len(args) == 3 and isinstance(args[1], BaseException):
        args[2] = make_traceback(args[1])
    function = _CALLABLES.get(name)
    if function is not None:
        return function(target, *args)
    return getattr(type(target), name)(target, *args, **named)
