"""The contract of an interaction protocol: the prompt, how a reply is parsed into acts, and how results are worded.

To add one, write a module in this folder whose `PLUGIN` has the members of `InteractionProtocol`, and list it in
`BUILT_IN` of `core/plugins.py`. A protocol works only on text; running code and calling the model happen elsewhere. See
docs/protocols.md.
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

`think`, `plan`, `wait` (the model notices its own mistake), `reflect`: words. `code`: Python to run or to append.
`verify`: a check, with or without its own code. `final`: the answer. `refused`: a call or block that cannot be read
without guessing; it is answered with an error and never run.
"""

Handling = Literal["run", "test", "block", "check", "append", "submit"]
"""What an episode does with the code of an act.

`run`: run it as a separate program. `test`: it is the whole answer so far; run it against the public tests. `block`:
run it as the next block of a session that keeps the earlier ones. `check`: run it on top of the answer so far without
making it part of the answer, then run the public tests. `append`: add it to the answer without running it. `submit`: it
is the final answer.
"""


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    """What a model may see of a problem."""

    statement: str
    entry_point: str | None = None
    prompt: str = ""
    """Code that the answer continues, if the problem has any."""
    public_tests: tuple[str, ...] = ()
    """Asserts as source text, or input and output cases in words."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a reply; the acts of a reply are in text order."""

    kind: ActKind
    span: tuple[int, int]
    """Start and end character offsets into the kept text of the reply, including markers."""
    text: str = ""
    """The inner text."""
    code: str = ""
    """The Python of `code`, `verify` and `final`; empty if there is none. For `refused`, whatever could be read."""
    handling: Handling | None = None
    """What to do with the code; `None` for words."""
    repairs: tuple[str, ...] = ()
    """The kinds of repair that were needed to read it."""
    error: str | None = None
    """Why it was `refused`."""
    call: ToolCall | None = None
    """The call as the model wrote it, with its name and arguments, if the act was written as a call."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One completion as read by a protocol."""

    text: str
    """The kept part of the completion: all of it, or what precedes the first hallucinated result. If the server left
    out the closing tag at which the model was stopped, the tag is put back."""
    acts: tuple[Act, ...] = ()
    hallucinated: int = 0
    """How many results the model wrote itself; these are cut off."""

    @property
    def acting(self) -> list[Act]:
        """The acts that are carried out or refused, and get a result."""
        return [act for act in self.acts if act.handling is not None or act.error is not None]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of carrying out one act."""

    act: Act
    run: RunResult | None = None
    """Its output or error, if code was run."""
    public: Verdict | None = None
    """The public tests on the answer so far, if they were run."""
    hidden: tuple[int, int] | None = None
    """The number of hidden tests that pass, and of all hidden tests; only with the feedback `counts`."""
    error: str | None = None
    """Why the act was not carried out."""

    @property
    def broken(self) -> bool:
        """True if the code was not run, or raised."""
        run, public = self.run, self.public
        return (
            self.error is not None
            or (run is not None and not run.ok)
            or (public is not None and public.error is not None and not public.counts.passed)
        )

    @property
    def failed(self) -> bool:
        """True if it is `broken` or a test fails, so that the model is told about a failure."""
        return (
            self.broken
            or (self.public is not None and not self.public.passed)
            or (self.hidden is not None and self.hidden[0] < self.hidden[1])
        )


class InteractionProtocol(Protocol):
    """A text contract between model and executor."""

    name: str
    stop: tuple[str, ...]
    """Stop sequences. They keep the model from hallucinating the results of its code."""
    required_capabilities: tuple[str, ...]
    """Fields of `core.completion.Capabilities` that the model server must have."""
    continues: bool
    """Whether results are injected into the assistant's own turn, which then continues."""
    max_turns: int
    """The number of completions after which an episode ends, unless the user sets another."""
    ideal_metrics: tuple[str, ...]
    """Metrics that must be true for an ideal trace, besides passing all tests."""
    tools: tuple[ToolSpec, ...]
    """The tools that a trace records as offered to the model."""

    def opening(self, view: ProblemView) -> tuple[ChatMessage, ...]:
        """The messages that start an episode."""
        ...

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        """Parse a completion into acts.

        Args:
            text: The completion, without the stop sequence that ended it.
            cut: Whether the token limit ended it, so that its last block may be incomplete.
            before: The acts of earlier replies.
        """
        ...

    def respond(self, result: Result, *, hints: bool, last: bool) -> str:
        """The environment's message about one result (never empty); the messages for one reply are sent joined.

        Args:
            hints: Add a hint after an error or a partial pass.
            last: The episode ends here, so the message must not ask for another step.
        """
        ...

    def nudge(self, reply: Reply) -> str:
        """The environment's message after a reply that did nothing (never empty)."""
        ...

    def is_done(self, reply: Reply, results: Sequence[Result]) -> bool:
        """Whether the episode ends after this reply.

        Args:
            results: The results of all acts so far, those of this reply last.
        """
        ...
