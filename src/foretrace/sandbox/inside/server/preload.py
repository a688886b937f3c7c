"""What the fork server does once, so that no run need: import modules, fill caches, pin the memory that runs change."""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import resource
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

from foretrace.sandbox.inside import child
from foretrace.sandbox.inside.child import Confinement
from foretrace.sandbox.inside.roles import candidate, judge, program
from foretrace.sandbox.inside.roles.compiled_tests import pack_tests
from foretrace.sandbox.inside.server import pinned_pages
from foretrace.sandbox.inside.wire import frames
from foretrace.sandbox.inside.wire.direct_channel import DirectChannel
from foretrace.sandbox.inside.wire.frames import FrameChannel

_MODULES = """
collections typing dataclasses enum re math functools itertools heapq bisect string copy datetime operator
"""
"""What programs import most; each costs them nothing then."""
_REHEARSALS = 12
"""The interpreter rewrites code that it has run some eight times."""
_CODE = "def f(x):\n    return [x, {'a': 1.5}]\nassert f(1)\n"
_ANSWER = {"code": _CODE, "needs": ["f"], "limits": {"reply_kb": 512}}
_CALLS: dict[str, Any] = {**_ANSWER, "calls": [["f", [1], {}]]}
_TESTED = f"""
{_CODE}
class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item)
    def __len__(self): return len(self.items)
"""
_TESTS: dict[str, Any] = {
    "tests": ["for n in (1, 2):\n    assert f(n) == [n, {'a': 1.5}]\ns = Stack()\ns.push(1)\nassert len(s) == 1"],
    "setup": "",
    "names": ["Stack", "f"],
    "helpers": "",
    "entry_point": "f",
    "console": False,
    "shares": [],
}
_TESTS["compiled"] = pack_tests((*_TESTS["tests"],), (*_TESTS["names"],))
_LINE_BUFFERED_WRITES = 4000
"""Writes to stdout that are passed on line by line; `print` makes two or more of each line."""
_WAIT_AT_EXIT = "print(f(1))\nimport atexit, os\natexit.register(lambda: (os.write(3, b'.'), os.read(3, 1)))\n"
"""Makes a program send one byte at its very end, and wait."""
_WAIT_IN_CALL = "import os\ndef wait(): os.read(3, 1)\n"
"""A call that waits: a process that has ended says nothing of its memory."""


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
    # What these three do at each fork costs a fifth of a run. A fork server has one thread, and wants the same random
    # numbers in every child; a session, which forks code that may have threads, sees to them itself. So none of them
    # may be imported before this.
    register, os.register_at_fork = os.register_at_fork, lambda **_: None
    try:
        for module in ("random", "threading", "logging", *_MODULES.split()):
            __import__(module)
    finally:
        os.register_at_fork = register
    sys.modules["random"].seed(0)
    for _ in range(_REHEARSALS):
        _rehearse(candidate.serve, _CALLS)
        _rehearse(lambda channel, _: program.live(channel), {}, ["block", _CODE])
        _rehearse(_judge_here, {})
        _talk_here()


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


def _rehearse(serve: Callable[[Any, Any], None], *messages: Any) -> int:
    """Do here what a child does, for the caches that this fills are every child's; return how many bytes it sends."""
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
        sent = len(ours.recv(1 << 16))
    for name in ("__main__", "pytest", "setup", "prompt", "test_0", candidate.MODULE):
        if name in modules:
            sys.modules[name] = modules[name]
        else:
            sys.modules.pop(name, None)
    sys.argv = arguments
    linecache.cache.clear()
    linecache.cache.update(lines)
    return sent


class _Conversation:
    """The channel between tests and an answer, where both are in this process: each question is answered at once."""

    def __init__(self) -> None:
        printed, errors = candidate.PrintedText(io.StringIO()), candidate.PrintedText(io.StringIO())
        self._answers: list[Any] = []
        self._peer = candidate.CandidatePeer(self, 1 << 16, printed, errors)
        self._peer.namespace = candidate.load_module(_TESTED)

    def send(self, message: Any) -> None:
        """Send what the tests ask or report, or what the answer says to it."""
        message = frames.unpack_frame(frames.pack_frame(message)[frames.HEADER.size :])
        if message[0] == "q":
            self._peer.take_turn(message)
        else:
            self._answers.append(message)

    def send_all(self, messages: list[Any]) -> None:
        """Send several messages."""
        for message in messages:
            self.send(message)

    def receive(self) -> Any:
        """What the answer said."""
        return self._answers.pop()


def _judge_here(_: Any, __: Any) -> None:
    """Judge an answer by tests, with both in this process."""
    judge.serve(_Conversation(), _TESTS)


class _ReadyParent:
    """The parent that tells the tests' process that the code is loaded."""

    def receive(self) -> Any:
        """Its one message."""
        return ["ready", 60.0]

    def send_all(self, messages: list[Any]) -> None:
        """Hear how it ended."""


def _talk_here() -> None:
    """Ask a question over a socket, as tests do where they have one, and answer it here."""
    ours, theirs = socket.socketpair()
    channel = DirectChannel(_ReadyParent(), ours.detach(), 1 << 16)
    theirs.sendall(frames.pack_frame(["v", 1, None, None]))
    channel.send(["q", "get", "", [], {}, None, None])
    channel.receive()
    channel.send_all([])
    theirs.close()


def pin_changed_pages(ring: int, pages: pinned_pages.MemoryPages, confinement: Confinement) -> int:
    """Have the memory that runs change copied by each fork (see `pinned_pages`), and return how many bytes that is."""
    if ring < 0:
        return 0
    size = _rehearse(candidate.serve, _CALLS)
    waiting = {**_CALLS, "code": _CODE + _WAIT_IN_CALL, "calls": [*_CALLS["calls"], ["wait", [], {}]]}
    by_candidate = _find_changed_pages(pages, confinement, "candidate", (waiting,), size)
    by_run = _find_changed_pages(pages, confinement, "run", ({"code": _CODE + _WAIT_AT_EXIT},), 1)
    return pinned_pages.pin_pages(ring, by_candidate | by_run)


def _find_changed_pages(
    pages: pinned_pages.MemoryPages, confinement: Confinement, role: str, messages: tuple[Any, ...], size: int
) -> set[int]:
    """The pages that a child changes until it has sent `size` bytes; this process itself changes as few as it can."""
    ours, theirs = socket.socketpair()
    null = os.open("/dev/null", os.O_RDWR)
    limits = [(resource.RLIMIT_CORE, 0, 0)]
    areas = pages.find_areas()
    ours.sendall(b"".join(map(frames.pack_frame, messages)))
    pid = os.fork()
    if pid == 0:
        child.main(confinement, role, limits, (null, null, null, theirs.fileno()))
    theirs.close()
    try:
        sent = len(ours.recv(size, socket.MSG_WAITALL))
    except ConnectionError:
        sent = 0
    # A child that has ended shares nothing: then all pages would count as changed.
    changed = pages.find_unshared(areas) if sent == size else set[int]()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    ours.close()
    os.close(null)
    return changed
