"""Types that sandbox, problems and episodes share: problems, tests, and the results of running and judging code."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foretrace.core.trace import Isolation, Record, TestCounts

Integrity = Literal["values", "calls", "together"]
"""The form in which tests were judged, from strongest to weakest.

`values`: the answer's process gets arguments or an input, and the parent process compares what it returns or prints.
`calls`: the test code runs in its own process, and only function calls are sent to the answer's process. `together`:
both run in one process, without the constants that the tests compare with; an answer written to cheat this form could
pass.
"""

FLAGS = ("tampered", "peeked", "same_for_others", "exited")
"""The possible `flags` of a verdict, in order."""

Ending = Literal["ok", "error", "exit", "timeout", "memory", "output", "killed", "lost"]
"""How a run ended.

`ok`: the code ran to its end. `error`: an exception, or code that does not compile. `exit`: the code left the process
(`sys.exit`, `os._exit`). `timeout`: the wall-clock or the CPU limit. `memory`: out of memory. `output`: it printed more
than a run may. `killed`: by a signal (a crash of the interpreter, a forbidden system call), or by the sandbox because
the code broke the protocol (`RunError.kind` is then `OutOfTurn`) or its session. `lost`: the sandbox itself failed, for
example because a worker was killed from outside. This says nothing about the code, and from isolation level 1 on, code
cannot cause it.
"""


class Test(Record, frozen=True, kw_only=True):
    """One test: code with asserts, or one case of a program's input and output."""

    __test__ = False  # not a pytest class

    code: str = ""
    """One or more `assert` statements, or code that defines `check(candidate)`. Tests call the candidate by the
    problem's entry point or as `candidate`."""
    stdin: str | None = None
    """Input of a program whose output is compared; `None` for a test that is code."""
    stdout: str | None = None
    """What the program must print."""
    tolerance: float | None = None
    """Largest absolute or relative difference at which two printed numbers are equal; `None` requires equal text."""


class Problem(Record, frozen=True, kw_only=True):
    """A task with tests: what is asked, and how an answer is judged."""

    id: str
    """Unique in its problem set, e.g. `HumanEval/0`."""
    statement: str
    """What a model sees: the task in words, or a signature with a docstring."""
    entry_point: str | None = None
    """Name of the requested function or class; `None` for a program that reads stdin."""
    prompt: str = ""
    """Code that an answer may continue or build on (imports, helpers, the signature); empty if there is none."""
    setup: str = ""
    """Code that the tests need besides the answer: imports and helpers, never an expected value."""
    public_tests: tuple[Test, ...] = ()
    """The tests in the statement; these may be shown to a model."""
    hidden_tests: tuple[Test, ...] = ()
    """The other tests. Their expected values reach neither a model nor the process that runs its code."""
    reference: str | None = None
    """A complete answer that passes all tests."""
    form: Integrity | None = None
    """Requests a weaker form of judging than the tests would get; `None` takes the strongest that works."""
    source: str = ""
    """Name of the problem set."""
    group: str | None = None
    """All problems of a group go into the same split; `None` means the id."""
    license: str | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class RunError(Record, frozen=True, kw_only=True):
    """Why code failed, in terms that help its author."""

    kind: str
    """Name of the exception; without one, of the ending (`Timeout`, `MemoryLimit`, ...)."""
    message: str = ""
    """At most 500 characters."""
    line: int | None = None
    """1-based line of the code that raised, if known."""
    traceback: str = ""
    """Frames of the code itself, innermost last; at most 2,000 characters."""


class RunResult(Record, frozen=True, kw_only=True):
    """The result of one run of code. Everything except ending, seconds and isolation was reported by untrusted code."""

    ending: Ending
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    """True if stdout or stderr was longer than what was kept."""
    exit_code: int | None = None
    """The code that the process left with, for the ending `exit`."""
    error: RunError | None = None
    seconds: float = 0.0
    """Wall-clock seconds, measured outside the code's process."""
    cpu_s: float | None = None
    """CPU seconds of the code's process, if the system reports them."""
    isolation: Isolation
    step: int | None = None
    """In a session: the number of the state that this block created; `None` if the state is unchanged."""
    mode: Literal["fork", "replay"] | None = None
    """In a session: how the state of earlier blocks was restored. `fork`: from a forked checkpoint. `replay`: by
    running them again where needed."""

    @property
    def ok(self) -> bool:
        """True if the code ran to its end. A program that exits with code 0 counts too."""
        return self.ending == "ok" or (self.ending == "exit" and self.exit_code == 0 and self.mode is None)


class TestResult(Record, frozen=True, kw_only=True):
    """The result of one test."""

    __test__ = False

    name: str
    """Which test: its number, and for check code the line of the assert (`2`, `0:14`)."""
    passed: bool
    actual: str | None = None
    """`repr` of what the candidate returned, at most 500 characters; `None` if it returned nothing."""
    expected: str | None = None
    """`repr` of what the test expects, at most 500 characters; `None` if the test is not a comparison. Must not be
    shown to a model if the test is hidden."""
    error: str | None = None
    """Why the test failed, beyond the values: an exception, a limit, or `not run`. May hold the expected value: as
    `expected`, it must not be shown to a model if the test is hidden."""
    seconds: float | None = None
    """Wall-clock seconds until this answer, measured outside the candidate's process; `None` if not run."""
    form: Integrity | None = None
    """The form that decided this test."""


class Verdict(Record, frozen=True, kw_only=True):
    """The result of judging code against tests. The total does not depend on the candidate."""

    tests: tuple[TestResult, ...]
    integrity: Integrity
    """The form used for all of these tests."""
    flags: tuple[str, ...] = ()
    """How the answer tried to pass without solving the task, in the order of `FLAGS`. Whether it worked is in `tests`.

    `tampered`: it changed what judges it (builtins, imported modules, the tests). `peeked`: it looked for the expected
    values (frames, tracebacks, the garbage collector). `same_for_others`: one of its own objects also matches values
    that are not expected (it equals everything). `exited`: it left its process before the tests had ended.
    """
    ending: Ending = "ok"
    """How the candidate's process ended; with several processes, the first ending that was not `ok`."""
    error: RunError | None = None
    """Why the code could not be loaded, or why its process failed."""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    isolation: Isolation

    @property
    def passed(self) -> bool:
        """True if there is a test and all tests pass."""
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def counts(self) -> TestCounts:
        """How many tests passed, of how many."""
        return TestCounts(passed=sum(test.passed for test in self.tests), total=len(self.tests))
