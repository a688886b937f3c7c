"""Thoughts and code alternate in one reply, and nothing is run before the reply ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from foretrace.core.trace import ToolSpec
from foretrace.protocols.base import ActKind, Handling, Reply, Result
from foretrace.protocols.multi_turn import CHECK_TOOL, SUBMIT_TOOL, MultiTurnProtocol, is_submitted

BLOCK_RULES = """
- <think>...</think>: what the next step must do.
- <code>...</code>: {size} of Python. All blocks together, in order, are your answer.
- <wait>...</wait>: when you notice a mistake. Then define the function again: the new one takes the place of the old.
- <verify>...</verify>: at the end, checks in Python: `assert` lines.
"""
_SYSTEM = f"""
You solve a programming task in Python in one reply, in which thoughts and code take turns:
{BLOCK_RULES.format(size="a few lines")}
Example:
<think>The mean is the sum over the count.</think>
<code>
def mean(numbers):
    return sum(numbers) / len(numbers)
</code>
<wait>An empty list has no count to divide by.</wait>
<code>
def mean(numbers):
    return sum(numbers) / len(numbers) if numbers else 0
</code>
<verify>
assert mean([1, 3]) == 2
assert mean([]) == 0
</verify>
"""


class Interleaved(MultiTurnProtocol):
    """Think, code, think, code, verify in one reply."""

    name = "interleaved"
    stop = ("<result>", "<error>")
    max_turns = 3
    system_prompt = _SYSTEM
    handlings: ClassVar[dict[ActKind, Handling]] = {**MultiTurnProtocol.handlings, "code": "append", "verify": "check"}
    ideal_metrics = ("is_interleaved", "has_verify")
    tools = (
        ToolSpec(
            name="append_file",
            description="Add code to the answer, without running it.",
            parameters='{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},'
            '"required":["path","content"]}',
        ),
        CHECK_TOOL,
        SUBMIT_TOOL,
    )
    reminder_text = "There is no code yet. Write it in <code>...</code>, then <verify>...</verify>."

    def is_done(self, reply: Reply, results: Sequence[Result]) -> bool:
        """Whether all code of the reply could be read, or the model submitted its answer."""
        refused = any(act.error is not None for act in reply.acts)
        appended = any(r.act.handling == "append" and r.error is None for r in results)
        return is_submitted(results) or (appended and not refused)


PLUGIN = Interleaved
