"""The code of one episode: what was written so far, its session, and how it does on the tests."""

from __future__ import annotations

import ast
from typing import NamedTuple

from foretrace.core.problem import Integrity, Problem, RunResult, Test, Verdict
from foretrace.core.trace import Failure, Isolation, Outcome, Status, TestCounts
from foretrace.protocols.base import Act, Result
from foretrace.sandbox.base import Sandbox, Session

_FORMS: tuple[Integrity, ...] = ("split", "judge", "stdin", "shared")


class Verdicts(NamedTuple):
    """How the final code did; null where there are no such tests, or no code."""

    code: str
    public: Verdict | None = None
    hidden: Verdict | None = None

    @property
    def counts(self) -> TestCounts:
        """Passed and total over both, and how many of each there are."""
        both = [v.counts for v in (self.public, self.hidden) if v is not None]
        return TestCounts(
            passed=sum(c.passed for c in both),
            total=sum(c.total for c in both),
            public=self.public.counts.total if self.public else 0,
            hidden=self.hidden.counts.total if self.hidden else 0,
        )

    @property
    def success(self) -> bool:
        """True when there are tests and all pass."""
        counts = self.counts
        return counts.total > 0 and counts.passed == counts.total

    @property
    def runnable(self) -> bool:
        """Whether there is code that loads."""
        judged = self.hidden or self.public
        return bool(self.code.strip()) and (judged is None or judged.error is None or judged.counts.passed > 0)


class Block(NamedTuple):
    """One block that was accepted, and the state of the session after it (null where it was not run)."""

    code: str
    state: int | None
    names: frozenset[str]
    """Functions and classes that it defines."""


class Working:
    """Does what acts ask for, in the sandbox."""

    def __init__(self, problem: Problem, sandbox: Sandbox) -> None:
        self._problem, self._sandbox = problem, sandbox
        self._session: Session | None = None
        self._blocks: list[Block] = []
        self._answer: str | None = None
        """The whole answer where one was given as such; else the blocks are."""
        self._isolation: Isolation | None = None

    async def start(self) -> None:
        """Be sure of the sandbox before a model is asked for anything."""
        self._isolation = await self._sandbox.start()

    @property
    def code(self) -> str:
        """The answer so far."""
        if self._answer is not None:
            return self._answer
        return "\n\n".join(block.code.strip("\n") for block in self._blocks) + ("\n" if self._blocks else "")

    async def do(self, act: Act) -> Result:
        """Do what one act asks for."""
        if act.way == "run":
            return Result(act=act, run=await self._sandbox.run(act.code))
        if act.way == "block":
            return Result(act=act, run=await self._block(act.code))
        if act.way == "check":
            return await self._check(act)
        if act.way == "keep":
            self._keep(Block(act.code, None, defined(act.code)))
            return Result(act=act)
        if act.code.strip():
            self._answer = act.code
        if act.way == "test":
            return await self._test(act)
        return Result(act=act)

    async def _test(self, act: Act) -> Result:
        if not self._problem.public_tests:
            return Result(act=act, run=await self._sandbox.run(act.code))
        return Result(act=act, public=await self._judge(act.code, self._problem.public_tests))

    async def _check(self, act: Act) -> Result:
        """Run a check's own code on the session, leaving it as it was; then the public tests on the answer so far."""
        run = None
        if act.code.strip():
            session = await self._open()
            run = await session.run(act.code, at=self._state)
        public = None
        if self._problem.public_tests and self.code.strip() and (run is None or run.ok):
            public = await self._judge(self.code, self._problem.public_tests)
        return Result(act=act, run=run, public=public)

    @property
    def _state(self) -> int:
        states = [block.state for block in self._blocks if block.state is not None]
        return states[-1] if states else 0

    async def _open(self) -> Session:
        if self._session is None:
            self._session = await self._sandbox.session()
        return self._session

    async def _block(self, code: str) -> RunResult:
        """Run the next block; one that defines what an earlier block defined takes that block's place."""
        session = await self._open()
        names = defined(code)
        place = next((i for i, block in enumerate(self._blocks) if block.names and block.names <= names), None)
        if place is not None:
            replaced = await self._replace(session, place, Block(code, None, names))
            if replaced is not None:
                return replaced
        result = await session.run(code, at=self._state)
        if result.ok:
            self._keep(Block(code, result.step, names))
        return result

    async def _replace(self, session: Session, place: int, block: Block) -> RunResult | None:
        """Put a block in the place of another and run what followed again; null where that fails."""
        before = [b.state for b in self._blocks[:place] if b.state is not None]
        first = result = await session.run(block.code, at=before[-1] if before else 0)
        if not result.ok:
            return None
        made = [Block(block.code, result.step, block.names)]
        for later in self._blocks[place + 1 :]:
            if later.names and later.names <= block.names:
                continue
            result = await session.run(later.code, at=made[-1].state)
            if not result.ok:
                return None
            made.append(Block(later.code, result.step, later.names))
        self._blocks[place:] = made
        self._answer = None
        return first

    def _keep(self, block: Block) -> None:
        self._blocks.append(block)
        self._answer = None

    async def _judge(self, code: str, tests: tuple[Test, ...]) -> Verdict:
        problem = self._problem
        return await self._sandbox.judge(
            code, tests, entry_point=problem.entry_point, setup=problem.setup, form=problem.form
        )

    async def hidden(self) -> Verdict:
        """How the answer so far does on the hidden tests, for feedback of counts."""
        return await self._judge(self.code, self._problem.hidden_tests or self._problem.public_tests)

    async def judge(self) -> Verdicts:
        """Judge the final code, by all tests."""
        code = self.code
        if not code.strip():
            return Verdicts(code)
        problem = self._problem
        public = await self._judge(code, problem.public_tests) if problem.public_tests else None
        hidden = await self._judge(code, problem.hidden_tests) if problem.hidden_tests else None
        return Verdicts(code, public, hidden)

    def outcome(self, status: Status, verdicts: Verdicts, reward: float, metrics: dict[str, float]) -> Outcome:
        """How the episode ended, for its trace."""
        forms = [v.integrity for v in (verdicts.public, verdicts.hidden) if v is not None]
        return Outcome(
            status=status,
            success=verdicts.success,
            reward=reward,
            tests=verdicts.counts,
            exit_reason="no_code" if not verdicts.code.strip() else None,
            isolation=self._isolation,
            integrity=max(forms, key=_FORMS.index) if forms else None,
            metrics=metrics,
        )

    def failure(self, kind: str, message: str) -> Outcome:
        """The outcome of an episode around which something failed: neither a success nor a failure of the model."""
        return Outcome(status="error", error=Failure(kind=kind, message=message[:2000]), isolation=self._isolation)

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()


def defined(code: str) -> frozenset[str]:
    """Names of the functions and classes that code defines at its top level."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))
