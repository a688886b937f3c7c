"""The code of one episode: what was written so far, and how it does on the tests."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.core.problem import Integrity, Problem, RunResult, Test, Verdict
from foretrace.core.trace import Failure, Isolation, Outcome, Status, TestCounts
from foretrace.episodes.code_blocks import Blocks
from foretrace.protocols.base import Act, Result
from foretrace.sandbox.base import Sandbox

_FORMS: tuple[Integrity, ...] = ("split", "judge", "stdin", "shared")
_TRIES = 2
_NO_CODE = "there is no code yet"


class Verdicts(NamedTuple):
    """How the final code did; null where there are no such tests."""

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
        """True when there is code and it passes all tests."""
        counts = self.counts
        return bool(self.code.strip()) and counts.total > 0 and counts.passed == counts.total

    @property
    def runnable(self) -> bool:
        """Whether there is code that loads."""
        judged = self.hidden or self.public
        return bool(self.code.strip()) and (judged is None or judged.error is None or judged.counts.passed > 0)


class Working:
    """Does what acts ask for, in the sandbox."""

    def __init__(self, problem: Problem, sandbox: Sandbox) -> None:
        self._problem, self._sandbox = problem, sandbox
        self._input = next((test.stdin for test in problem.public_tests if test.stdin is not None), "")
        """What a program reads when it is tried out: the input of the first public test."""
        self._blocks = Blocks(sandbox, _reading(self._input) if problem.entry_point is None else "")
        self._answer: str | None = None
        """The whole answer where one was given as such; else the blocks are."""
        self._isolation: Isolation | None = None

    async def start(self) -> None:
        """Be sure of the sandbox before a model is asked for anything."""
        self._isolation = await self._sandbox.start()

    @property
    def code(self) -> str:
        """The answer so far."""
        return self._blocks.code if self._answer is None else self._answer

    async def do(self, act: Act) -> Result:
        """Do what one act asks for; without code where it needs some, its result says so."""
        way, given = act.handling, bool(act.code.strip())
        if not given and (way in ("run", "test", "block", "append") or not self.code.strip()):
            return Result(act=act, error=_NO_CODE)
        if way == "run":
            return Result(act=act, run=await self._sandbox.run(act.code, stdin=self._input))
        if way == "check":
            return await self._check(act)
        if way == "block":
            return Result(act=act, run=await self._blocks.run(act.code))
        if way == "append":
            self._blocks.keep(act.code)
            return Result(act=act)
        self._answer = act.code if given else self._answer
        return await self._test(act) if way == "test" else Result(act=act)

    async def _test(self, act: Act) -> Result:
        if not self._problem.public_tests:
            return Result(act=act, run=await self._sandbox.run(act.code, stdin=self._input))
        return Result(act=act, public=await self._judge(act.code, self._problem.public_tests))

    async def _check(self, act: Act) -> Result:
        """Run a check's own code on what stands, and leave that as it was; then the public tests on the answer."""
        run: RunResult | None = None
        if act.code.strip():
            if self._answer is None and self._blocks.ran:
                run = await self._blocks.peek(act.code)
            else:
                before = f"{self.code.rstrip()}\n\n"
                run = _of_check(await self._sandbox.run(before + act.code, stdin=self._input), before.count("\n"))
        public = None
        if self._problem.public_tests and self.code.strip() and (run is None or run.ok):
            public = await self._judge(self.code, self._problem.public_tests)
        return Result(act=act, run=run, public=public)

    async def _judge(self, code: str, tests: tuple[Test, ...]) -> Verdict:
        """The verdict; a run that was lost says nothing of the code, and is tried once more."""
        problem = self._problem
        for _ in range(_TRIES):
            verdict = await self._sandbox.judge(
                code, tests, entry_point=problem.entry_point, setup=problem.setup, form=problem.form
            )
            if verdict.ending != "lost":
                return verdict
        raise SandboxError(f"{problem.id}: the sandbox lost the run {_TRIES} times")

    async def hidden(self) -> tuple[int, int]:
        """How many hidden tests the answer so far passes, of how many; there must be some."""
        counts = (await self._judge(self.code, self._problem.hidden_tests)).counts
        return counts.passed, counts.total

    async def judge(self) -> Verdicts:
        """Judge the final code, by all tests."""
        public, hidden = self._problem.public_tests, self._problem.hidden_tests
        return Verdicts(
            self.code,
            await self._judge(self.code, public) if public else None,
            await self._judge(self.code, hidden) if hidden else None,
        )

    def outcome(
        self, status: Status, verdicts: Verdicts, reward: float, metrics: dict[str, float], reason: str | None = None
    ) -> Outcome:
        """How the episode ended, for its trace; `reason` is what ended it from outside."""
        forms = [v.integrity for v in (verdicts.public, verdicts.hidden) if v is not None]
        return Outcome(
            status=status,
            success=verdicts.success,
            reward=reward,
            tests=verdicts.counts,
            exit_reason=reason or (None if verdicts.code.strip() else "no_code"),
            isolation=self._isolation,
            integrity=max(forms, key=_FORMS.index) if forms else None,
            metrics=metrics,
        )

    def failure(self, kind: str, message: str, metrics: dict[str, float]) -> Outcome:
        """The outcome of an episode around which something failed: neither a success nor a failure of the model."""
        error = Failure(kind=kind, message=message[:2000])
        return Outcome(status="error", error=error, isolation=self._isolation, metrics=metrics)

    async def close(self) -> None:
        """End the session."""
        await self._blocks.close()


def _of_check(run: RunResult, before: int) -> RunResult:
    """The run of an answer with a check behind its `before` lines: its error is at a line of one or the other."""
    error = run.error
    if error is None or error.line is None or "\n" in error.traceback.strip("\n"):
        return run
    if error.line > before:
        error = msgspec.structs.replace(error, line=error.line - before)
    else:
        error = msgspec.structs.replace(error, line=None, traceback=f"line {error.line} of the answer")
    return msgspec.structs.replace(run, error=error)


def _reading(text: str) -> str:
    """Code after which a session's code reads `text` as its input."""
    return f"import sys as _sys, io as _io\n_sys.stdin = _io.StringIO({text!r})\n"
