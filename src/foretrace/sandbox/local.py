"""The local sandbox: fork servers on this machine, at the highest isolation level that passes its self-test."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Guard, Settings
from foretrace.sandbox.forkserver import selftest
from foretrace.sandbox.forkserver.client import Launch, StartError
from foretrace.sandbox.forkserver.interpreter import packages_of
from foretrace.sandbox.forkserver.pool import Pool
from foretrace.sandbox.forkserver.sandbox import WEAK, ServedSandbox, Serving
from foretrace.sandbox.inside.confine import syscalls

_HIGHEST = 3


class LocalSandbox(ServedSandbox):
    """Runs untrusted Python in fresh children of warm fork servers (see `base.Sandbox`)."""

    name = "local"

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self._interpreter = os.path.abspath(self._settings.interpreter or sys.executable)

    async def _establish(self) -> Serving:
        lowest = self._lowest()
        if lowest > _HIGHEST:
            raise SandboxError(f"the local sandbox reaches level {_HIGHEST}, and {lowest} was asked for: use docker")
        refused: dict[int, str] = {}
        for level in self._ladder():
            serving = await self._try(level, refused)
            if serving is None:
                continue
            if serving.isolation.level < lowest:
                serving.pool.close()
                break
            try:
                await serving.pool.warm(self._workers)
            except BaseException:
                serving.pool.close()
                raise
            self._announce(serving.isolation, refused)
            if serving.isolation.level < WEAK and sys.platform == "linux":
                # Code can open files of this user there: it shall not read this process, which knows what is expected.
                syscalls.call("prctl", syscalls.PR_SET_DUMPABLE, 0, 0, 0, 0)
            return serving._replace(guards=[_explained(guard, refused) for guard in serving.guards])
        raise SandboxError(too_weak(lowest, refused))

    def _ladder(self) -> list[int]:
        highest = _HIGHEST if sys.platform == "linux" and selftest.known_machine() else 0
        if self._settings.level is not None:
            return [min(self._settings.level, _HIGHEST)]
        return list(range(highest, -1, -1))

    async def _try(self, level: int, refused: dict[int, str]) -> Serving | None:
        """A pool of that level with what its self-test found, or None with the reason put into `refused`."""
        launch = Launch(
            interpreter=self._interpreter,
            level=level,
            preload=self._preload,
            path=await packages_of(self._interpreter) if self._preload else (),
        )
        pool = Pool(launch, self._workers, self._settings.max_sessions)
        try:
            await pool.warm(1)
            guards = await self._test(pool, self._interpreter)
        except StartError as error:
            pool.close()
            if error.call in ("", "execve"):
                raise SandboxError(no_start(self._interpreter, self._preload, str(error))) from None
            refused[level] = explain_refusal(str(error), error.call)
            return None
        except OSError as error:
            pool.close()
            raise SandboxError(f"the self-test needs a folder for temporary files: {error}; set TMPDIR") from None
        except BaseException:
            pool.close()
            raise
        real = min(selftest.level_of(guards), level)
        off = tuple(guard.name for guard in guards if not guard.on)
        if real < level:
            pool.close()
            failed = [guard for guard in guards if not guard.on and guard.level <= level]
            refused[level] = "the self-test failed: " + "; ".join(f"{g.name} ({g.reason})" for g in failed)
            return None
        return Serving(pool, Isolation(level=real, missing=off, sandbox=self.name), guards)

    def _announce(self, isolation: Isolation, refused: dict[int, str]) -> None:
        why = "; ".join(f"level {level}: {reason}" for level, reason in sorted(refused.items(), reverse=True))
        if isolation.level < WEAK:
            warnings.warn(
                f"untrusted code runs at isolation level {isolation.level} ({why or 'as asked'}); "
                f"not in force: {', '.join(isolation.missing)}",
                stacklevel=5,
            )
        elif why:
            logging.getLogger("foretrace.sandbox").warning("isolation level %d: %s", isolation.level, why)


def _explained(guard: Guard, refused: dict[int, str]) -> Guard:
    """A guard that is off, with what kept its level from being had."""
    why = refused.get(guard.level)
    return guard if guard.on or why is None else msgspec.structs.replace(guard, remedy=f"level {guard.level}: {why}")


PLUGIN = LocalSandbox


_WEAKER = "or accept weaker isolation explicitly (allow_weak_isolation=True, --allow-weak-isolation)"


def explain_refusal(message: str, call: str) -> str:
    """The failing call, and what would allow it."""
    remedy = (
        _for_namespaces()
        if call in ("unshare", "mount", "umount2", "pivot_root", "sethostname", "write /proc/self/uid_map")
        else ""
    )
    if call.startswith("landlock"):
        remedy = "needs a kernel with Landlock (5.13 or later, with landlock in its `lsm=` list)"
    if call == "seccomp":
        remedy = "needs a kernel with seccomp filters, and a container that allows seccomp(2)"
    if call == "madvise":
        remedy = "needs Linux 4.14 or later, whose MADV_WIPEONFORK keeps one run's data from the next"
    text = message.removeprefix("CallError: ")
    return f"{text}; {remedy}" if remedy else text


def _for_namespaces() -> str:
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor forbids user namespaces: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give this "
            "Python an AppArmor profile with `userns,`"
        )
    if _setting("user/max_user_namespaces") == "0":
        return "sysctl -w user.max_user_namespaces=15000"
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "sysctl -w kernel.unprivileged_userns_clone=1"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "the container forbids user namespaces: start it with a seccomp profile that allows unshare and mount"
    return "user namespaces are forbidden here (a container's seccomp profile, or a setting of the kernel)"


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text("ascii").strip()
    except OSError:
        return None


def too_weak(lowest: int, reasons: dict[int, str]) -> str:
    """Why no level that is high enough is to be had."""
    if sys.platform != "linux":
        return f"isolation level {lowest} needs Linux, and this is {sys.platform}: use --sandbox docker, {_WEAKER}"
    why = "; ".join(f"level {level}: {reason}" for level, reason in sorted(reasons.items(), reverse=True))
    return f"isolation level {lowest} is not to be had here: {why or 'a lower one was asked for'}; mend that, {_WEAKER}"


def no_start(interpreter: str, preload: tuple[str, ...], message: str) -> str:
    """Why an interpreter does not come up."""
    if not os.path.exists(interpreter):
        return f"no interpreter at {interpreter}: name an existing Python 3.11 or later"
    if preload and "Module" in message:
        return f"cannot preload {'+'.join(preload)} in {interpreter}: {message}; install it there"
    return message
