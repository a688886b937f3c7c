"""The contract of an interaction protocol: the prompt, how a reply is read into acts, and how results are worded.

To add one, write a module in this folder whose `PLUGIN` has the members of `InteractionProtocol`, and name it in
`BUILT_IN` of `core/plugins.py`. A protocol works only on texts: the code is run, and the model called, by others.
See docs/protocols.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from foretrace.core.completion import ChatMessage
from foretrace.core.problem import RunResult, Verdict
from foretrace.core.trace import ToolCall, ToolSpec

ActKind = Literal["think", "plan", "code", "verify", "wait", "reflect", "final", "refused"]
"""What a part of a reply does.

`think`, `plan`, `wait` (the model notices a mistake of its own), `reflect`: words. `code`: Python to run or to append.
`verify`: a check, with or without code of its own. `final`: the answer. `refused`: a call or block that cannot be read
without guessing; it is answered with an error and never run.
"""

Handling = Literal["run", "test", "block", "check", "append", "submit"]
"""What an episode does with the code of an act.

`run`: run as a program of its own. `test`: the whole answer so far, run against the public tests. `block`: run as the
next block of a session that keeps the earlier ones. `check`: run on top of the answer so far without becoming part of
it, and then the public tests. `append`: added to the answer without being run. `submit`: the final answer.
"""


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    """What a model may see of a problem."""

    statement: str
    entry_point: str | None = None
    prompt: str = ""
    """Code that the answer continues, where the problem has such."""
    public_tests: tuple[str, ...] = ()
    """Asserts as source text, or cases of input and output in words."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a reply, in the order of the text."""

    kind: ActKind
    span: tuple[int, int]
    """Start and end character offsets into the kept text of the reply, markers included."""
    text: str = ""
    """The inner text."""
    code: str = ""
    """The Python of `code`, `verify` and `final`; empty where there is none. Of `refused`, as far as it can be read."""
    handling: Handling | None = None
    """What is to be done with the code; `None` for words."""
    repairs: tuple[str, ...] = ()
    """Kinds of repair that reading it took."""
    error: str | None = None
    """For `refused`: why."""
    call: ToolCall | None = None
    """The call as the model wrote it, where the act was written as one: its name and arguments are kept so."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One completion as a protocol read it."""

    text: str
    """What is kept of the completion: all of it, or what stands before the first hallucinated result. A closing tag at
    which the model was stopped is put back where the server left it out."""
    acts: tuple[Act, ...] = ()
    hallucinated: int = 0
    """How many results the model wrote itself; these are cut off."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of carrying out one act."""

    act: Act
    run: RunResult | None = None
    """Its output or error, where code was run."""
    public: Verdict | None = None
    """The public tests on the answer so far, where they were run."""
    hidden: tuple[int, int] | None = None
    """Hidden tests that pass, and their number; only with the feedback `counts`."""
    error: str | None = None
    """Why it was not run."""

    @property
    def broken(self) -> bool:
        """True where the code was not run, or raised."""
        run, public = self.run, self.public
        return (
            self.error is not None
            or (run is not None and not run.ok)
            or (public is not None and public.error is not None and not public.counts.passed)
        )

    @property
    def failed(self) -> bool:
        """True where it is `broken`, or a test fails: the model is told of it."""
        return (
            self.broken
            or (self.public is not None and not self.public.passed)
            or (self.hidden is not None and self.hidden[0] < self.hidden[1])
        )


class InteractionProtocol(Protocol):
    """A text contract between model and executor."""

    name: str
    stop: tuple[str, ...]
    """Stop sequences, so that the model cannot hallucinate the result of its code."""
    required_capabilities: tuple[str, ...]
    """Fields of `core.completion.Capabilities` that the model server must have."""
    continues: bool
    """Whether results are injected into the assistant's own turn, which then goes on."""
    max_turns: int
    """Completions after which an episode ends, unless the user says otherwise."""
    ideal_metrics: tuple[str, ...]
    """Metrics that must be true of an ideal trace, beside passing all tests."""
    tools: tuple[ToolSpec, ...]
    """Tools that a trace records as offered to the model."""

    def opening(self, view: ProblemView) -> tuple[ChatMessage, ...]:
        """The messages that start an episode."""
        ...

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        """Read a completion into acts.

        Args:
            text: the completion; where a stop sequence ended it, without that sequence.
            cut: the token limit ended it, so that its last block may be incomplete.
            before: acts of earlier replies.
        """
        ...

    def respond(self, result: Result, *, hints: bool, last: bool) -> str:
        """The environment's message about one result (never empty); those of one reply are sent joined.

        Args:
            hints: add a hint after an error or a partial pass.
            last: the episode ends here, so that the message must not ask for another step.
        """
        ...

    def nudge(self, reply: Reply) -> str:
        """The environment's message to a reply that did nothing (never empty)."""
        ...

    def is_done(self, reply: Reply, results: Sequence[Result]) -> bool:
        """Whether the episode ends after this reply.

        Args:
            results: of all acts so far, those of this reply last.
        """
        ...
