"""What a fresh child does: take its four descriptors, give up its privileges for good, and serve its request."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from foretrace.sandbox.inside import answer, program, syscalls, test_runner, together
from foretrace.sandbox.inside.seccomp import SeccompFilter
from foretrace.sandbox.inside.wire import FrameChannel

ROLES: dict[str, Callable[[FrameChannel, dict[str, Any]], int | None]] = {
    "run": program.run,
    "replay": program.replay,
    "answer": answer.serve,
    "tests": test_runner.serve,
    "together": together.serve,
}
"""By a request's mode: what serves it; may return an exit code."""
CHANNEL_FD = 3
"""Descriptor of the channel to the parent; the fork server forwards its bytes."""
_close_others = syscalls.prepare_call("close_range", CHANNEL_FD + 1, 0x7FFFFFFF, 0) if syscalls.NUMBERS else None


class Confinement:
    """How a child gives up its privileges, prepared by the fork server so that it takes each run little time."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.server_pid = os.getpid()
        self.scratch = "/"
        """The folder in which code starts. Code may write to it at level 3 and below level 2."""
        self.user: int | None = None
        """The user and group that a child switches to, if it can."""
        self.calls: list[Callable[[], int]] = []
        """The calls that give up privileges, in order."""
        self.filter: SeccompFilter | None = None
        """System call filter of a run."""
        self.session_filter: SeccompFilter | None = None
        """System call filter of a session that forks."""

    def prepare(self, rules: int | None) -> None:
        """Prepare the calls of this level; `rules` is the descriptor of the Landlock rules."""
        if sys.platform != "linux":
            return
        if self.user is None and (self.level == 3 or os.getuid() == 0):  # it gives up all capabilities
            self.calls.append(syscalls.prepare_call("capset", struct.pack("=II", 0x20080522, 0), bytes(24)))
        options = [(syscalls.PR_SET_DUMPABLE, 0)] if self.level else []
        if self.level < 3:  # there, the pid namespace ends with the fork server
            options.append((syscalls.PR_SET_PDEATHSIG, int(signal.SIGKILL)))
        self.calls += [syscalls.prepare_call("prctl", option, value, 0, 0, 0) for option, value in options]
        if rules is not None:
            self.calls.append(syscalls.prepare_call("landlock_restrict_self", rules, 0))


def main(confinement: Confinement, role: str, rlimits: list[tuple[int, int]], descriptors: tuple[int, ...]) -> NoReturn:
    """Enter the confinement, then serve the request that arrives on the channel in its role. Never returns. The
    `descriptors` (stdin, stdout, stderr, channel) are all above 3."""
    code = 1
    try:
        place_descriptors(descriptors)
        enter_confinement(confinement, rlimits)
        channel = FrameChannel(CHANNEL_FD)
        request = channel.receive()
        if request is not None:  # else the parent has gone
            exit_code = ROLES[role](channel, request)
            for stream in (sys.stdout, sys.stderr) if exit_code is None else ():  # a program has flushed them
                with contextlib.suppress(Exception):
                    stream.flush()
            code = exit_code or 0
    except BaseException as error:  # the confinement failed: the parent sees a run that sent nothing
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace")[:500])
    finally:
        program.exit_process(code)


def place_descriptors(descriptors: tuple[int, ...]) -> None:
    """Put the descriptors at 0 to 3, inheritable and blocking."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)


def enter_confinement(confinement: Confinement, rlimits: list[tuple[int, int]], *, forks: bool = False) -> int:
    """Give up privileges, in an order in which each step is still allowed; close all descriptors except 0 to 3.
    Returns, for a session that forks, the descriptor through which the kernel asks the fork server about new
    processes."""
    os.setsid()
    if confinement.level < 2:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the fork server's handler is not for children
    for kind, limit in rlimits:
        resource.setrlimit(kind, (limit, limit))
    os.chdir(confinement.scratch)
    if confinement.user is not None:
        become_user(confinement.user)
    for call in confinement.calls:
        call()
    if confinement.level and os.getppid() != confinement.server_pid:
        os._exit(1)  # the fork server died before this child had asked to die with it
    if _close_others is not None:
        _close_others()
    else:
        os.closerange(CHANNEL_FD + 1, os.sysconf("SC_OPEN_MAX"))
    seccomp = confinement.session_filter if forks else confinement.filter
    return seccomp.install(os.getpid()) if seccomp is not None else -1


def become_user(user: int) -> None:
    """Switch to another user without groups, which also drops all capabilities."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def make_rlimits(limits: dict[str, Any], confinement: Confinement, *, checkpoints: int = 0) -> list[tuple[int, int]]:
    """Resource limits by kind, within what this process may set. A session needs `checkpoints` processes besides those
    of its code."""
    mib = 1024 * 1024
    wanted = {
        resource.RLIMIT_CPU: int(limits["cpu_s"]) + 2,  # in whole seconds; the fork server is more precise
        resource.RLIMIT_FSIZE: int(limits["file_mb"]) * mib,
        resource.RLIMIT_NOFILE: int(limits["open_files"]),
    }
    if sys.platform == "linux":  # macOS refuses it
        wanted[resource.RLIMIT_AS] = int(limits["memory_mb"]) * mib
    if confinement.level == 3:  # at other levels it would count all processes of the user
        wanted[resource.RLIMIT_NPROC] = int(limits["processes"]) + checkpoints
    found: list[tuple[int, int]] = []
    for kind, limit in wanted.items():
        hard = resource.getrlimit(kind)[1]
        found.append((kind, limit if hard == resource.RLIM_INFINITY else min(limit, hard)))
    return found


def drop_unused_limits() -> None:
    """Have this process, and all its children, leave no core file, lock no memory and make no message queue."""
    for name in ("RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE"):
        if kind := getattr(resource, name, None):
            resource.setrlimit(kind, (0, 0))
