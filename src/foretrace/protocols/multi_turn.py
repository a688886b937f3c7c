"""The base of protocols in which the model and the environment take turns: system prompt, blocks, results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foretrace.core.completion import ChatMessage
from foretrace.core.trace import ToolSpec
from foretrace.protocols import feedback
from foretrace.protocols.base import Act, ActKind, Handling, ProblemView, Reply, Result
from foretrace.protocols.reply_reader import read_blocks

CODE_PARAMETERS = '{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}'
TEST_TOOL = ToolSpec(
    name="run_tests",
    description="Run code, which is the whole answer so far, against the public tests.",
    parameters=CODE_PARAMETERS,
)
CHECK_TOOL = ToolSpec(
    name="run_tests",
    description="Run checks, if any, and the public tests on the answer so far.",
    parameters='{"type":"object","properties":{"checks":{"type":"string"}}}',
)
SUBMIT_TOOL = ToolSpec(
    name="submit",
    description="Hand in the answer so far, or the code that is given.",
    parameters='{"type":"object","properties":{"code":{"type":"string"}}}',
)


class MultiTurnProtocol:
    """Base class. A subclass provides the system prompt and says how each kind of block is handled."""

    name: str = ""
    stop: tuple[str, ...] = ("</code>", "</verify>", "<result>", "<error>")
    required_capabilities: tuple[str, ...] = ()
    continues: bool = False
    max_turns: int = 10
    ideal_metrics: tuple[str, ...] = ("has_tool_feedback", "is_interleaved")
    tools: tuple[ToolSpec, ...] = ()
    system_prompt: str = ""
    handlings: ClassVar[dict[ActKind, Handling]] = {"code": "test", "verify": "submit", "final": "submit"}
    """How the code of each kind of block is handled; other kinds are words."""
    reminder_text: ClassVar[str] = ""

    def opening(self, view: ProblemView) -> tuple[ChatMessage, ...]:
        return (ChatMessage("system", self.system_prompt.strip()), ChatMessage("user", feedback.describe_task(view)))

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        return read_blocks(text, cut=cut, stops=self.stop, handlings=self.handlings)

    def respond(self, result: Result, *, hints: bool, last: bool) -> str:
        return feedback.format_result(result, hints=hints)

    def nudge(self, reply: Reply) -> str:
        return self.reminder_text

    def is_done(self, reply: Reply, results: Sequence[Result]) -> bool:
        """Whether the answer was submitted, or a check passed."""
        return is_submitted(results) or any(r.act.handling == "check" and not r.failed for r in results)


def is_submitted(results: Sequence[Result]) -> bool:
    """Whether an answer was submitted and accepted."""
    return any(result.act.handling == "submit" and result.error is None for result in results)
