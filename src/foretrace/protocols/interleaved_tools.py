"""Small blocks accumulate in a session, with real feedback after each. Redefining a function replaces it."""

from __future__ import annotations

from typing import ClassVar

from foretrace.core.trace import ToolSpec
from foretrace.protocols.base import ActKind, Handling
from foretrace.protocols.multi_turn import CHECK_TOOL, CODE_PARAMETERS, SUBMIT_TOOL, MultiTurnProtocol

_SYSTEM = """
You solve a programming task in Python in small steps, in a session that keeps what you have run, like a notebook.

1. Think in <think>...</think> about the next small step.
2. Write that step in <code>...</code>, then stop. It is run in the session, and you are answered with <result> (what \
it printed) or <error>. Never write <result> or <error> yourself.
3. All blocks that ran are your answer, in order. A block that fails is no part of it. To fix a function, define it \
again: the new one takes the place of the old one.
4. When all is written, <verify>...</verify> runs the tests on your answer; it may hold further checks in Python. If \
they fail, fix the code and verify again.

Example:
<think>First the sum.</think>
<code>
def total(numbers):
    return sum(numbers)
print(total([1, 2, 3]))
</code>

<result>
6
</result>

<think>Now the mean, on top of it.</think>
<code>
def mean(numbers):
    return total(numbers) / len(numbers)
</code>

<result>
(no output)
</result>

<verify>
assert mean([2, 4]) == 3
</verify>

<result>
1 of 2 public tests passed.
test 2: ZeroDivisionError: division by zero
</result>

<think>The second test has an empty list: its mean is 0.</think>
<code>
def mean(numbers):
    return total(numbers) / len(numbers) if numbers else 0
</code>

<result>
(no output)
</result>

<verify></verify>
"""


class InterleavedTools(MultiTurnProtocol):
    """A session of small blocks; ends when a verify block passes."""

    name = "interleaved_tools"
    max_turns = 16
    system_prompt = _SYSTEM
    handlings: ClassVar[dict[ActKind, Handling]] = {**MultiTurnProtocol.handlings, "code": "block", "verify": "check"}
    reminder_text = (
        "Nothing was run. Write the next step in <code>...</code>, or run the tests with <verify>...</verify>."
    )
    tools = (
        ToolSpec(
            name="python",
            description="Run a block in the session; blocks that ran are the answer.",
            parameters=CODE_PARAMETERS,
        ),
        CHECK_TOOL,
        SUBMIT_TOOL,
    )


PLUGIN = InterleavedTools
