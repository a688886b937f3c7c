"""What a fresh child does: take its four descriptors, give up its rights for good, and play its role."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from foretrace.sandbox.inside.confine import syscalls
from foretrace.sandbox.inside.confine.seccomp import SeccompFilter
from foretrace.sandbox.inside.roles import answer, program, tests, together
from foretrace.sandbox.inside.wire.frames import FrameChannel

ROLES = {"answer": answer.serve, "tests": tests.serve, "together": together.serve}
CHANNEL_FD = 3
"""The channel to the parent; the fork server passes its bytes on."""
_exit = os._exit
"""Held here: code may put something else in its place."""


class Confinement:
    """How a child gives up its rights, prepared by the fork server so that a run pays as little as possible."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.server_pid = os.getpid()
        self.scratch = "/"
        """The folder in which code starts; it may write there at level 3 and below 2."""
        self.user: int | None = None
        """The user and group that a child becomes, where it can become another one."""
        self.calls: list[Callable[[], int]] = []
        """What gives up rights, in order."""
        self.filter: SeccompFilter | None = None
        """System call filter of a run."""
        self.session_filter: SeccompFilter | None = None
        """System call filter of a session that forks."""
        first = CHANNEL_FD + 1
        self._close = syscalls.prepare_call("close_range", first, 0x7FFFFFFF, 0) if syscalls.NUMBERS else None

    def prepare(self, rules: int | None) -> None:
        """Prepare the calls of this level; `rules` is the descriptor of the Landlock rules, None without them."""
        if not self.level:
            if sys.platform == "linux" and self.user is None and os.getuid() == 0:
                self.calls.append(syscalls.prepare_capability_drop())
            if sys.platform == "linux":
                self.calls.append(
                    syscalls.prepare_call("prctl", syscalls.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
                )
            return
        if self.user is None and (self.level == 3 or os.getuid() == 0):
            self.calls.append(syscalls.prepare_capability_drop())
        self.calls += [
            syscalls.prepare_call("prctl", syscalls.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0),
            syscalls.prepare_call("prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0),
            syscalls.prepare_call("prctl", syscalls.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        ]
        if rules is not None:
            self.calls.append(syscalls.prepare_call("landlock_restrict_self", rules, 0))

    def close_others(self) -> None:
        """Close all descriptors behind the channel's."""
        if self._close is not None:
            self._close()
        else:
            os.closerange(CHANNEL_FD + 1, os.sysconf("SC_OPEN_MAX"))


def main(
    confinement: Confinement,
    role: str,
    rlimits: list[tuple[int, int, int]],
    descriptors: tuple[int, ...],
) -> NoReturn:
    """Enter the confinement, then serve the request that comes over the channel. Never returns.

    Args:
        role: the request's `mode`: a key of `ROLES`, `replay` for blocks of a session, `run` for a program.
        rlimits: what `make_rlimits` gave.
        descriptors: stdin, stdout, stderr, the channel, all above 3.
    """
    code = 1
    try:
        place_descriptors(descriptors)
        enter_confinement(confinement, rlimits)
        channel = FrameChannel(CHANNEL_FD)
        request = channel.receive()
        serve = ROLES.get(role)
        if request is None:
            pass  # the parent has gone
        elif serve is not None:
            serve(channel, request)
            _flush()
            code = 0
        elif role == "replay":
            program.replay(channel, request["blocks"])
            code = 0
        else:
            code = program.run(channel, request["code"])
    except BaseException as error:  # a confinement that cannot be entered: the parent sees a run that said nothing
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace")[:500])
    finally:
        exit_process(code)


def exit_process(code: int) -> NoReturn:
    """End this process, whatever its code has made of `os`."""
    _exit(code & 0xFF)


def place_descriptors(descriptors: tuple[int, ...]) -> None:
    """Put the descriptors at 0 to 3, inheritable and blocking."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)


def place_channel(descriptor: int) -> None:
    """The same for a process that has only a channel yet, and /dev/null for all else."""
    null = os.open("/dev/null", os.O_RDWR)
    place_descriptors((null, null, null, descriptor))


def enter_confinement(confinement: Confinement, rlimits: list[tuple[int, int, int]], *, forks: bool = False) -> int:
    """Give up rights, in the order in which each step still may be taken; close all descriptors but 0 to 3.

    Returns:
        For a session that forks: the descriptor by which the kernel asks the fork server about new processes.
    """
    os.setsid()
    if confinement.level < 2:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the fork server's own way to end is not this one's
    for kind, soft, hard in rlimits:
        resource.setrlimit(kind, (soft, hard))
    os.chdir(confinement.scratch)
    if confinement.user is not None:
        become_user(confinement.user)
    for call in confinement.calls:
        call()
    if confinement.level and os.getppid() != confinement.server_pid:
        os._exit(1)  # the fork server died before this child had asked to die with it
    confinement.close_others()
    seccomp = confinement.session_filter if forks else confinement.filter
    return seccomp.install(os.getpid()) if seccomp is not None else -1


def become_user(user: int) -> None:
    """Become another user, without groups; all capabilities are dropped with that."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def make_rlimits(
    limits: dict[str, Any], confinement: Confinement, *, checkpoints: int = 0
) -> list[tuple[int, int, int]]:
    """Resource limits as (kind, soft, hard), within what this process may set.

    Args:
        limits: the fields of `base.Limits`.
        checkpoints: processes that a session may need beside those of its code.
    """
    mib = 1024 * 1024
    wanted = {
        "RLIMIT_AS": int(limits["memory_mb"]) * mib,
        "RLIMIT_CPU": int(limits["cpu_s"]) + 2,  # in whole seconds; the fork server looks more closely
        "RLIMIT_FSIZE": int(limits["file_mb"]) * mib,
        "RLIMIT_NOFILE": int(limits["open_files"]),
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    if confinement.level == 3:  # elsewhere it would count the processes of the whole user
        wanted["RLIMIT_NPROC"] = int(limits["processes"]) + checkpoints
    if sys.platform != "linux":
        del wanted["RLIMIT_AS"]  # macOS refuses it
    found: list[tuple[int, int, int]] = []
    for name, soft in wanted.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            max_hard = resource.getrlimit(kind)[1]
            if max_hard != resource.RLIM_INFINITY:
                soft = min(soft, max_hard)
            found.append((kind, soft, soft))
    return found


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
