"""The code blocks of one episode, and the sandbox session in which they run."""

from __future__ import annotations

import asyncio
import functools
from typing import NamedTuple

from foretrace.actions.memory_only import changes_memory_only
from foretrace.core.errors import SandboxError
from foretrace.core.problem import RunResult
from foretrace.episodes.redefinitions import find_replacements, replace_unrun
from foretrace.episodes.speculation import EarlyRuns, Operation
from foretrace.sandbox.base import Sandbox, Session


class _CodeBlock(NamedTuple):
    """One block of the answer, and the state of the session after it (`None` if it was not run)."""

    code: str
    state: int | None = None


class CodeBlocks:
    """The blocks of an answer. A block that raises is not added; a new definition of a name replaces the old one."""

    def __init__(self, sandbox: Sandbox, prelude: str = "", early: EarlyRuns | None = None) -> None:
        self._sandbox, self._early = sandbox, early or EarlyRuns()
        self._prelude = prelude
        """Code that each session starts with, which is not part of the answer."""
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._start = 0
        self._blocks: list[_CodeBlock] = []

    @property
    def code(self) -> str:
        return "\n\n".join(block.code.strip("\n") for block in self._blocks) + "\n" * bool(self._blocks)

    @property
    def all_ran(self) -> bool:
        return all(block.state is not None for block in self._blocks)

    def append(self, code: str) -> None:
        """Add a block without running it."""
        replaced = replace_unrun(self.code, code)
        self._blocks = [*self._blocks, _CodeBlock(code)] if replaced is None else [_CodeBlock(replaced)]

    async def run(self, code: str) -> RunResult:
        """Run a block in the session, and add it to the answer if it does not raise.

        Returns the result of the block, as in a notebook. If the block redefines something, the new definition replaces
        the old one, and all later blocks run again, so that no value computed by the old code remains. If that fails,
        the block is added after the others.
        """
        result = await self.run_detached(code)
        if not result.ok:
            return result
        session = self._session
        for replacement in find_replacements([block.code for block in self._blocks], code):
            opened = await self.open()
            try:
                blocks = await self._run_chain(opened, replacement.start, replacement.blocks)
            except SandboxError:
                await self._reopen()
                continue
            if blocks:
                self._blocks[replacement.start :] = blocks
                return result
        if self._session is not session:  # it was lost meanwhile, along with its states
            result = await self.run_detached(code)
        if result.ok:
            self._blocks.append(_CodeBlock(code, result.step))
        return result

    async def run_detached(self, code: str) -> RunResult:
        """Run code after all blocks without adding it; later runs do not see its effects."""
        session = await self.open()
        try:
            return await self._run_block(session, code, self._find_state_before(len(self._blocks)))
        except SandboxError:  # code can end its own session
            session = await self._reopen()
            return await session.run(code, at=self._find_state_before(len(self._blocks)))

    async def _run_block(self, session: Session, code: str, at: int) -> RunResult:
        run = functools.partial(session.run, code, at=at)
        return await self._early.take(self._make_operation(code, session, at), run)

    def changes_memory_only(self, code: str) -> bool:
        """Whether running code after all blocks can only change memory (see `actions.memory_only`)."""
        return all(changes_memory_only(each) for each in (code, *(block.code for block in self._blocks)))

    def list_operations(self, code: str, *, added: bool = True) -> list[Operation]:
        """The operations of running code after all blocks, if the session is open: the block itself and, if it is to be
        added and redefines something, the first block that is run again."""
        if self._session is None:
            return []
        at = self._find_state_before(len(self._blocks))
        operations = [self._make_operation(code, self._session, at)]
        for replacement in find_replacements([block.code for block in self._blocks], code)[:1] if added else ():
            before = self._find_state_before(replacement.start)
            operations.append(self._make_operation(replacement.blocks[0], self._session, before))
        return operations

    def _make_operation(self, code: str, session: Session, at: int) -> Operation:
        """Running a block on a state of the session. Without speculation, a session need not number its blocks."""
        number = 0 if self._early.speculation is None else session.next_number(at)
        return Operation(code, None, session, at, number)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _find_state_before(self, index: int) -> int:
        """The state of the session after the blocks before `index`."""
        states = [block.state for block in self._blocks[:index] if block.state is not None]
        return states[-1] if states else self._start

    async def _run_chain(self, session: Session, start: int, codes: list[str]) -> list[_CodeBlock] | None:
        """Run the codes one after another, after the blocks before `start`; `None` if one fails."""
        blocks: list[_CodeBlock] = []
        state = self._find_state_before(start)
        for code in codes:
            result = await self._run_block(session, code, state)
            if result.step is None:
                return None
            state = result.step
            blocks.append(_CodeBlock(code, state))
        return blocks

    async def open(self) -> Session:
        """The session, opened by the first call."""
        async with self._opening:
            if self._session is None:
                session, start = await self._sandbox.session(), 0
                try:
                    if self._prelude:
                        start = (await session.run(self._prelude)).step or 0
                except BaseException:
                    await session.close()
                    raise
                self._session, self._start = session, start
            return self._session

    async def _reopen(self) -> Session:
        """Open a new session, and run all blocks in it again. If one fails now (because of time or chance), the session
        stays empty, and the blocks are only part of the answer."""
        await self.close()
        session, codes = await self.open(), [block.code for block in self._blocks]
        try:
            blocks = await self._run_chain(session, 0, codes)
        except SandboxError:  # it has ended this session too
            blocks = None
        self._blocks = [_CodeBlock(code) for code in codes] if blocks is None else blocks
        if blocks is not None:
            return session
        await self.close()
        return await self.open()
