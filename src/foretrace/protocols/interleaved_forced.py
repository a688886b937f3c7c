"""Thoughts and code in very small steps: each reply is one step, and each block has one to three lines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foretrace.protocols.base import Act, Reply, Result
from foretrace.protocols.interleaved import BLOCK_RULES, Interleaved
from foretrace.protocols.multi_turn import MultiTurnProtocol

MAX_LINES = 3
_SYSTEM = f"""
You solve a programming task in Python in very small steps. Each reply is one step:
{BLOCK_RULES.format(size="one to three lines")}
A block may stop in the middle of a function: the next block goes on there, with its indentation. The tests are run \
when you verify; if they fail, go on and mend your code. After each step you are asked for the next one.

Example of one reply:
<think>The function takes a list of numbers.</think>
<code>
def mean(numbers):
    count = len(numbers)
</code>
"""
_TOO_LONG = f"a block has one to {MAX_LINES} lines of code; this one was not added: send it in smaller steps"
_NEXT = "Go on with the next step."


class InterleavedForced(Interleaved):
    """One step per turn; the tests are run when the model verifies."""

    name = "interleaved_forced"
    stop = MultiTurnProtocol.stop
    is_done = MultiTurnProtocol.is_done
    max_turns = 40
    system_prompt = _SYSTEM
    reminder_text = _NEXT

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        """The blocks of a completion; those with more than three lines are refused."""
        reply = super().read(text, cut=cut, before=before)
        return msgspec.structs.replace(reply, acts=tuple(map(_refuse_long, reply.acts)))

    def respond(self, result: Result, *, hints: bool, last: bool) -> str:
        message = super().respond(result, hints=hints, last=last)
        return message if last else f"{message}\n{_NEXT}"


def _refuse_long(act: Act) -> Act:
    lines = [line for line in act.code.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if act.handling != "append" or len(lines) <= MAX_LINES:
        return act
    return Act(kind="refused", span=act.span, text=act.text, code=act.code, error=_TOO_LONG)


PLUGIN = InterleavedForced
