"""What a fresh child does: give up its rights for good, take its four descriptors, run what it was asked to run."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from foretrace.sandbox.inside.channel import Channel
from foretrace.sandbox.inside.confine import syscalls
from foretrace.sandbox.inside.confine.seccomp import Filter
from foretrace.sandbox.inside.roles import candidate, judge, program

MODES = {"candidate": candidate.serve, "judge": judge.serve, "shared": judge.serve_shared}
CHANNEL = 3
_exit = os._exit
"""Kept here: code may put something else in its place."""


class Guards:
    """What a child puts in force, prepared by the fork server so that a run pays as little as possible."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.server = os.getpid()
        self.scratch = "/"
        """The folder in which code starts; it may write there at level 3 and below 2."""
        self.user: int | None = None
        """The user and group that a child becomes, where it can become another one."""
        self.calls: list[Callable[[], int]] = []
        """What gives up rights, in order."""
        self.filter: Filter | None = None
        """System call filter of a run."""
        self.session_filter: Filter | None = None
        """System call filter of a session that forks."""
        self.close = syscalls.prepared("close_range", CHANNEL + 1, 0x7FFFFFFF, 0) if syscalls.NUMBERS else None

    def prepare(self, rules: int | None) -> None:
        """Line up the calls of this level; `rules` is the descriptor of Landlock's."""
        if not self.level:
            if sys.platform == "linux" and self.user is None and os.getuid() == 0:
                self.calls.append(syscalls.dropping_capabilities())
            if sys.platform == "linux":
                self.calls.append(syscalls.prepared("prctl", syscalls.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0))
            return
        if self.user is None and (self.level == 3 or os.getuid() == 0):
            self.calls.append(syscalls.dropping_capabilities())
        self.calls += [
            syscalls.prepared("prctl", syscalls.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0),
            syscalls.prepared("prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0),
            syscalls.prepared("prctl", syscalls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        ]
        if rules is not None:
            self.calls.append(syscalls.prepared("landlock_restrict_self", rules, 0))


def start(
    guards: Guards,
    mode: str,
    limits: list[tuple[int, int, int]],
    descriptors: tuple[int, int, int, int],
) -> None:
    """Enter the guards, then serve the request that comes over the channel. Never returns.

    Args:
        limits: what `limits_of` gave.
        descriptors: stdin, stdout, stderr and the channel, all above 3.
    """
    code = 1
    try:
        take(descriptors)
        enter(guards, limits)
        channel = Channel(CHANNEL)
        request = channel.receive()
        serve = MODES.get(mode)
        if request is None:
            pass  # the parent has gone
        elif serve is not None:
            serve(channel, request)
            _flush()
            code = 0
        elif mode == "live":
            program.live(channel)
        else:
            code = program.run(channel, request["code"])
    except BaseException as error:  # a guard that cannot be entered: the parent sees a run that said nothing
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace")[:500])
    finally:
        leave(code)


def leave(code: int) -> NoReturn:
    """End this process, whatever its code has made of `os`."""
    _exit(code & 0xFF)


def take(descriptors: tuple[int, int, int, int]) -> None:
    """Put the four descriptors at 0 to 3, inheritable and blocking."""
    for target, given in enumerate(descriptors):
        os.dup2(given, target)


def take_one(descriptor: int) -> None:
    """The same for a process that has only a channel yet: nothing to read, nowhere to print."""
    null = os.open("/dev/null", os.O_RDWR)
    take((null, null, null, descriptor))


def enter(guards: Guards, limits: list[tuple[int, int, int]], *, forks: bool = False) -> int:
    """Give up rights, in the order in which each step still may be taken; close all but descriptors 0 to 3.

    Returns:
        For a session that forks: the descriptor by which the fork server is asked for processes.
    """
    os.setsid()
    if guards.level < 2:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the fork server's own way to end is not this one's
    for kind, soft, hard in limits:
        resource.setrlimit(kind, (soft, hard))
    os.chdir(guards.scratch)
    if guards.user is not None:
        become(guards.user)
    for call in guards.calls:
        call()
    if guards.level and os.getppid() != guards.server:
        os._exit(1)  # the fork server died before this child had asked to die with it
    if guards.close is not None:
        guards.close()
    else:
        os.closerange(CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))
    chosen = guards.session_filter if forks else guards.filter
    return chosen.install(os.getpid()) if chosen is not None else -1


def become(user: int) -> None:
    """Be another user, without groups; every capability goes along."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def limits_of(given: dict[str, Any], guards: Guards, *, states: int = 0) -> list[tuple[int, int, int]]:
    """Resource limits as (kind, soft, hard), within what this process may set.

    Args:
        states: processes that a session may need beside those of its code.
    """
    mib = 1024 * 1024
    cpu = max(1, int(given["cpu_s"] + 0.999))
    wanted = {
        "RLIMIT_AS": int(given["memory_mb"]) * mib,
        "RLIMIT_CPU": cpu,
        "RLIMIT_FSIZE": int(given["file_mb"]) * mib,
        "RLIMIT_NOFILE": int(given["open_files"]),
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    if guards.level == 3:  # elsewhere it would count the processes of the whole user
        wanted["RLIMIT_NPROC"] = int(given["processes"]) + states
    if sys.platform != "linux":
        del wanted["RLIMIT_AS"]  # macOS refuses it
    found: list[tuple[int, int, int]] = []
    for name, soft in wanted.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            most = resource.getrlimit(kind)[1]
            hard = soft + 1 if name == "RLIMIT_CPU" else soft
            found.append(
                (kind, *((soft, hard) if most == resource.RLIM_INFINITY else (min(soft, most), min(hard, most))))
            )
    return found


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
