"""The base of protocols in which the model and the environment take turns: system prompt, blocks, results.

Of a reply, hallucinated results are cut off, and what cannot be read without guessing is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from foretrace.core.completion import ChatMessage
from foretrace.core.trace import ToolSpec
from foretrace.encodings.code_calls import parse_python
from foretrace.encodings.reply_blocks import ReplyBlock, find_hallucinated_result, split_reply
from foretrace.protocols import feedback
from foretrace.protocols.base import Act, ActKind, Handling, ProblemView, Reply, Result

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

CUT_ERROR = "the reply was cut off at its token limit before this block ended; it was not run"
EMPTY_ERROR = "the block has no code"
TOO_MANY_ERROR = "too many blocks in one reply; this one and what follows it were not read"
MAX_ACTS = 16
"""The most blocks of one reply that are carried out. A reply that repeats itself may contain thousands."""
_KINDS: dict[str, ActKind] = {
    "text": "think",
    "think": "think",
    "plan": "plan",
    "reflection": "reflect",
    "wait": "wait",
    "code": "code",
    "action": "code",
    "verify": "verify",
    "answer": "final",
}
_OPENING = re.compile(r"<(\w+)")
_WORDS = re.compile(r"\w+")
_MIN_WORDS = 3
"""The fewest words that make text between blocks a thought: a lone `Then:` is not one."""
_CODE = re.compile(r"^[ \t]*(?:(?:async )?def \w+\(|class \w+|import \w+$|from \w+ import |assert )", re.MULTILINE)
"""Tells code with a syntax error from words."""


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
        """The acts of a reply made of blocks. With `cut`, the token limit ended it, and an unclosed last block is
        refused."""
        kept, hallucinated = cut_hallucinated(text)
        cut = cut and not hallucinated
        parts = split_reply(kept)
        if not cut and not hallucinated and (tag := _find_missing_tag(kept, parts, self.stop)):
            kept += tag
            parts = split_reply(kept)
        acts: list[Act] = []
        count = 0
        for piece in parts:
            act = _make_act(piece, self.handlings, cut=cut)
            if act is None:
                continue
            count += bool(act.handling or act.error)
            if count > MAX_ACTS:
                acts.append(Act(kind="refused", span=piece.span, error=TOO_MANY_ERROR))
                break
            acts.append(act)
        return Reply(text=kept, acts=tuple(acts), hallucinated=hallucinated)

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


def cut_hallucinated(text: str) -> tuple[str, int]:
    """The text before the first result that the model wrote itself, and how many it wrote."""
    at = find_hallucinated_result(text)
    if at is None:
        return text, 0
    count = sum(piece.kind in ("result", "error", "hint") for piece in split_reply(text[at:]))
    return text[:at], max(1, count)


def _find_missing_tag(text: str, parts: Sequence[ReplyBlock], stops: tuple[str, ...]) -> str:
    """The closing tag at which the model was stopped, which servers leave out. Empty if none is missing."""
    if not parts or parts[-1].is_closed or parts[-1].syntax != "xml":
        return ""
    opening = _OPENING.match(text, parts[-1].span[0])
    tag = f"</{opening.group(1)}>" if opening else ""
    return tag if tag in stops else ""


def _make_act(piece: ReplyBlock, handlings: Mapping[ActKind, Handling], *, cut: bool) -> Act | None:
    kind = _KINDS.get(piece.kind)
    if kind is None or (piece.kind == "text" and not is_thought(piece.content)):
        return None
    handling = handlings.get(kind)
    text = piece.content.strip()
    if handling is None:
        return Act(kind=kind, span=piece.span, text=text)
    if cut and not piece.is_closed:
        code = piece.code if kind == "code" else ""
        return Act(kind="refused", span=piece.span, text=text, code=code, error=CUT_ERROR)
    if kind == "code" and not piece.code.strip():
        return Act(kind="refused", span=piece.span, text=text, error=EMPTY_ERROR)
    if kind == "verify" and handling != "check":
        return Act(kind=kind, span=piece.span, text=text, handling=handling)
    code = piece.code if kind == "code" or holds_code(piece) else ""
    return Act(kind=kind, span=piece.span, text=text, code=code and code + "\n", handling=handling)


def is_thought(text: str) -> bool:
    """Whether text between blocks is long enough to be a thought."""
    return len(_WORDS.findall(text)) >= _MIN_WORDS


def holds_code(piece: ReplyBlock) -> bool:
    """Whether a check or an answer contains code: `looks good` is not a program, and `done` does nothing."""
    found = parse_python(piece.code)
    if found is None:
        return _CODE.search(piece.code) is not None
    return any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in found.body)
