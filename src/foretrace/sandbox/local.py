"""The local sandbox: fork servers on this machine, at the highest isolation level that passes its self-test."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path

import msgspec

from foretrace.core.errors import ForetraceWarning, SandboxError, Setting
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.forkserver.pool import ForkServerPool
from foretrace.sandbox.forkserver.sandbox import MIN_STRONG_LEVEL, ForkServerSandbox, VerifiedPool
from foretrace.sandbox.forkserver.server_process import ForkServerStartError, LaunchSpec
from foretrace.sandbox.inside import syscalls

_MAX_LEVEL = 3


class LocalSandbox(ForkServerSandbox):
    """Runs untrusted Python in fresh children of fork servers (see `base.Sandbox`)."""

    name = "local"

    def __init__(self, settings: SandboxSettings | None = None) -> None:
        super().__init__(settings)
        self._interpreter = os.path.abspath(self._settings.interpreter or sys.executable)

    async def _start_pool(self) -> VerifiedPool:
        lowest = self._min_level()
        if lowest > _MAX_LEVEL:
            raise SandboxError(
                f"the local sandbox reaches level {_MAX_LEVEL}, and {lowest} was asked for: give ",
                Setting("sandbox", "docker"),
            )
        refused: dict[int, str] = {}
        highest = _MAX_LEVEL if sys.platform == "linux" and syscalls.NUMBERS else 0
        asked = self._settings.level
        for level in range(highest, -1, -1) if asked is None else [min(asked, _MAX_LEVEL)]:
            verified = await self._try_level(level, refused)
            if verified is None:
                continue
            if verified.isolation.level < lowest:
                verified.pool.close()
                break
            self._warn_or_log(verified.isolation, refused)
            if verified.isolation.level < MIN_STRONG_LEVEL and sys.platform == "linux":
                # There, code can open this user's files, but must not read this process, which has the expected values.
                syscalls.call("prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0)
            for number, guard in enumerate(verified.guards):  # one that is off says why its level is not available
                if not guard.on and (why := refused.get(guard.level)):
                    verified.guards[number] = msgspec.structs.replace(guard, remedy=f"level {guard.level}: {why}")
            return verified
        raise SandboxError(*explain_level(lowest, refused))

    async def _try_level(self, level: int, refused: dict[int, str]) -> VerifiedPool | None:
        """A pool of that level that passed its self-test; None if it was refused, with the reason in `refused`."""
        launch = LaunchSpec(interpreter=self._interpreter, level=level, preload=self._preload)
        pool = ForkServerPool(launch, self._workers, self._settings.max_sessions)
        try:
            guards = await self._run_selftest(pool)
        except ForkServerStartError as error:
            if error.call in ("", "execve"):
                raise SandboxError(explain_no_start(self._interpreter, self._preload, str(error))) from None
            refused[level] = explain_refusal(str(error), error.call)
            return None
        except OSError as error:
            raise SandboxError(f"the self-test needs a folder for temporary files: {error}; set TMPDIR") from None
        off = [guard for guard in guards if not guard.on]
        if failed := [f"{guard.name} ({guard.reason})" for guard in off if guard.level <= level]:
            refused[level] = f"the self-test failed: {'; '.join(failed)}"
            pool.close()
            return None
        missing = tuple(guard.name for guard in off)
        return VerifiedPool(pool, Isolation(level=level, missing=missing, sandbox=self.name), guards)

    @staticmethod
    def _warn_or_log(isolation: Isolation, refused: dict[int, str]) -> None:
        why = _list_reasons(refused)
        if isolation.level < MIN_STRONG_LEVEL:
            warnings.warn(
                f"untrusted code runs at isolation level {isolation.level} ({why or 'as asked'}); "
                f"not in force: {', '.join(isolation.missing)}",
                ForetraceWarning,
                stacklevel=5,
            )
        elif why:
            logging.getLogger("foretrace.sandbox").warning("isolation level %d: %s", isolation.level, why)


def explain_refusal(message: str, call: str) -> str:
    """The call that failed, and what would allow it."""
    remedies = {
        "seccomp": "needs a kernel with seccomp filters, and a container that allows seccomp(2)",
        "madvise": "needs Linux 4.14 or later, whose MADV_WIPEONFORK keeps one run's data from the next",
        "landlock": "needs a kernel with Landlock (5.13 or later, with landlock in its `lsm=` list)",
        **dict.fromkeys(_NAMESPACE_CALLS, _suggest_namespaces()),
    }
    remedy = remedies.get(call.partition("_")[0] if call.startswith("landlock") else call)
    text = message.removeprefix("CallError: ")
    return f"{text}; {remedy}" if remedy else text


_NAMESPACE_CALLS = ("unshare", "mount", "umount2", "pivot_root", "sethostname", "write /proc/self/uid_map")
_SYSCTLS = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user/max_user_namespaces", "0", "15000"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
)
"""Kernel settings that forbid user namespaces: name, the value that forbids, and one that allows them."""


def _suggest_namespaces() -> str:
    for name, forbids, allows in _SYSCTLS:
        try:
            is_forbidden = Path("/proc/sys", name).read_text("ascii").strip() == forbids
        except OSError:
            continue
        if is_forbidden:
            return f"the kernel's settings forbid user namespaces: sysctl -w {name.replace('/', '.')}={allows}"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "the container forbids user namespaces: start it with a seccomp profile that allows unshare and mount"
    return "user namespaces are forbidden here (a container's seccomp profile, or a setting of the kernel)"


def explain_level(lowest: int, reasons: dict[int, str]) -> tuple[str | Setting, ...]:
    """Why no high enough level is available, as parts of an error."""
    weaker = ("or accept weaker isolation with ", Setting("allow_weak_isolation", True))
    if sys.platform != "linux":
        here = f"isolation level {lowest} needs Linux, and this is {sys.platform}: give "
        return here, Setting("sandbox", "docker"), ", ", *weaker
    why = _list_reasons(reasons) or "a lower one was asked for"
    return f"isolation level {lowest} is not to be had here: {why}; mend that, ", *weaker


def _list_reasons(refused: dict[int, str]) -> str:
    return "; ".join(f"level {level}: {reason}" for level, reason in sorted(refused.items(), reverse=True))


def explain_no_start(interpreter: str, preload: tuple[str, ...], message: str) -> str:
    if not os.path.exists(interpreter):
        return f"no interpreter at {interpreter}: name an existing Python 3.11 or later"
    if preload and "Module" in message:
        return f"cannot preload {'+'.join(preload)} in {interpreter}: {message}; install it there"
    return message


PLUGIN = LocalSandbox
