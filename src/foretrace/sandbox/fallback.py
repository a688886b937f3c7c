"""A list of sandboxes: the first that starts is used, and every result says why the earlier ones were not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from foretrace.core.errors import SandboxError, Setting, UsageError
from foretrace.core.problem import RunResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Guard, Sandbox, Session


class FallbackSandbox(Sandbox):
    """A sandbox (see `base.Sandbox`) that uses the first of several that starts.

    Args:
        candidates: names as the user gave them, with sandboxes that are not started yet, in order of preference.
    """

    def __init__(self, candidates: Sequence[tuple[str, Sandbox]]) -> None:
        if not candidates:
            raise UsageError("no sandbox is named: give ", Setting("sandbox", "local"))
        self._candidates = candidates
        self._lock = asyncio.Lock()
        self._serving: Sandbox | None = None
        self._refused: dict[str, str] = {}
        self.name = ",".join(name for name, _ in candidates)
        """All names in order; once started, the name of the sandbox in use."""

    async def start(self) -> Isolation:
        """Start the first sandbox that works. `refused` in its isolation has the earlier ones with their errors; a
        SandboxError has all of them."""
        return self._add_refused(await (await self._ensure_started()).start())

    async def _ensure_started(self) -> Sandbox:
        async with self._lock:
            if self._serving is not None:
                return self._serving
            errors: dict[str, SandboxError] = {}
            for name, sandbox in self._candidates:
                try:
                    await sandbox.start()
                except SandboxError as error:
                    errors[name] = error
                    await sandbox.close()
                    continue
                self._serving, self.name = sandbox, name
                self._refused = {other: str(error) for other, error in errors.items()}
                for other, why in self._refused.items():
                    logging.getLogger("foretrace.sandbox").warning("%s serves, and not %s: %s", name, other, why)
                return sandbox
        if len(errors) == 1:
            raise next(iter(errors.values()))
        parts: list[str | Setting] = []
        for name, error in errors.items():
            parts += ["; " if parts else "no sandbox serves: ", f"{name}: ", *error.parts]
        raise SandboxError(*parts)

    def _add_refused(self, isolation: Isolation) -> Isolation:
        return replace(isolation, refused=self._refused | isolation.refused) if self._refused else isolation

    async def guards(self) -> list[Guard]:
        return await (await self._ensure_started()).guards()

    async def run(self, *args: Any, **options: Any) -> RunResult:
        result = await (await self._ensure_started()).run(*args, **options)
        return replace(result, isolation=self._add_refused(result.isolation))

    async def judge(self, *args: Any, **options: Any) -> Verdict:
        verdict = await (await self._ensure_started()).judge(*args, **options)
        return replace(verdict, isolation=self._add_refused(verdict.isolation))

    async def session(self, **options: Any) -> Session:
        return await (await self._ensure_started()).session(**options)

    async def close(self) -> None:
        if self._serving is not None:
            await self._serving.close()
