"""Think and code over several turns: each code block is the whole answer so far, run against the public tests."""

from __future__ import annotations

from foretrace.protocols.multi_turn import SUBMIT_TOOL, TEST_TOOL, MultiTurnProtocol

_SYSTEM = """
You solve a programming task in Python. Your code is really run.

1. Think in <think>...</think>.
2. Write your whole code in <code>...</code>, then stop. It is run on the tests, and you are answered with <result> or \
<error>. Never write <result> or <error> yourself.
3. If something fails, think about why, and write the whole code again, corrected.
4. When the tests pass, end with <verify>...</verify>: one sentence on why the code is right.

Example:
<think>The sum of two numbers.</think>
<code>
def add(a, b):
    return a - b
</code>

<result>
0 of 1 public tests passed.
test 1: got -1, expected 3
</result>

<think>I subtracted where I must add.</think>
<code>
def add(a, b):
    return a + b
</code>

<result>
The public test passed.
</result>

<verify>It returns the sum, as the test asks.</verify>
"""


class Tools(MultiTurnProtocol):
    """Think, code, result, repeated until it is right; ends with a verify block."""

    name = "tools"
    system_prompt = _SYSTEM
    reminder_text = (
        "Nothing was run. Write your whole code in <code>...</code>. If its tests have passed, end with "
        "<verify>...</verify>."
    )
    tools = (TEST_TOOL, SUBMIT_TOOL)


PLUGIN = Tools
