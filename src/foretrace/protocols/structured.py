"""Rounds of planning, action and reflection, until the tests pass or the rounds are used up."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.protocols.base import Reply, Result
from foretrace.protocols.multi_turn import SUBMIT_TOOL, TEST_TOOL, MultiTurnProtocol, is_submitted

_SYSTEM = """
You solve a programming task in Python in rounds. A round has three parts, and you are asked for one after the other:

1. <plan>...</plan>: what the code has to do, step by step.
2. <code>...</code>: your whole code. It is run on the tests, and you are answered with <result> or <error>. Never \
write <result> or <error> yourself.
3. <reflect>...</reflect>: what the result tells you, and what the next round must change.

Begin with the plan.
"""
_PLAN = "Now plan the next round in <plan>...</plan>."
_ACT = "Now write your whole code in <code>...</code>."
_REFLECT = "Now reflect on this in <reflect>...</reflect>."
_ROUNDS = 4


class Structured(MultiTurnProtocol):
    """Plan, act, reflect; ends with a reflection on code that passes."""

    name = "structured"
    stop = ("</code>", "</reflect>", "<result>", "<error>")
    max_turns = 3 * _ROUNDS
    ideal_metrics = ("has_tool_feedback",)
    system_prompt = _SYSTEM
    tools = (TEST_TOOL, SUBMIT_TOOL)

    def respond(self, result: Result, *, hints: bool, last: bool) -> str:
        message = super().respond(result, hints=hints, last=last)
        return message if last else f"{message}\n\n{_REFLECT}"

    def nudge(self, reply: Reply) -> str:
        """The request for the next part of the round."""
        return _PLAN if reply.acts and reply.acts[-1].kind == "reflect" else _ACT

    def is_done(self, reply: Reply, results: Sequence[Result]) -> bool:
        """Whether the model has reflected on code that passes, or has submitted its answer."""
        return is_submitted(results) or (not reply.acting and bool(results) and not results[-1].failed)


PLUGIN = Structured
