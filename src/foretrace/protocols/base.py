"""The contract of a protocol: what a model is told, what its reply does, and what it is answered. Pure text.

To add a protocol, drop a file in this folder with a `PLUGIN` class that has the fields and methods of `Protocol`.
A protocol neither calls a model nor runs code: an episode does both, and asks the protocol what the texts mean.
See docs/protocols.md.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Literal

import msgspec

from foretrace.core.completion import ChatMessage
from foretrace.core.problem import RunResult, Verdict
from foretrace.core.trace import ToolCall, ToolSpec

ActKind = Literal["think", "plan", "code", "verify", "wait", "reflect", "final", "refused"]
"""What a part of a reply does.

`think`, `plan`, `wait` (a mistake caught by the model itself), `reflect`: words. `code`: Python to run or to keep.
`verify`: a check, with or without code of its own. `final`: the answer. `refused`: a call or block that cannot be read
surely; it is answered with an error and never run.
"""

Way = Literal["run", "test", "block", "check", "keep", "submit"]
"""What an episode does with the code of an act.

`run`: a program of its own; its output is the answer. `test`: the code is the whole answer so far; it is run, and then
against the public tests. `block`: the next block of the session, with all blocks before it in place. `check`: the
blocks so far, against the public tests. `keep`: added to the answer without being run. `submit`: the final answer.
"""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a model may see of a problem."""

    statement: str
    entry_point: str | None = None
    prompt: str = ""
    """Code that the answer continues, where the problem has such."""
    public_tests: tuple[str, ...] = ()
    """Asserts that the statement shows, as source text; or cases of input and output, in words."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a reply, in the order of the text."""

    kind: ActKind
    span: tuple[int, int]
    """Start and end character offsets into the kept text of the reply, markers included."""
    text: str = ""
    """The inner text."""
    code: str = ""
    """The Python of `code`, `verify` and `final`; empty where there is none. Of `refused`, as far as it can be read."""
    way: Way | None = None
    """What is to be done with the code; null for words."""
    repairs: tuple[str, ...] = ()
    """Kinds of repair that reading it took."""
    error: str | None = None
    """For `refused`: why."""
    call: ToolCall | None = None
    """The call as the model wrote it, where the act was written as one: its name and arguments are kept so."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a protocol made of one completion."""

    text: str
    """What is kept of it: all of it, or what stands before the first invented result. A closing marker at which the
    model was stopped is its own, and is put back."""
    acts: tuple[Act, ...] = ()
    invented: int = 0
    """Results that the model made up itself; cut, and never run or kept."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one act."""

    act: Act
    run: RunResult | None = None
    """What running it gave."""
    public: Verdict | None = None
    """How the answer so far does on the public tests, where they were run."""
    hidden: tuple[int, int] | None = None
    """How many hidden tests pass, of how many; only with feedback of counts."""
    error: str | None = None
    """Why it was not run."""

    @property
    def broken(self) -> bool:
        """True where it was not run, or the code did not come to its end."""
        run, public = self.run, self.public
        return (
            self.error is not None
            or (run is not None and not run.ok)
            or (public is not None and public.error is not None and not public.counts.passed)
        )

    @property
    def failed(self) -> bool:
        """True where something went wrong that the model is told of."""
        return (
            self.broken
            or (self.public is not None and not self.public.passed)
            or (self.hidden is not None and self.hidden[0] < self.hidden[1])
        )


class Protocol(typing.Protocol):
    """A text contract between model and executor."""

    name: str
    stop: tuple[str, ...]
    """Sequences at which the model is stopped, so that it cannot invent what comes next."""
    needs: tuple[str, ...]
    """Capabilities (`core.completion.Capabilities`) without which it is refused."""
    continues: bool
    """True where the answer is injected into the assistant's own turn, which then goes on."""
    max_turns: int
    """Completions after which an episode ends, unless the user says otherwise."""
    ideal: tuple[str, ...]
    """Metrics that must be true of an ideal trace, beside that all tests pass."""
    tools: tuple[ToolSpec, ...]
    """What the model was offered, for the trace."""

    def opening(self, view: View) -> tuple[ChatMessage, ...]:
        """The messages that start an episode."""
        ...

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        """What a completion does.

        Args:
            text: the completion; where a stop sequence ended it, without that sequence.
            cut: the token limit ended it, so that its last block may be incomplete.
            before: acts of earlier replies.
        """
        ...

    def answer(self, result: Result, *, hints: bool, last: bool) -> str:
        """What the environment says to the result of one act (never empty); a reply's answers are sent joined.

        Args:
            hints: add a hint after an error or a partial pass.
            last: the episode ends with this: nothing is to be asked for.
        """
        ...

    def remind(self, reply: Reply) -> str:
        """What the environment says to a reply in which nothing was to be done (never empty)."""
        ...

    def over(self, reply: Reply, results: Sequence[Result]) -> bool:
        """Whether the episode ends after this reply.

        Args:
            results: what became of all acts so far, those of this reply last.
        """
        ...
