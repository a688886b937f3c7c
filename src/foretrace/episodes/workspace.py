"""The code of one episode: run and judged in the sandbox during the episode, evaluated at its end."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from foretrace.core.errors import SandboxError
from foretrace.core.problem import FLAGS, Problem, RunResult, Test, Verdict
from foretrace.core.trace import Failure, Isolation, Outcome, Status, TestCounts
from foretrace.episodes.code_blocks import CodeBlocks
from foretrace.episodes.speculation import EarlyRuns, Operation, ReportedCall
from foretrace.protocols.base import Act, Result
from foretrace.sandbox.base import FORMS, Sandbox


class Evaluation(NamedTuple):
    """The final code and its verdicts; a verdict is `None` if there are no such tests."""

    code: str
    public: Verdict | None = None
    hidden: Verdict | None = None

    @property
    def counts(self) -> TestCounts:
        """How many tests pass and how many there are: in all, public, and hidden."""
        both = [v.counts for v in (self.public, self.hidden) if v is not None]
        return TestCounts(
            passed=sum(c.passed for c in both),
            total=sum(c.total for c in both),
            public=self.public.counts.total if self.public else 0,
            hidden=self.hidden.counts.total if self.hidden else 0,
        )

    @property
    def success(self) -> bool:
        """Whether there is code that passes all tests."""
        counts = self.counts
        return bool(self.code.strip()) and counts.total > 0 and counts.passed == counts.total

    @property
    def flags(self) -> tuple[str, ...]:
        """Ways in which the code tried to pass without solving the task, from both verdicts."""
        found = {flag for v in (self.public, self.hidden) if v is not None for flag in v.flags}
        return tuple(flag for flag in FLAGS if flag in found)

    @property
    def runnable(self) -> bool:
        """Whether there is code that loads."""
        judged = self.hidden or self.public
        return bool(self.code.strip()) and (judged is None or judged.error is None or judged.counts.passed > 0)


class Workspace:
    """Carries out the acts of a model in the sandbox, and keeps the answer so far."""

    def __init__(self, problem: Problem, sandbox: Sandbox, early: EarlyRuns | None = None) -> None:
        self._problem, self._sandbox = problem, sandbox
        self._early = early or EarlyRuns()
        self._input = next((test.stdin for test in problem.public_tests if test.stdin is not None), "")
        """Stdin of programs that the model tries out: that of the first public test."""
        prelude = _make_stdin_prelude(self._input) if problem.entry_point is None else ""
        self._code_blocks = CodeBlocks(sandbox, prelude, self._early)
        self._answer: str | None = None
        """The complete answer, if the model wrote one; otherwise the code blocks are the answer."""
        self._isolation: Isolation | None = None

    async def start(self) -> None:
        self._isolation = await self._sandbox.start()

    @property
    def code(self) -> str:
        return self._code_blocks.code if self._answer is None else self._answer

    async def carry_out(self, act: Act) -> Result:
        """Carry out one act. An act without the code that it needs gets a result with an error."""
        code, has_code, tests = act.code, bool(act.code.strip()), self._problem.public_tests
        if not has_code and (act.handling in ("run", "test", "block", "append") or not self.code.strip()):
            return Result(act=act, error="there is no code yet")
        run: RunResult | None = None
        if act.handling == "block":
            run = await self._code_blocks.run(code)
        elif act.handling == "append":
            self._code_blocks.append(code)
        elif act.handling == "check" and has_code:
            run = await self._run_check(code)
        elif act.handling == "run" or (act.handling == "test" and not tests):
            run = await self._run(code)
        if act.handling in ("test", "submit") and has_code:
            self._answer = code
        if act.handling not in ("test", "check") or not tests or not self.code.strip() or (run and not run.ok):
            return Result(act=act, run=run)
        return Result(act=act, run=run, public=await self._judge(self.code, tests))

    async def _run_check(self, code: str) -> RunResult:
        """Run the code of a check after the answer, without changing it."""
        if self._answer is None and self._code_blocks.all_ran:
            return await self._code_blocks.run_detached(code)
        before = self._before_check
        return _relocate_error(await self._run(before + code), before.count("\n"))

    @property
    def _before_check(self) -> str:
        """The source before the code of a check that runs as a program."""
        return f"{self.code.rstrip()}\n\n"

    def list_operations(self, act: Act) -> list[Operation]:
        """The sandbox operations that carrying out an act now would need, as far as they can be foreseen."""
        code, public, hidden = act.code, self._problem.public_tests, self._problem.hidden_tests
        has_code, operations = bool(code.strip()), list[Operation]()
        if act.handling == "run" or (act.handling == "test" and not public):
            operations = [Operation(code)]
        elif act.handling == "test":
            operations = [Operation(code, public)]
        elif act.handling == "block":
            operations = self._code_blocks.list_operations(code)
        elif act.handling == "check":
            if has_code and self._answer is None and self._code_blocks.all_ran:
                operations = self._code_blocks.list_operations(code, added=False)
            elif has_code:
                operations = [Operation(self._before_check + code)]
            operations += [Operation(self.code, public)] if public else []
        elif act.handling == "submit":
            answer = code if has_code else self.code
            operations = [Operation(answer, tests) for tests in (public, hidden) if tests and answer.strip()]
        return operations

    async def begin_early(self, call: ReportedCall, act: Act, sandbox: Sandbox) -> bool:
        """Start the operations of a guessed act, programs and judgments in `sandbox`. If some of them may not run
        early, start nothing and return false."""
        if act.handling in ("block", "check") and act.code.strip() and self._answer is None:
            if not self._code_blocks.changes_memory_only(act.code):
                return False
            await self._code_blocks.open()
        for operation in self.list_operations(act):
            run: Callable[[], Awaitable[RunResult | Verdict]]
            if operation.session is not None:
                run = functools.partial(operation.session.run, operation.code, at=operation.at, early=True)
            elif operation.tests is not None:
                run = functools.partial(judge_with_retry, sandbox, self._problem, operation.code, operation.tests)
            else:
                run = functools.partial(sandbox.run, operation.code, stdin=self._input)
            self._early.begin(call, operation, run)
        return True

    async def _run(self, code: str) -> RunResult:
        return await self._early.take(Operation(code), lambda: self._sandbox.run(code, stdin=self._input))

    async def _judge(self, code: str, tests: tuple[Test, ...]) -> Verdict:
        verdict: Verdict = await self._early.take(
            Operation(code, tests), lambda: judge_with_retry(self._sandbox, self._problem, code, tests)
        )
        if verdict.ending == "lost":
            raise SandboxError(f"{self._problem.id}: the sandbox lost the run 2 times")
        return verdict

    async def count_hidden(self) -> tuple[int, int]:
        """How many hidden tests the answer so far passes, and their number, which must not be 0."""
        counts = (await self._judge(self.code, self._problem.hidden_tests)).counts
        return counts.passed, counts.total

    async def evaluate(self) -> Evaluation:
        public, hidden = self._problem.public_tests, self._problem.hidden_tests
        return Evaluation(
            self.code,
            await self._judge(self.code, public) if public else None,
            await self._judge(self.code, hidden) if hidden else None,
        )

    def make_outcome(
        self,
        status: Status,
        evaluation: Evaluation,
        reward: float,
        metrics: dict[str, float],
        reason: str | None = None,
    ) -> Outcome:
        """The outcome of an evaluated episode; `reason` is the external limit that ended it, if any."""
        forms = [v.integrity for v in (evaluation.public, evaluation.hidden) if v is not None]
        return Outcome(
            status=status,
            success=evaluation.success,
            reward=reward,
            tests=evaluation.counts,
            exit_reason=reason or (None if evaluation.code.strip() else "no_code"),
            isolation=self._isolation,
            integrity=max(forms, key=FORMS.index) if forms else None,
            flags=evaluation.flags,
            metrics=metrics,
        )

    def make_failure(self, kind: str, message: str, metrics: dict[str, float]) -> Outcome:
        """The outcome of an episode that failed because of a server or the sandbox, and not because of the model."""
        error = Failure(kind=kind, message=message[:2000])
        return Outcome(status="error", error=error, isolation=self._isolation, metrics=metrics)

    async def close(self) -> None:
        """End the session and all early runs."""
        await self._early.close()
        await self._code_blocks.close()


async def judge_with_retry(sandbox: Sandbox, problem: Problem, code: str, tests: tuple[Test, ...]) -> Verdict:
    """Judge code by tests of a problem. If the sandbox loses the run, which says nothing about the code, try once more.
    The verdict is `lost` if that run is lost, too."""
    judge = functools.partial(
        sandbox.judge,
        code,
        tests,
        entry_point=problem.entry_point,
        setup=problem.setup,
        prompt=problem.prompt,
        form=problem.form,
    )
    verdict = await judge()
    return await judge() if verdict.ending == "lost" else verdict


def _relocate_error(run: RunResult, before: int) -> RunResult:
    """The run of an answer (`before` lines) and a check after it, with the error's line counted within its part."""
    error = run.error
    if error is None or error.line is None or "\n" in error.traceback.strip("\n"):
        return run
    if error.line > before:
        error = msgspec.structs.replace(error, line=error.line - before)
    else:
        error = msgspec.structs.replace(error, line=None, traceback=f"line {error.line} of the answer")
    return msgspec.structs.replace(run, error=error)


def _make_stdin_prelude(text: str) -> str:
    """Code that makes `text` the standard input of the code after it."""
    return f"import sys as _sys, io as _io\n_sys.stdin = _io.StringIO({text!r})\ndel _sys, _io\n"
