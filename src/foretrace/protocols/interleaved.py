"""Thoughts and code take turns in one reply, and nothing is run before its end; or, forced, one small step a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from foretrace.core.trace import ToolSpec
from foretrace.protocols.base import Act, ActKind, Reply, Result, Way
from foretrace.protocols.turns import SUBMIT, Turns, handed_in

_RULES = """
- <think>...</think>: what the next step must do.
- <code>...</code>: {size} of Python. All blocks together, in order, are your answer.
- <wait>...</wait>: when you notice a mistake. Then define the function again: the new one takes the place of the old.
- <verify>...</verify>: at the end, checks in Python: `assert` lines.
"""
_ONE_REPLY = f"""
You solve a programming task in Python in one reply, in which thoughts and code take turns:
{_RULES.format(size="a few lines")}
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
_MOST_LINES = 3
_ONE_STEP = f"""
You solve a programming task in Python in very small steps. Each reply is one step:
{_RULES.format(size="one to three lines")}
A block may stop in the middle of a function: the next block goes on there, with its indentation. The tests are run \
when you verify; if they fail, go on and mend your code. After each step you are asked for the next one.

Example of one reply:
<think>The function takes a list of numbers.</think>
<code>
def mean(numbers):
    count = len(numbers)
</code>
"""
_TOO_LONG = f"a block has one to {_MOST_LINES} lines of code; this one was not added: send it in smaller steps"
_NEXT = "Go on with the next step."


class Interleaved(Turns):
    """Think, code, think, code, verify in one reply; `forced`: one step a turn (see `base.Protocol`)."""

    ways: ClassVar[Mapping[ActKind, Way]] = {"code": "keep", "verify": "check", "final": "submit"}
    ideal = ("is_interleaved", "has_verify")
    tools = (
        ToolSpec(
            name="append_file",
            description="Add code to the answer, without running it.",
            parameters='{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},'
            '"required":["path","content"]}',
        ),
        ToolSpec(
            name="run_tests",
            description="Run checks, if any, and the public tests on the answer so far.",
            parameters='{"type":"object","properties":{"checks":{"type":"string"}}}',
        ),
        SUBMIT,
    )

    def __init__(self, *, forced: bool = False) -> None:
        self.forced = forced
        self.name = "interleaved_forced" if forced else "interleaved"
        self.max_turns = 40 if forced else 3
        self.stop = ("</code>", "</verify>", "<result>", "<error>") if forced else ("<result>", "<error>")
        self.rules = _ONE_STEP if forced else _ONE_REPLY

    def read(self, text: str, *, cut: bool, before: Sequence[Act]) -> Reply:
        """The blocks of a completion; forced, those of more than three lines are refused."""
        reply = super().read(text, cut=cut, before=before)
        if not self.forced:
            return reply
        return msgspec.structs.replace(reply, acts=tuple(map(_short, reply.acts)))

    def answer(self, result: Result, *, hints: bool, last: bool) -> str:
        """What the step gave; forced, the call for the next one."""
        told = super().answer(result, hints=hints, last=last)
        return f"{told}\n{_NEXT}" if self.forced and not last else told

    def remind(self, reply: Reply) -> str:
        """The call for the next step, or for code."""
        return (
            _NEXT if self.forced else "There is no code yet. Write it in <code>...</code>, then <verify>...</verify>."
        )

    def over(self, reply: Reply, results: Sequence[Result]) -> bool:
        """In one reply: when all of its code was read. Forced: when a verify block passes."""
        if handed_in(results):
            return True
        if self.forced:
            return any(r.act.way == "check" and not r.failed for r in results)
        refused = any(act.error is not None for act in reply.acts)
        return not refused and any(r.act.way == "keep" and r.error is None for r in results)


def _short(act: Act) -> Act:
    lines = [line for line in act.code.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if act.way != "keep" or len(lines) <= _MOST_LINES:
        return act
    return Act(kind="refused", span=act.span, text=act.text, code=act.code, error=_TOO_LONG)


PLUGIN = Interleaved
