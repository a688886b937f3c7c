"""The local sandbox: fork servers on this machine, at the highest isolation level that passes its self-test."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.core.trace import Isolation
from foretrace.sandbox import _guards, _remedies
from foretrace.sandbox._inside import syscalls
from foretrace.sandbox._interpreter import packages_of
from foretrace.sandbox._pool import Pool
from foretrace.sandbox._serving import WEAK, ServedSandbox, Serving
from foretrace.sandbox._worker import Launch, StartError
from foretrace.sandbox.base import Guard, Settings

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
        raise SandboxError(_remedies.too_weak(lowest, refused))

    def _ladder(self) -> list[int]:
        highest = _HIGHEST if sys.platform == "linux" and _guards.known_machine() else 0
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
                raise SandboxError(_remedies.no_start(self._interpreter, self._preload, str(error))) from None
            refused[level] = _remedies.refused(str(error), error.call)
            return None
        except OSError as error:
            pool.close()
            raise SandboxError(f"the self-test needs a folder for temporary files: {error}; set TMPDIR") from None
        except BaseException:
            pool.close()
            raise
        real = min(_guards.level_of(guards), level)
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
