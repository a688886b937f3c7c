"""The candidate's side of judging: load the code, answer calls. It holds arguments, and never an expected value."""

from __future__ import annotations

import builtins
import linecache
import operator
import sys
import types
from typing import Any

from foretrace.sandbox.inside.error_report import describe_error
from foretrace.sandbox.inside.wire.values import decode, encode

MODULE = "solution"
FILE = "solution.py"
_MAX_HELD_OBJECTS = 10_000
_CHANGEABLE = frozenset({list, dict, set, bytearray, tuple})
_OPERATIONS: dict[str, Any] = {
    **{name: getattr(builtins, name) for name in ("len", "str", "repr", "bool", "iter", "next", "hash", "abs", "int")},
    **{
        name: getattr(builtins, name) for name in ("float", "isinstance", "issubclass", "getattr", "setattr", "delattr")
    },
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv")},
    **{name: getattr(operator, name) for name in ("floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "neg")},
    **{name: getattr(operator, name) for name in ("pos", "invert", "getitem", "setitem", "delitem", "contains")},
    "call": lambda function, *args, **named: function(*args, **named),
    "method": lambda owner, name, *args, **named: getattr(owner, name)(*args, **named),
}
"""What can be done with an object that the judge holds; it is the first argument."""


def load_module(source: str) -> dict[str, Any]:
    """Run the code as a module of its own (never as `__main__`), and return its namespace."""
    module = types.ModuleType(MODULE)
    module.__dict__["__file__"] = FILE
    sys.modules[MODULE] = module  # dataclasses, pickle and typing look there
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    exec(compile(source, FILE, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def serve(channel: Any, request: dict[str, Any]) -> None:
    """Load `request["code"]`, then answer the calls of the request, or those that come (see `wire.frames`)."""
    host = LoadedCode(request)
    send, receive = channel.send, channel.receive
    calls = request.get("calls")
    message = host.load(request["code"], request.get("needs", []))
    send(message)
    if message[0] == "failed":
        return
    if calls is not None:
        for name, args, named in calls:
            send(host.call(name, args, named))
        return
    while (message := receive()) is not None and message[0] != "bye":
        send(host.call(*message[1:]) if message[0] == "call" else host.operate(*message[1:]))


class LoadedCode:
    """Loaded code, and the objects of it that a judge holds by number."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._limit = int(request["limits"]["reply_kb"]) * 1024
        self._relayed = "calls" not in request
        self._keeps = bool(request.get("keep"))
        self._held: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._namespace: dict[str, Any] = {}
        # Held here: code that patches this module's names shall harm itself as little as possible.
        self._encode, self._decode, self._describe = encode, decode, describe_error

    def load(self, source: str, needs: list[str]) -> list[Any]:
        """Load the code; the answer is `loaded` or `failed`."""
        try:
            self._namespace = load_module(source)
        except BaseException as error:
            return ["failed", self._describe(error)]
        for name in needs:
            if name not in self._namespace:
                return ["failed", {"kind": "NameError", "message": f"the code does not define {name!r}"}]
        return ["loaded"]

    def call(self, name: str, args: list[Any], named: dict[str, Any]) -> list[Any]:
        """Call a function of the code by its name."""
        return self._answer(lambda: self._global(name), args, named)

    def operate(self, operation: str, args: list[Any], named: dict[str, Any]) -> list[Any]:
        """Do something with an object that the judge holds."""
        return self._answer(lambda: self._global if operation == "global" else _OPERATIONS[operation], args, named)

    def _global(self, name: str) -> Any:
        try:
            return self._namespace[name]
        except KeyError:
            raise NameError(f"name {name!r} is not defined") from None

    def _answer(self, find: Any, args: list[Any], named: dict[str, Any]) -> list[Any]:
        try:
            positional = [self._decode(arg, remote=self._take) for arg in args]
            options = {key: self._decode(arg, remote=self._take) for key, arg in named.items()}
            before = self._snapshot(positional, options) if self._relayed else {}
            value = find()(*positional, **options)
            changed = self._changes(before, positional, options)
            return ["value", self._encode(value, self._limit // (2 if changed else 1), self._keeper()), changed]
        except BaseException as error:  # SystemExit and all: raised by a call, it is an answer
            return ["raised", {**self._describe(error), "bases": _bases(error)}]

    def _keeper(self) -> Any:
        return self._keep if self._keeps else None

    def _keep(self, value: Any) -> int | None:
        number = self._numbers.get(id(value))
        if number is None and len(self._held) < _MAX_HELD_OBJECTS:
            number = self._numbers[id(value)] = len(self._held)
            self._held.append(value)  # so its id stays its own
        return number

    def _take(self, number: int, name: str) -> Any:
        return self._held[number]

    def _snapshot(self, positional: list[Any], options: dict[str, Any]) -> dict[Any, Any]:
        """Arguments that a call could change in place, as they are now."""
        pairs = [*enumerate(positional), *options.items()]
        return {key: self._encode(arg, self._limit, self._keeper()) for key, arg in pairs if type(arg) in _CHANGEABLE}

    def _changes(
        self, before: dict[Any, Any], positional: list[Any], options: dict[str, Any]
    ) -> list[list[Any]] | None:
        now = {key: options[key] if type(key) is str else positional[key] for key in before}
        share = self._limit // (2 * len(now) or 1)
        changed: list[list[Any]] = []
        for key, arg in now.items():
            after = self._encode(arg, self._limit, self._keeper())
            if after != before[key]:
                changed.append([key, self._encode(arg, share, self._keeper())])
        return changed or None


def _bases(error: BaseException) -> list[str]:
    """Names of the classes that it is an instance of, as far as they are exceptions; its own is first."""
    try:
        return [kind.__name__[:100] for kind in type.mro(type(error))[:20] if issubclass(kind, BaseException)]
    except BaseException:
        return []
