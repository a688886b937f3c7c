"""Read a reply that is made of blocks: what its parts are, what is cut off, and what cannot be read surely."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from foretrace.encodings.code_calls.code_candidates import parse_python
from foretrace.encodings.reply_blocks import ReplyBlock, find_hallucinated_result, split_reply
from foretrace.protocols.base import Act, ActKind, Reply, Way

CUT = "the reply was cut off at its token limit before this block ended; it was not run"
EMPTY = "the block has no code"
TOO_MANY = "too many blocks in one reply; this one and what follows it were not read"
MOST_ACTS = 16
"""Blocks of one reply that are done: a reply that repeats itself may hold thousands."""
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
_FEWEST_WORDS = 3
"""Words from which text between the blocks is a thought: a lone `Then:` is none."""
_CODE = re.compile(r"^[ \t]*(?:(?:async )?def \w+\(|class \w+|import \w+$|from \w+ import |assert )", re.MULTILINE)
"""What code that is no Python is known by."""


def without_invented(text: str) -> tuple[str, int]:
    """What stands before the first result that the model made up, and how many it made up."""
    at = find_hallucinated_result(text)
    if at is None:
        return text, 0
    made = sum(piece.kind in ("result", "error", "hint") for piece in split_reply(text[at:]))
    return text[:at], max(1, made)


def _missing_end(text: str, parts: Sequence[ReplyBlock], stops: tuple[str, ...]) -> str:
    """The closing tag that stopped the model: the tag is the model's own, but servers leave it out."""
    if not parts or parts[-1].is_closed or parts[-1].syntax != "xml":
        return ""
    opening = _OPENING.match(text, parts[-1].span[0])
    tag = f"</{opening.group(1)}>" if opening else ""
    return tag if tag in stops else ""


def read_blocks(text: str, *, cut: bool, stops: tuple[str, ...], ways: Mapping[ActKind, Way]) -> Reply:
    """A reply as acts.

    Args:
        text: the completion.
        cut: the token limit ended it: a last block without its end is refused.
        stops: the protocol's stop sequences.
        ways: what is done with the code of a kind of act; kinds that are not in it are words.
    """
    kept, made = without_invented(text)
    cut = cut and not made
    parts = split_reply(kept)
    if not cut and not made and (tag := _missing_end(kept, parts, stops)):
        kept += tag
        parts = split_reply(kept)
    acts: list[Act] = []
    done = 0
    for piece in parts:
        act = _act(piece, ways, cut=cut)
        if act is None:
            continue
        doing = bool(act.way or act.error)
        if doing and done == MOST_ACTS:
            acts.append(Act(kind="refused", span=piece.span, error=TOO_MANY))
            break
        done += doing
        acts.append(act)
    return Reply(text=kept, acts=tuple(acts), invented=made)


def _act(piece: ReplyBlock, ways: Mapping[ActKind, Way], *, cut: bool) -> Act | None:
    kind = _KINDS.get(piece.kind)
    if kind is None or (piece.kind == "text" and not is_thought(piece.content)):
        return None
    way = ways.get(kind)
    text = piece.content.strip()
    if way is None:
        return Act(kind=kind, span=piece.span, text=text)
    if cut and not piece.is_closed:
        return Act(kind="refused", span=piece.span, text=text, code=piece.code if kind == "code" else "", error=CUT)
    if kind == "code" and not piece.code.strip():
        return Act(kind="refused", span=piece.span, text=text, error=EMPTY)
    if kind == "verify" and way != "check":
        return Act(kind=kind, span=piece.span, text=text, way=way)
    code = piece.code if kind == "code" or is_code(piece) else ""
    return Act(kind=kind, span=piece.span, text=text, code=code and code + "\n", way=way)


def is_thought(text: str) -> bool:
    """Whether text between blocks says something."""
    return len(_WORDS.findall(text)) >= _FEWEST_WORDS


def is_code(piece: ReplyBlock) -> bool:
    """Whether a check or an answer holds code: `looks good` is no program, and `done` is one that does nothing."""
    found = parse_python(piece.code)
    if found is None:
        return _CODE.search(piece.code) is not None
    return any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in found.body)
