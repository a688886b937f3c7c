"""An ordered list of sandboxes: the first that starts serves, and why the earlier ones do not is on every result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Self

from msgspec.structs import replace

from foretrace.core.errors import SandboxError, UsageError
from foretrace.core.problem import Integrity, RunResult, Test, Verdict
from foretrace.core.trace import Isolation
from foretrace.sandbox.base import Guard, Limits, Sandbox, Session


class FirstThatStarts:
    """A sandbox (see `base.Sandbox`) that is the first of several that starts.

    Args:
        named: sandboxes not started yet, in the order of preference, with the names that the user gave them.
    """

    def __init__(self, named: Sequence[tuple[str, Sandbox]]) -> None:
        if not named:
            raise UsageError("no sandbox is named: name one, e.g. local")
        self._named = list(named)
        self._turn = asyncio.Lock()
        self._serving: Sandbox | None = None
        self._refused: dict[str, str] = {}
        self.name = ",".join(name for name, _ in named)
        """The names in their order; once started, the name of the one that serves."""

    async def start(self) -> Isolation:
        """Start them in turn until one serves; its isolation names, in `refused`, those before it and their reasons.

        Raises:
            SandboxError: none serves; gives the reason of each.
        """
        serving = await self._started()
        return self._stamp(await serving.start())

    async def _started(self) -> Sandbox:
        async with self._turn:
            if self._serving is not None:
                return self._serving
            refused: dict[str, str] = {}
            for name, sandbox in self._named:
                try:
                    await sandbox.start()
                except SandboxError as error:
                    refused[name] = str(error)
                    await sandbox.close()
                    continue
                self._serving, self._refused, self.name = sandbox, refused, name
                self._announce()
                return sandbox
        if len(refused) == 1:
            raise SandboxError(*refused.values())
        raise SandboxError("no sandbox serves: " + "; ".join(f"{name}: {why}" for name, why in refused.items()))

    def _announce(self) -> None:
        for name, why in self._refused.items():
            logging.getLogger("foretrace.sandbox").warning("%s serves, and not %s: %s", self.name, name, why)

    def _stamp(self, isolation: Isolation) -> Isolation:
        return replace(isolation, refused=self._refused | isolation.refused) if self._refused else isolation

    async def guards(self) -> list[Guard]:
        """Each guard of the one that serves."""
        return await (await self._started()).guards()

    async def run(self, code: str, *, stdin: str = "", limits: Limits | None = None) -> RunResult:
        """Run a program (see `base.Sandbox.run`)."""
        result = await (await self._started()).run(code, stdin=stdin, limits=limits)
        return replace(result, isolation=self._stamp(result.isolation))

    async def judge(
        self,
        code: str,
        tests: Sequence[Test],
        *,
        entry_point: str | None = None,
        setup: str = "",
        form: Integrity | None = None,
        limits: Limits | None = None,
    ) -> Verdict:
        """Judge code against tests (see `base.Sandbox.judge`)."""
        serving = await self._started()
        verdict = await serving.judge(code, tests, entry_point=entry_point, setup=setup, form=form, limits=limits)
        return replace(verdict, isolation=self._stamp(verdict.isolation))

    async def session(self, *, limits: Limits | None = None) -> Session:
        """Open a session (see `base.Sandbox.session`)."""
        session = await (await self._started()).session(limits=limits)
        return _Stamped(session, self._stamp) if self._refused else session

    async def close(self) -> None:
        """End all processes."""
        if self._serving is not None:
            await self._serving.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class _Stamped:
    """A session whose results say which sandboxes did not serve."""

    def __init__(self, session: Session, stamp: Callable[[Isolation], Isolation]) -> None:
        self._session, self._stamp = session, stamp
        self.mode = session.mode
        self.head = session.head

    async def run(self, block: str, *, at: int | None = None) -> RunResult:
        result = await self._session.run(block, at=at)
        self.head = self._session.head
        return replace(result, isolation=self._stamp(result.isolation))

    async def close(self) -> None:
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
