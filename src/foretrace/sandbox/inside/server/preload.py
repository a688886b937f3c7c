"""What the fork server does once, so that no run need: import modules and fill caches."""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.inside.roles import answer, program, tests, together
from foretrace.sandbox.inside.wire import frames
from foretrace.sandbox.inside.wire.frames import FrameChannel

_MODULES = """
collections typing dataclasses enum re math functools itertools heapq bisect string copy datetime operator unittest
"""
"""What programs import most; each costs them nothing then."""
_REHEARSALS = 12
"""The interpreter rewrites code that it has run some eight times."""
_CODE = "def f(x):\n    return [x, {'a': 1.5}]\nassert f(1)\n"
_ANSWER = {"code": _CODE, "entry_point": "f", "limits": {"reply_kb": 512}}
_CALLS: dict[str, Any] = {**_ANSWER, "calls": [["f", [1], {}]]}
_NOTHING = {"source": "", "bytecode": "", "code": "", "lacks": []}
_TESTED = """
def double(n): return 2 * n
class TestStack:
    def test(self):
        try:
            __check__(0, double(2))
        except BaseException:
            __check__.raised(0)
"""
_TEST = {
    "check": None,
    "functions": [],
    "classes": ["TestStack"],
    "runs_unittest": False,
    "may_exit": False,
    "must_run_unittest": False,
}
_TOGETHER: dict[str, Any] = {
    **_ANSWER,
    "tests": [{**_NOTHING, **_TEST, "source": _TESTED, "may_skip": False}],
    "facts": [[False, False, False]],
    "skeletons": "((lambda t0: t0 == 4, lambda t0: (t0, 4)),)",
    "constants": [[]],
    "setup": _NOTHING,
    "helpers": _NOTHING,
    "entry_point": "",
    "names": [],
    "classes": [],
    "library": [],
    "modules": [],
    "uses_pytest": False,
    "patching": [],
    "token": "",
}
_LINE_BUFFERED_WRITES = 4000
"""Writes to stdout that are passed on line by line; `print` makes two or more of each line."""


class _NoWatch:
    """What watches over an answer cannot be taken back."""

    def __init__(self, request: dict[str, Any]) -> None:
        pass

    def find_flags(self) -> list[Any]:
        """Nothing."""
        return []


def preload_packages(modules: list[str], path: list[str]) -> list[str]:
    """Import modules from the given folders, and return the paths of the packages that came with them."""
    if not modules:
        return []
    before = set(sys.modules)
    sys.path += path
    for name in modules:
        __import__(name)
    folders = [folder for folder in path if os.path.isdir(folder)]
    sys.path[:] = [p for p in sys.path if p not in path] + folders
    tops = {name.split(".")[0] for name in set(sys.modules) - before}
    found: set[str] = set()
    for folder in folders:
        for entry in os.listdir(folder):
            stem = entry.split(".")[0]
            if stem in tops or (entry.endswith(".libs") and stem in tops):
                found.add(os.path.join(folder, entry))
    return sorted(found)


def warm_up() -> None:
    """Do once what every child does, so that its pages and caches are there to be shared."""
    import builtins
    import site  # not its start-up: only what it defines for scripts
    import traceback

    buffer_long_output(sys.stdout)
    for name, maker in (("exit", "setquit"), ("help", "sethelper")):
        if not hasattr(builtins, name):
            getattr(site, maker)()
    json.loads(json.dumps("é"))
    try:
        exec("1/0")
    except ZeroDivisionError as error:
        traceback.format_exception(type(error), error, error.__traceback__)
    for module in _MODULES.split():
        __import__(module)
    sys.modules["random"].seed(0)
    together.snapshot_own_code()
    for _ in range(_REHEARSALS):
        _rehearse(answer.serve, _CALLS)
        _rehearse(lambda channel, _: program.replay(channel, [_CODE]), {})
        _rehearse(lambda channel, request: together.serve(channel, request, _NoWatch), _TOGETHER)
        _rehearse(tests.serve, _TOGETHER, ["loaded", {}])


def buffer_long_output(stream: Any) -> None:
    """Have a stream pass each line on, and after many writes whole blocks, as plain Python does.

    What was printed before a hang or a crash is what its author needs most. But a line costs as much as a hundred do in
    one block, so that a right program that prints a hundred thousand would run out of time.
    """
    stream.reconfigure(line_buffering=True)
    write, left = stream.write, _LINE_BUFFERED_WRITES

    def count(text: str) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            stream.__dict__.pop("write", None)
            stream.reconfigure(line_buffering=False)
        return write(text)

    stream.write = count


def _rehearse(serve: Callable[[Any, Any], None], *messages: Any) -> None:
    """Do here what a child does, for the caches that this fills are every child's."""
    modules, lines, arguments = dict(sys.modules), dict(linecache.cache), sys.argv
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        warnings.catch_warnings(),  # what a role puts in the place of these three would be every child's
        contextlib.redirect_stdout(sys.stdout),
        contextlib.redirect_stderr(sys.stderr),
    ):
        ours.sendall(b"".join(map(frames.pack_frame, messages)))
        ours.shutdown(socket.SHUT_WR)
        channel = FrameChannel(theirs.fileno())
        serve(channel, channel.receive())
        theirs.shutdown(socket.SHUT_WR)
    for name in ("__main__", "pytest", "setup", "prompt", "test_0", answer.MODULE):
        if name in modules:
            sys.modules[name] = modules[name]
        else:
            sys.modules.pop(name, None)
    sys.argv = arguments
    linecache.cache.clear()
    linecache.cache.update(lines)
