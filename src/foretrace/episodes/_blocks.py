"""The blocks of one episode: the code that stands so far, and the session in which it ran."""

from __future__ import annotations

from typing import NamedTuple

from foretrace.core.errors import SandboxError
from foretrace.core.problem import RunResult
from foretrace.episodes._fixes import kept_in_place, plans
from foretrace.sandbox.base import Sandbox, Session


class _Block(NamedTuple):
    """One block that stands, and the state of the session after it (null where it was not run)."""

    code: str
    state: int | None = None


class Blocks:
    """Blocks accumulate; one that fails is no part of them, and a fix takes the place of what it fixes."""

    def __init__(self, sandbox: Sandbox, prelude: str = "") -> None:
        self._sandbox = sandbox
        self._prelude = prelude
        """Code that a session starts with and that is no part of the answer."""
        self._session: Session | None = None
        self._start = 0
        self._blocks: list[_Block] = []

    @property
    def code(self) -> str:
        """All that stands, in order."""
        return "\n\n".join(block.code.strip("\n") for block in self._blocks) + "\n" * bool(self._blocks)

    @property
    def ran(self) -> bool:
        """Whether all that stands was run in the session."""
        return all(block.state is not None for block in self._blocks)

    def keep(self, code: str) -> None:
        """Add a block without running it."""
        mended = kept_in_place(self.code, code)
        self._blocks = [*self._blocks, _Block(code)] if mended is None else [_Block(mended)]

    async def run(self, code: str) -> RunResult:
        """Run the next block on all that stands; what it defines anew takes the place of what it replaces.

        The answer is that of the block as it was written, run on the session as it is: the model sees what it would
        see in a notebook. Where it replaces something, what follows is run again behind it, so that nothing is left
        of what the old code had computed; where that fails, the block stands last instead.
        """
        result = await self.peek(code)
        if not result.ok:
            return result
        session = self._session
        for plan in plans([block.code for block in self._blocks], code):
            if made := await self._again(plan.place, plan.blocks):
                self._blocks[plan.place :] = made
                return result
        if self._session is not session:  # lost on the way, and its states with it
            result = await self.peek(code)
        if result.ok:
            self._blocks.append(_Block(code, result.step))
        return result

    async def peek(self, code: str) -> RunResult:
        """Run code on all that stands, and leave it as it was."""
        session = await self._open()
        try:
            return await session.run(code, at=self._state_before(len(self._blocks)))
        except SandboxError:  # code can end its own session
            session = await self._reopen()
            return await session.run(code, at=self._state_before(len(self._blocks)))

    async def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _state_before(self, place: int) -> int:
        states = [block.state for block in self._blocks[:place] if block.state is not None]
        return states[-1] if states else self._start

    async def _again(self, place: int, codes: list[str]) -> list[_Block] | None:
        """The blocks run one after the other from a place on, null where one fails."""
        session = await self._open()
        made: list[_Block] = []
        state = self._state_before(place)
        for code in codes:
            try:
                result = await session.run(code, at=state)
            except SandboxError:
                await self._reopen()
                return None
            if result.step is None:
                return None
            state = result.step
            made.append(_Block(code, state))
        return made

    async def _open(self) -> Session:
        if self._session is None:
            self._session = session = await self._sandbox.session()
            self._start = 0
            if self._prelude:
                self._start = (await session.run(self._prelude)).step or 0
        return self._session

    async def _reopen(self) -> Session:
        """A new session in which all that stands was run again.

        Raises:
            SandboxError: there is none to be had, or a block does not run again.
        """
        await self.close()
        session = await self._open()
        codes, self._blocks = [block.code for block in self._blocks], []
        for code in codes:
            result = await session.run(code, at=self._state_before(len(self._blocks)))
            if result.step is None:
                raise SandboxError("the session was lost, and its blocks did not run again")
            self._blocks.append(_Block(code, result.step))
        return session
