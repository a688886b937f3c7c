"""What the fork server does ahead of all runs, so that its children need not: imports, and rehearsals of a run."""

from __future__ import annotations

import json
import linecache
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.inside import child, pinned_pages
from foretrace.sandbox.inside.channel import Channel
from foretrace.sandbox.inside.child import Guards
from foretrace.sandbox.inside.roles import candidate, program
from foretrace.sandbox.inside.wire import frames

_MODULES = """
collections typing dataclasses enum re math functools itertools heapq bisect string copy datetime operator
"""
"""What programs import most; each costs them nothing then."""
_REHEARSALS = 12
"""The interpreter rewrites code that it has run some eight times."""
_CODE = "def f(x):\n    return [x, {'a': 1.5}]\nassert f(1)\n"
_JUDGED: tuple[dict[str, Any], list[Any]] = (
    {"code": _CODE, "needs": ["f"], "limits": {"reply_kb": 512}},
    ["call", "f", [1], {}],
)
_HELD = "print(f(1))\nimport atexit, os\natexit.register(lambda: (os.write(3, b'.'), os.read(3, 1)))\n"
"""Makes a program say one byte at its very end, and wait."""


def warm() -> None:
    """Do once what every child does, so that its pages and caches are there to be shared."""
    import builtins
    import site  # not its start-up: only what it defines for scripts
    import traceback

    # What was printed before a hang or a crash is what its author needs most.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for name, maker in (("exit", "setquit"), ("help", "sethelper")):
        if not hasattr(builtins, name):
            getattr(site, maker)()
    json.loads(json.dumps("é"))
    try:
        exec("1/0")
    except ZeroDivisionError as error:
        traceback.format_exception(type(error), error, error.__traceback__)
    # What these two do after each fork costs a fifth of a run. A fork server has one thread, and wants the same random
    # numbers in every child; a session, which forks code that may have threads, sees to them itself.
    register, os.register_at_fork = os.register_at_fork, lambda **_: None
    try:
        for module in ("random", "threading", *_MODULES.split()):
            __import__(module)
    finally:
        os.register_at_fork = register
    sys.modules["random"].seed(0)
    for _ in range(_REHEARSALS):
        _rehearse(candidate.serve, *_JUDGED)
        _rehearse(lambda channel, _: program.live(channel), {}, ["block", _CODE])


def _rehearse(serve: Callable[[Any, Any], None], *messages: Any) -> int:
    """Do here what a child does, for the caches that this fills are every child's; return how many bytes it says."""
    main, lines = sys.modules["__main__"], dict(linecache.cache)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"".join(map(frames.pack, messages)))
        ours.shutdown(socket.SHUT_WR)
        channel = Channel(theirs.fileno())
        serve(channel, channel.receive())
        said = len(ours.recv(1 << 16))
    sys.modules["__main__"] = main
    sys.modules.pop(candidate.MODULE, None)
    linecache.cache.clear()
    linecache.cache.update(lines)
    return said


def pin(ring: int, pages: pinned_pages.Pages, guards: Guards) -> int:
    """Have the memory that runs change copied by each fork (see `hot`), and return how many bytes that is."""
    if ring < 0:
        return 0
    changed = _changed(pages, guards, "candidate", _JUDGED, _rehearse(candidate.serve, *_JUDGED))
    return pinned_pages.pin(ring, changed | _changed(pages, guards, "run", ({"code": _CODE + _HELD},), 1))


def _changed(pages: pinned_pages.Pages, guards: Guards, mode: str, messages: tuple[Any, ...], size: int) -> set[int]:
    """The pages that a child changes until it has said so many bytes; this process changes as few as it can then."""
    ours, theirs = socket.socketpair()
    null = os.open("/dev/null", os.O_RDWR)
    limits = [(resource.RLIMIT_CORE, 0, 0)]
    areas = pages.areas()
    ours.sendall(b"".join(map(frames.pack, messages)))
    pid = os.fork()
    if pid == 0:
        child.start(guards, mode, limits, (null, null, null, theirs.fileno()))
    theirs.close()
    try:
        said = len(ours.recv(size, socket.MSG_WAITALL))
    except ConnectionError:
        said = 0
    changed = pages.unshared(areas) if said == size else set[int]()  # with one that has gone nothing is shared
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    ours.close()
    os.close(null)
    return changed
