"""What sandbox, problems and episodes share: a problem, its tests, and what running code and judging it gave."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foretrace.core.trace import Isolation, TestCounts

Integrity = Literal["values", "calls", "together"]
"""The form in which tests were judged, from the strongest to the weakest.

`values`: the answer's process gets arguments or an input, and the parent compares what it gives or prints. `calls`: the
test code runs in a process of its own, and only calls of functions go to the answer's. `together`: both run in one
process, without the constants that the tests compare with; an answer written against this judge could pass.
"""

FLAGS = ("tampered", "peeked", "same_for_others", "exited")
"""What a verdict's `flags` may hold, in their order."""

Ending = Literal["ok", "error", "exit", "timeout", "memory", "output", "killed", "lost"]
"""How a run ended.

`ok`: it came to its end. `error`: an exception, or a source that does not compile. `exit`: the code left the process
(`sys.exit`, `os._exit`). `timeout`: the wall clock or the CPU limit. `memory`: out of memory. `output`: it printed more
than a run may. `killed`: a signal (a crash of the interpreter, a forbidden system call), or the sandbox, since the
code broke the protocol (`RunError.kind` is then `OutOfTurn`) or its session. `lost`: the sandbox itself failed, say by
a worker that was killed from outside; says nothing of the code's worth, and code cannot bring it about from level 1 on.
"""


class _Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of these records: immutable, defaults left out of the JSON."""


class Test(_Record, frozen=True, kw_only=True):
    """One test: code with asserts, or one case of a program's input and output."""

    __test__ = False  # not a pytest class

    code: str = ""
    """One `assert` statement or several, or code that defines `check(candidate)`. The candidate is called by the
    problem's entry point or as `candidate`."""
    stdin: str | None = None
    """Input of a program whose output is compared; `None` for a test made of code."""
    stdout: str | None = None
    """What the program must print."""
    tolerance: float | None = None
    """Largest absolute or relative difference at which two printed numbers are equal; `None` asks for equal text."""


class Problem(_Record, frozen=True, kw_only=True):
    """A task with tests: what is asked, and how an answer is judged."""

    id: str
    """Unique in its set, e.g. `HumanEval/0`."""
    statement: str
    """What a model is shown: the task in words, or a signature with a docstring."""
    entry_point: str | None = None
    """Name of the function (or class) asked for; `None` for a program that reads stdin."""
    prompt: str = ""
    """Code that an answer may continue or build on (imports, helpers, the signature); empty when there is none."""
    setup: str = ""
    """Code that the tests need beside the answer: imports and helpers, never an expected value."""
    public_tests: tuple[Test, ...] = ()
    """What the statement shows; these may be shown to a model."""
    hidden_tests: tuple[Test, ...] = ()
    """The rest; their expected values reach neither a model nor the process of its code."""
    reference: str | None = None
    """A whole answer that passes all tests."""
    form: Integrity | None = None
    """Asks for a weaker form of judging than the tests would get; `None` takes the strongest that serves."""
    source: str = ""
    """Name of the problem set."""
    group: str | None = None
    """All problems of one group go into the same split; `None` stands for the id."""
    license: str | None = None
    extra: dict[str, Any] = {}


class RunError(_Record, frozen=True, kw_only=True):
    """Why code failed, as its author would want to read it."""

    kind: str
    """Name of the exception, or of the ending when there was none (`Timeout`, `MemoryLimit`, ...)."""
    message: str = ""
    """At most 500 characters."""
    line: int | None = None
    """1-based line of the code that raised, when known."""
    traceback: str = ""
    """Frames of the code itself, innermost last; at most 2,000 characters."""


class RunResult(_Record, frozen=True, kw_only=True):
    """What one run of code gave. All of it was said by untrusted code, except ending, seconds and isolation."""

    ending: Ending
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    """True when stdout or stderr was longer than what was kept."""
    exit_code: int | None = None
    """What the code left with, for the ending `exit`."""
    error: RunError | None = None
    seconds: float = 0.0
    """Wall-clock seconds, measured outside of the code's process."""
    cpu_s: float | None = None
    """CPU seconds of the code's process, when the system says."""
    isolation: Isolation
    step: int | None = None
    """In a session: the number of the state that this block made; `None` when the state is as before."""
    mode: Literal["fork", "replay"] | None = None
    """In a session: how earlier blocks are in place. `fork`: a checkpoint was forked. `replay`: they were run again
    where that was needed."""

    @property
    def ok(self) -> bool:
        """True when the code came to its end (for a program, an `exit` with code 0 included)."""
        return self.ending == "ok" or (self.ending == "exit" and self.exit_code == 0 and self.mode is None)


class TestResult(_Record, frozen=True, kw_only=True):
    """What one test gave."""

    __test__ = False

    name: str
    """Which test: its number, and the line of the assert in check code (`2`, `0:14`)."""
    passed: bool
    actual: str | None = None
    """`repr` of what the candidate gave, at most 500 characters; `None` when it gave nothing."""
    expected: str | None = None
    """`repr` of what the test asks for, at most 500 characters; `None` when the test is not a comparison. Not for a
    model's eyes where the test is hidden."""
    error: str | None = None
    """Why there is no value: an exception, a limit, or `not run`."""
    seconds: float | None = None
    """Wall-clock seconds until this answer, measured outside of the candidate's process; `None` when not run."""
    form: Integrity | None = None
    """The form that decided."""


class Verdict(_Record, frozen=True, kw_only=True):
    """What judging code against tests gave. The total does not depend on the candidate."""

    tests: tuple[TestResult, ...]
    integrity: Integrity
    """The form used for all of these tests."""
    flags: tuple[str, ...] = ()
    """How the answer tried to pass without solving the task, in the order of `FLAGS`; what it was worth is in `tests`.

    `tampered`: it changed what judges it (builtins, imported modules, the tests). `peeked`: it looked for what is
    expected of it (frames, tracebacks, the garbage collector). `same_for_others`: an object of its own says the same of
    values that are not expected (it equals everything). `exited`: it left its process before the tests had ended.
    """
    ending: Ending = "ok"
    """How the candidate's process ended; for several processes, the first ending that was not `ok`."""
    error: RunError | None = None
    """Why the code could not be loaded or its process failed."""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    isolation: Isolation

    @property
    def passed(self) -> bool:
        """True when there is a test and all pass."""
        return bool(self.tests) and all(test.passed for test in self.tests)

    @property
    def counts(self) -> TestCounts:
        """How many tests passed, of how many."""
        return TestCounts(passed=sum(test.passed for test in self.tests), total=len(self.tests))
