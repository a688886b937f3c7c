"""Calls between tests and answer in two processes: only plain data, exceptions and functions are transferred.

A function is transferred as a number, with which the other side can call it. The two sides take turns: `["call",
number, args, named]` is answered by `["value", value]`, `["raised", classes, args, text]`, or `["other", why]` if
something else would have to be transferred. Before it answers, the other side may call back.
"""

from __future__ import annotations

import _thread
import builtins
import sys
import types
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.inside.values import Decoder, Encoder, NotEncodableError
from foretrace.sandbox.inside.wire import ANSWER_MODULE

_MAX_BYTES = 1 << 20
"""Most bytes of one value: tests with larger values are run in one process."""
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_CHANGING = (list, dict, set, bytearray, tuple)


class NotPlainError(BaseException):
    """A value that is neither plain data nor a function would be needed. (`except Exception` does not catch this.)"""


class AnswerGoneError(BaseException):
    """The other side has exited."""


class BrokenError(BaseException):
    """The other side sent something invalid."""


class _CallEncoder(Encoder):
    def __init__(self, limit: int, functions: list[Any]) -> None:
        super().__init__(limit)
        self._functions = functions

    def other_value(self, value: Any, kind: type, depth: int) -> Any:
        if kind is type and vars(builtins).get(value.__name__) is value:
            return ["builtin", value.__name__]
        if isinstance(value, _FUNCTIONS):
            if kind is types.FunctionType and "number" in value.__dict__ and value.__dict__.get("is_remote"):
                return ["own", value.__dict__["number"]]
            self._functions.append(value)
            return ["fn", len(self._functions) - 1, getattr(value, "__name__", "f")]
        known = self.library_value(value)
        if known is None:
            raise NotEncodableError("an object")
        return known


class _CallDecoder(Decoder):
    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self._caller = caller

    def read_other(self, tag: str, rest: list[Any]) -> Any:
        match [tag, *rest]:
            case ["builtin", str(name)] if isinstance(vars(builtins).get(name), type):
                return vars(builtins)[name]
            case ["own", int(number)] if 0 <= number < len(self._caller.functions):
                return self._caller.functions[number]
            case ["fn", int(number), str(name)]:
                return self._caller.make_function(number, name)
            case _:
                raise ValueError("no known kind of value")


class Caller:
    """One side of the conversation, which may make `max_calls` calls."""

    def __init__(self, channel: Any, max_calls: int = 1 << 30) -> None:
        self._channel, self._calls_left = channel, max_calls
        self._lock = _thread.RLock()  # one call at a time, even with threads
        self.functions: list[Any] = []
        """Functions that the other side may call, by number."""
        self.exited = False
        """Whether the other side raised an exception that exits a process, such as SystemExit."""
        self.not_plain: NotPlainError | None = None
        """Raised by a call; the code that made the call may have caught it, as unittest does."""

    def encode(self, value: Any) -> Any:
        """Encode a value for the other side; raises NotPlainError if it cannot be transferred."""
        try:
            return _CallEncoder(_MAX_BYTES, self.functions).walk(value, 0)
        except NotEncodableError as why:
            raise NotPlainError(f"{why} would have to cross: {type(value).__name__}"[:200]) from None
        except Exception as error:
            raise NotPlainError(f"a value cannot be read: {type(error).__name__}"[:200]) from None

    def decode(self, tagged: Any) -> Any:
        """Decode a value from the other side; raises BrokenError if it is not valid."""
        try:
            return _CallDecoder(self).walk(tagged, 0)
        except (ValueError, LookupError, RecursionError) as error:
            raise BrokenError(str(error)) from None

    def make_function(self, number: int, name: str) -> Callable[..., Any]:
        """A function that calls the function of this number on the other side."""

        def call(*args: Any, **named: Any) -> Any:
            try:
                return self._call(number, args, named)
            except NotPlainError as error:
                self.not_plain = error
                raise

        call.__name__ = call.__qualname__ = name
        call.__dict__.update(is_remote=True, number=number)
        return call

    def _call(self, number: int, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._calls_left -= 1
        if self._calls_left < 0:
            raise NotPlainError("more calls than are passed on")
        message = ["call", number, [self.encode(arg) for arg in args], {k: self.encode(v) for k, v in named.items()}]
        with self._lock:
            self._channel.send(message)
            reply = self.serve()
        match reply:
            case None | ["gone"]:
                raise AnswerGoneError("the code's process ended")
            case ["value", value]:
                return self.decode(value)
            case ["raised", names, given, text]:
                raise self._make_exception(names, given, text)
            case _:
                raise NotPlainError(str(reply[1]))

    def serve(self) -> list[Any] | None:
        """Make the calls that the other side requests, until it answers this side's call; None if it has exited."""
        while (message := self._channel.receive()) is not None:
            if message[0] != "call":
                return message  # type: ignore[no-any-return]
            self._channel.send(self._answer(*message[1:]))
        return None

    def _answer(self, number: int, args: list[Any], named: dict[str, Any]) -> list[Any]:
        try:
            function = self.functions[number]
            given = [self.decode(arg) for arg in args]
            options = {key: self.decode(value) for key, value in named.items()}
            changing = any(isinstance(value, _CHANGING) for value in (*given, *options.values()))
            encoded = self.encode(function(*given, **options))
            if changing:
                before = [self.decode(arg) for arg in args], {key: self.decode(value) for key, value in named.items()}
                if before != (given, options):
                    return ["other", "an argument is changed in place"]
            return ["value", encoded]
        except (NotPlainError, AnswerGoneError) as error:
            return ["other", str(error)]
        except BaseException as error:
            return self._describe(error)

    def _describe(self, error: BaseException) -> list[Any]:
        if isinstance(error, (StopIteration, StopAsyncIteration)):
            # It would end loops of the tests before their asserts.
            error = RuntimeError(f"the function raised {type(error).__name__}")
        if type(error).__module__ == ANSWER_MODULE or error.__dict__ or error.__cause__ is not None:
            return ["other", "an exception of a class of its own, or with more than its arguments"]
        names = [[kind.__module__, kind.__qualname__] for kind in type.mro(type(error))]
        try:
            return ["raised", names, self.encode(error.args), str(error)[:10_000]]
        except NotPlainError as why:
            return ["other", str(why)]

    def _make_exception(self, names: list[Any], args: Any, text: str) -> BaseException:
        for module, name in names:
            kind = getattr(builtins if module == "builtins" else sys.modules.get(module), name, None)
            if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__module__ == module:
                try:
                    error: BaseException = kind(*self.decode(args))
                except TypeError:
                    break
                self.exited |= isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit))
                return error
        return RuntimeError(text)
