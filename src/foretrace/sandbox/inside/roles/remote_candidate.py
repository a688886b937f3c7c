"""What stands for the candidate in the judge's process: each use of it is a request that the parent relays."""

from __future__ import annotations

import builtins
from typing import Any

from foretrace.sandbox.inside.wire.values import decode, encode, find_type_name

_CHANGEABLE = (list, dict, set, bytearray, tuple)


_ENDS = (StopIteration, StopAsyncIteration, GeneratorExit)


class CandidateGone(BaseException):
    """The candidate's process ended in this call. No ordinary `except` of a test catches it."""


class CandidateLink:
    """Sends requests to the candidate, which the parent relays.

    Args:
        exceptions: names of the code's own exceptions that tests catch.
    """

    def __init__(self, channel: Any, limit: int, exceptions: list[str]) -> None:
        self._channel, self._limit = channel, limit
        self.exceptions: dict[str, type[Exception]] = {name: type(name, (Exception,), {}) for name in exceptions}
        self.lost: str | None = None
        """Why the candidate ended, until a test has noted it."""
        self.raised: str | None = None
        """What the candidate raised last, until a test has noted it."""

    def request(self, kind: str, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What the candidate gives for a call (`call`) or an operation (`do`).

        Raises:
            Gone: it has ended.
            TypeError: an argument cannot be sent.
            Exception: what the candidate raised.
        """
        arguments = {**dict(enumerate(args)), **named}
        sent = {key: self._encode(value) for key, value in arguments.items()}
        numbered = [sent[number] for number in range(len(args))]
        self._channel.send([kind, name, numbered, {key: sent[key] for key in named}])
        answer = self._channel.receive()
        if answer is None or answer[0] == "gone":
            self.lost = answer[1] if answer else "the candidate has ended"
            raise CandidateGone(self.lost)
        if answer[0] == "raised":
            self.raised = f"{answer[1]['kind']}: {answer[1]['message']}"
            error = self._exception(answer[1])
            if isinstance(error, _ENDS) and not (kind == "do" and name == "next"):
                # Raised by a call, it would end a loop of the test's, as if all had been well.
                raise RuntimeError(f"the code raised {self.raised}")
            raise error
        for key, changed in answer[2] or []:
            if key in arguments:
                put_back(arguments[key], self._decode(changed))
        return self._decode(answer[1])

    def _encode(self, value: Any) -> Any:
        refused: list[str] = []

        def keep(inner: Any) -> int | None:
            if isinstance(inner, (RemoteObject, RemoteName)):
                return inner.foretrace_number
            refused.append(find_type_name(inner))
            return None

        tagged = encode(value, self._limit, keep)
        if refused or (type(tagged) is list and tagged[0] == "o"):
            what = refused[0] if refused else f"{tagged[1]} ({tagged[2]})"
            raise TypeError(f"the test passes a value that cannot be sent: {what}")
        return tagged

    def _decode(self, tagged: Any) -> Any:
        return decode(tagged, remote=lambda number, name: RemoteObject(self, number, name))

    def _exception(self, error: dict[str, Any]) -> BaseException:
        """An exception of the same name, which the same `except` clauses catch."""
        kind, message = error["kind"], error["message"]
        families = [kind, *error.get("bases", [])]
        bases: list[Any] = [self.exceptions[name] for name in dict.fromkeys(families) if name in self.exceptions]
        builtin = next(filter(None, map(_builtin, families)), Exception)
        made = builtin if not bases and builtin.__name__ == kind else type(kind, (*bases, builtin), {})
        try:
            return made(message)
        except Exception:  # one that takes more than a message, such as UnicodeDecodeError
            return type(kind, (*bases, Exception), {})(message)


def _builtin(name: str) -> type[BaseException] | None:
    kind = getattr(builtins, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None


def put_back(old: Any, new: Any) -> Any:
    """Give `old` the contents of `new`, in the same objects where there are such; returns what belongs in its place."""
    if type(old) is not type(new) or type(old) not in _CHANGEABLE:
        return new
    if type(old) in (list, tuple):
        merged = [put_back(a, b) for a, b in zip(old, new)] + list(new[len(old) :])  # noqa: B905 - lengths may differ
        if type(old) is list:
            old[:] = merged
            return old
        same = len(old) == len(new) and all(a is b for a, b in zip(old, merged, strict=True))
        return old if same else tuple(merged)
    if type(old) is dict:
        merged = {key: put_back(old[key], value) if key in old else value for key, value in new.items()}
        old.clear()
        old.update(merged)
    elif type(old) is set:
        old.clear()
        old.update(new)
    else:
        old[:] = new
    return old


class RemoteName:
    """A function (or, with `keep`, a class) of the candidate, by its name."""

    __slots__ = ("_link", "_name")

    def __init__(self, link: CandidateLink, name: str) -> None:
        self._link, self._name = link, name

    def __call__(self, *args: Any, **named: Any) -> Any:
        made = self._link.request("call", self._name, args, named)
        if type(made) is RemoteObject and made.foretrace_type == self._name:
            # A class was called, and gave one of its objects.
            object.__setattr__(made, "foretrace_is_own", True)
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        itself = self._itself()
        object.__setattr__(itself, "foretrace_is_own", True)  # the class itself, of which the test makes objects
        return getattr(itself, name)

    def __instancecheck__(self, other: object) -> bool:
        return type(other) is RemoteObject and _do(other, "isinstance", self._itself()) is True

    def __repr__(self) -> str:
        return f"<candidate's {self._name}>"

    def _itself(self) -> Any:
        return self._link.request("do", "global", (self._name,), {})

    @property
    def foretrace_number(self) -> int:
        return self._itself().foretrace_number


class RemoteObject:
    """An object that lives in the candidate's process.

    What it is compared with or combined with must be another such object, or the test itself must have made this one
    by calling the class: else an object that claims to be equal to everything could pass any test. With a plain value
    it is never equal.
    """

    # Names that no object of a candidate has: all other names are asked of it.
    __slots__ = ("foretrace_is_method", "foretrace_is_own", "foretrace_link", "foretrace_number", "foretrace_type")

    def __init__(self, link: CandidateLink, number: int, name: str) -> None:
        for slot, value in zip(RemoteObject.__slots__, (False, False, link, number, name), strict=True):
            object.__setattr__(self, slot, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        found = _do(self, "getattr", name)
        if type(found) is RemoteObject:
            object.__setattr__(found, "foretrace_is_own", self.foretrace_is_own)
            object.__setattr__(found, "foretrace_is_method", True)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        _do(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        _do(self, "delattr", name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self.foretrace_is_method:  # a method, which could be asked `is this it?`
            _allow(self, *args, *named.values())
        result = self.foretrace_link.request("do", "call", (self, *args), named)
        if type(result) is RemoteObject and self.foretrace_is_own:
            object.__setattr__(result, "foretrace_is_own", True)
        return result

    def __eq__(self, other: object) -> bool:
        return type(other) is RemoteObject and _do(self, "eq", other) is True

    def __ne__(self, other: object) -> bool:
        return type(other) is not RemoteObject or _do(self, "ne", other) is True

    def __hash__(self) -> int:
        return int(_do(self, "hash"))

    def __bool__(self) -> bool:
        return _do(self, "bool") is True

    def __contains__(self, item: Any) -> bool:
        _allow(self, item)
        return _do(self, "contains", item) is True

    def __repr__(self) -> str:
        return _do(self, "repr")

    def __enter__(self) -> Any:
        return _do(self, "method", "__enter__")

    def __exit__(self, *error: object) -> None:
        _do(self, "method", "__exit__", None, None, None)


def _do(remote: RemoteObject, operation: str, *args: Any) -> Any:
    return remote.foretrace_link.request("do", operation, (remote, *args), {})


def _allow(remote: RemoteObject, *others: Any) -> None:
    """Refuse to show a plain value, which may be an expected one, to an object that the test did not make."""
    if not remote.foretrace_is_own and any(type(other) is not RemoteObject for other in others):
        raise TypeError(f"a {remote.foretrace_type} object is no plain value, and cannot be combined with one")


def _plain(operation: str) -> Any:
    """An operation whose result is what the candidate says; its arguments are keys, and no expected values."""

    def method(self: RemoteObject, *args: Any) -> Any:
        return _do(self, operation, *args)

    return method


def _derived(operation: str) -> Any:
    """An operation on an object that gives another one."""

    def method(self: RemoteObject, *others: Any) -> Any:
        _allow(self, *others)
        result = _do(self, operation, *others)
        if type(result) is RemoteObject and self.foretrace_is_own:
            object.__setattr__(result, "foretrace_is_own", True)
        return result

    return method


for _name in ("len", "str", "int", "float", "iter", "next", "getitem", "setitem", "delitem"):
    setattr(RemoteObject, f"__{_name}__", _plain(_name))
for _name in ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "xor", "neg"):
    setattr(RemoteObject, f"__{_name}__", _derived(_name))
for _name in ("pos", "invert", "abs"):
    setattr(RemoteObject, f"__{_name}__", _derived(_name))
for _name in ("and", "or"):
    setattr(RemoteObject, f"__{_name}__", _derived(f"{_name}_"))
