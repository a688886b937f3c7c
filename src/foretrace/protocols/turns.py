"""What the protocols share in which the model and the environment take turns: a system text, blocks, answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from foretrace.core.completion import ChatMessage
from foretrace.core.trace import ToolSpec
from foretrace.protocols import feedback
from foretrace.protocols.base import Act, ActKind, Reply, Result, View, Way
from foretrace.protocols.reply_reader import read_blocks

CODE = '{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}'
SUBMIT = ToolSpec(
    name="submit",
    description="Hand in the answer so far, or the code that is given.",
    parameters='{"type":"object","properties":{"code":{"type":"string"}}}',
)


class Turns:
    """A protocol of turns (see `base.Protocol`): a subclass says what is told and what its blocks do."""

    name: str = ""
    stop: tuple[str, ...] = ("</code>", "</verify>", "<result>", "<error>")
    needs: tuple[str, ...] = ()
    continues = False
    max_turns: int = 10
    ideal: tuple[str, ...] = ("has_tool_feedback", "is_interleaved")
    tools: tuple[ToolSpec, ...] = ()
    rules: str = ""
    """What the model is told of them."""
    ways: ClassVar[Mapping[ActKind, Way]] = {}
    """What is done with the code of a block, by its kind."""
    reminder: ClassVar[str] = ""

    def opening(self, view: View) -> tuple[ChatMessage, ...]:
        """The rules, then the task."""
        return (ChatMessage("system", self.rules.strip()), ChatMessage("user", feedback.task(view)))

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        """The blocks of a completion (see `base.Protocol`)."""
        return read_blocks(text, cut=cut, stops=self.stop, ways=self.ways)

    def answer(self, result: Result, *, hints: bool, last: bool) -> str:
        """`<result>` or `<error>`, and a hint where hints are wanted."""
        return feedback.response(result, hints=hints)

    def remind(self, reply: Reply) -> str:
        """What to do, for a reply in which nothing was to be done."""
        return self.reminder

    def over(self, reply: Reply, results: Sequence[Result]) -> bool:
        """Whether the answer was handed in."""
        return handed_in(results)


def handed_in(results: Sequence[Result]) -> bool:
    """Whether an answer was handed in and taken."""
    return any(result.act.way == "submit" and result.error is None for result in results)
