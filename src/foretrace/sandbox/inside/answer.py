"""The answer's process: load the code, and make the requested calls. It never has an expected value."""

from __future__ import annotations

import linecache
import sys
import types
from typing import Any

from foretrace.sandbox.inside.calls import Caller, NotPlainError
from foretrace.sandbox.inside.values import decode, encode
from foretrace.sandbox.inside.wire import ANSWER_MODULE, describe_error

FILE = "solution.py"
_METHOD_CLASS = "Solution"
"""The class whose methods may stand in for a required function."""


def load_module(request: dict[str, Any]) -> dict[str, Any]:
    """Run the code of a request as a separate module (never as `__main__`) and return its namespace.

    What the code may build on runs first: the statements of the tests' setup that do not need it, and the prompt.
    """
    module = types.ModuleType(ANSWER_MODULE)
    space = module.__dict__
    space["__file__"] = FILE
    sys.modules[ANSWER_MODULE] = module  # dataclasses, pickle and typing look there
    for part in (*request.get("setup_parts", ()), request.get("preamble")):
        if part:
            try:
                exec(compile(part, "prompt.py", "exec", dont_inherit=True), space)
            except NameError:
                if part is request.get("preamble"):
                    raise
    source = request["code"]
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    exec(compile(source, FILE, "exec", dont_inherit=True), space)
    return space


def load(request: dict[str, Any]) -> dict[str, Any] | list[Any]:
    """The namespace of the loaded code, or the frame that says why it cannot be loaded."""
    try:
        namespace = load_module(request)
    except BaseException as error:
        return ["failed", describe_error(error)]
    if name := request.get("entry_point"):
        bind_method(namespace, name)
        if name not in namespace:
            missing = name.partition("().")[0]
            return ["failed", {"kind": "NameError", "message": f"the code does not define {missing!r}"}]
    return namespace


def bind_method(namespace: dict[str, Any], entry_point: str) -> None:
    """If the entry point is a method, `Solution().f` or just `f`, define a function in its place that calls the method
    of a new object each time."""
    owner, _, method = entry_point.rpartition("().")
    kind = namespace.get(owner or _METHOD_CLASS)
    if entry_point in namespace or not isinstance(kind, type) or not hasattr(kind, method):
        return

    def call(*args: Any, **named: Any) -> Any:
        return getattr(kind(), method)(*args, **named)

    call.__name__, call.__doc__, call.__module__ = method, getattr(kind, method).__doc__, ANSWER_MODULE
    namespace[entry_point] = call
    namespace.setdefault(method, call)


def serve(channel: Any, request: dict[str, Any]) -> None:
    """Load `request["code"]`, then make the calls of the request or those that the tests ask for."""
    caller = Caller(channel) if "calls" not in request else None
    loaded = load(request)
    if isinstance(loaded, list):
        channel.send(loaded)
    elif caller is None:
        channel.send(["loaded"])
        for name, args, named in request["calls"]:
            channel.send(_make_call(loaded, name, args, named, request["reply_kb"] * 1024))
    else:
        names = {name: loaded[name] for name in request["names"] if name in loaded}
        try:
            given = {name: caller.encode(value) for name, value in names.items()}
        except NotPlainError as error:
            channel.send(["other", str(error)])
            return
        channel.send(["loaded", given])
        caller.serve()


def _make_call(namespace: dict[str, Any], name: str, args: list[Any], named: dict[str, Any], limit: int) -> list[Any]:
    try:
        if name not in namespace:
            raise NameError(f"name {name!r} is not defined")
        positional = [decode(arg) for arg in args]
        options = {key: decode(arg) for key, arg in named.items()}
        return ["value", encode(namespace[name](*positional, **options), limit), None]
    except BaseException as error:  # even SystemExit: what a call raises is its answer
        return ["raised", describe_error(error)]
