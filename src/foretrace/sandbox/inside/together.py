"""Tests and answer in one process, for tests that use objects of the answer. The constants of the tests' comparisons
are not in this process (see `judging.rewrite`), and tampering of the answer with the judging is recorded."""

from __future__ import annotations

import builtins
import functools
import operator
import sys
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from foretrace.sandbox.inside import answer, test_runner
from foretrace.sandbox.inside.recorder import Recorder
from foretrace.sandbox.inside.wire import ANSWER_MODULE, describe_error

_PEEKING = frozenset(
    {
        *("sys._getframe", "sys._current_frames", "sys._current_exceptions", "sys.settrace", "sys.setprofile"),
        *("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys.addaudithook"),
    }
)
"""Audit events of code that inspects frames and objects of other code."""
_FRAMES = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})
_OWN_CODE = "foretrace.sandbox.inside."
_OWN_MODULES = tuple(_OWN_CODE + name for name in ("recorder", "test_runner", "wire", "values"))
"""The modules that judge in this process. Reading more would copy their memory, and cost more than the run itself."""


def serve(channel: Any, request: dict[str, Any]) -> None:
    """Load the answer and run the tests on it, watching what the answer does (see `Watch`)."""
    send, describe, load, token = channel.send, describe_error, answer.load, request["token"]
    test_runner.prepare(request)
    noted = Recorder(request, together=True)
    make_names, run_tests = test_runner.make_names, test_runner.run_tests
    watch = Watch(request)
    loaded = load(request)
    if isinstance(loaded, list):
        send(loaded)
        return
    send(["loaded"])
    sys.modules["__main__"] = sys.modules[ANSWER_MODULE]

    def report(number: int, failures: list[dict[str, Any]]) -> None:
        send(["test", number, noted.take(), failures, watch.find_flags(), token])

    try:
        own = {name: value for name, value in loaded.items() if not name.startswith("__")}
        run_tests(request, make_names(request, own), noted, report)
    except BaseException as error:
        send(["failed", describe(error)])
        return
    send(["done", find_agreeable_class([*own.values(), *noted.strangers]) or "", watch.find_flags(), token])


_Snapshots = dict[str, tuple[Any, dict[str, Any]]]
"""By qualified name: a module or class, and its attributes at one time."""


def _take_snapshots(modules: dict[str, Any]) -> _Snapshots:
    """Snapshots of modules and the classes that they define."""
    owners = {
        f"{name}.{key}": value
        for name, module in modules.items()
        for key, value in vars(module).items()
        if isinstance(value, type) and name.startswith((_OWN_CODE, "unittest")) and value.__module__.startswith(name)
    }
    return {name: (owner, dict(vars(owner))) for name, owner in (modules | owners).items()}


def _find_changes(snapshots: _Snapshots) -> list[str]:
    """Qualified names of the functions and classes that have been replaced since."""
    changed: list[str] = []
    for name, (owner, before) in snapshots.items():
        now = vars(owner)
        if len(now) != len(before) or not all(map(operator.is_, now.values(), before.values())):
            changed += [f"{name}.{k}" for k, v in before.items() if now.get(k) is not v and callable(v)]
    return changed


@functools.cache  # taken by the fork server for all runs
def snapshot_own_code() -> _Snapshots:
    return _take_snapshots({"builtins": builtins} | {name: sys.modules[name] for name in _OWN_MODULES})


class Watch:
    """Notices tampering by the answer. Must be made before the answer is loaded."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._peeked: list[str] = []
        self._patched_by_tests: list[str] = request["patching"]
        self._getframe: Any = vars(sys)["_getframe"]
        own = snapshot_own_code()
        self._modules = {k: sys.modules[k] for k in request["modules"] if k in sys.modules and k != "sys"}
        self._snapshots = own | _take_snapshots({k: v for k, v in self._modules.items() if k not in own})
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...], frames: list[int] = []) -> None:  # noqa: B006 - it is a lock
        looks = event in _PEEKING or (event == "object.__getattr__" and args[1] in _FRAMES)
        looks = looks or (event == "open" and str(args[0]).startswith("/proc/"))
        if not looks or frames or len(self._peeked) > 5:
            return
        frames.append(1)
        try:
            caller: Any = self._getframe(1)
            if event == "object.__getattr__" and _prints_traceback(caller):
                return
            while caller is not None and caller.f_code.co_filename.endswith(("/inspect.py", "/traceback.py")):
                caller = caller.f_back
            if caller is not None and caller.f_code.co_filename == answer.FILE:
                self._peeked.append(event)
        finally:
            frames.clear()

    def find_flags(self) -> list[list[str]]:
        """What was noticed: pairs of a flag (see `Verdict.flags`) and its detail."""
        changed = [name for name, module in self._modules.items() if sys.modules.get(name) is not module]
        changed += _find_changes(self._snapshots)
        by_answer = [
            name for name in changed if not any(name.rpartition(".")[2] in text for text in self._patched_by_tests)
        ]
        return [["tampered", name] for name in by_answer[:3]] + [["peeked", event] for event in self._peeked[:3]]


def _prints_traceback(frame: Any) -> bool:
    """Whether `traceback` asks for a frame of an exception for code of its own, which makes text of it."""
    return all(each is not None and each.f_code.co_filename.endswith("/traceback.py") for each in (frame, frame.f_back))


class _Unknown:
    """An object that is equal only to itself."""


def find_agreeable_class(values: Iterable[Any]) -> str | None:
    """A class of the answer (or a base class or subclass) whose objects claim to equal, or to contain, objects that
    they cannot know; None if none."""
    todo = [value if isinstance(value, type) else type(value) for value in values]
    seen: set[int] = set()
    while todo:
        kind = todo.pop()
        if id(kind) in seen or kind.__module__ != ANSWER_MODULE:
            continue
        seen.add(id(kind))
        space = type.__getattribute__(kind, "__dict__")
        todo += type.mro(kind)
        todo += [*type.__subclasses__(kind), *(value for value in space.values() if isinstance(value, type))]
        for name in ("__eq__", "__contains__"):
            if type(space.get(name)) is FunctionType and _agrees(space[name]):
                return str(kind.__qualname__)
    return None


def _agrees(method: Any) -> bool:
    try:
        return all(bool(method(_Unknown(), other) is True) for other in (_Unknown(), 80_429_117, "\0unknown"))
    except Exception:
        return False
