"""Find the blocks of a model's reply: thinking, code and the rest, as bracket markers, XML tags or markdown fences.

Blocks do not nest: everything inside one (a fence in `<code>`, a marker in a string of its code) is its content. A
marker opens a block at the start of a line or right after another block; elsewhere it is only mentioned.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from foretrace.encodings.code_calls import parse_python, read_code_calls, strip_fence

BlockKind = Literal[
    "text", "think", "code", "verify", "wait", "plan", "action", "reflection", "result", "error", "hint", "answer"
]
BlockSyntax = Literal["text", "bracket", "xml", "fence"]

_KIND_OF_NAME: dict[str, BlockKind] = {
    "think": "think", "thinking": "think", "thought": "think", "reasoning": "think", "code": "code", "python": "code",
    "verify": "verify", "verification": "verify", "wait": "wait", "plan": "plan", "planning": "plan",
    "action": "action", "reflection": "reflection", "reflect": "reflection", "result": "result", "output": "result",
    "tool_response": "result", "observation": "result", "tool_result": "result", "tool_output": "result",
    "function_result": "result", "function_results": "result", "execution_result": "result", "stdout": "result",
    "execution_results": "result", "stderr": "result", "interpreter": "result", "system": "result",
    "error": "error", "hint": "hint", "answer": "answer", "final_answer": "answer", "final answer": "answer",
}  # fmt: skip
_ENVIRONMENT_KINDS = frozenset({"result", "error", "hint"})
_CODE_FENCES = frozenset({"python", "py", "python3", "tool_code"})
_RESULT_FENCES = frozenset({"output", "result", "stdout", "stderr", "tool_output", "tool_response", "tool_result"})
_MAX_TRIES = 8
_ALTERNATIVES = "|".join(sorted(_KIND_OF_NAME, key=len, reverse=True))
_MARKER = re.compile(
    rf"^[ \t]*(?P<ticks>`{{3,}})[ \t]*(?P<info>[^`\n]*)$"
    rf"|\[(?P<bracket_end>/?)(?P<bracket>{_ALTERNATIVES.upper()})\]"
    rf"|<(?P<tag_end>/?)(?P<tag>(?i:{_ALTERNATIVES}))(?:\s[^<>\n]*)?>",
    re.MULTILINE,
)
_QUOTES = frozenset("`\"'")
_ANSWER_LABEL = re.compile(
    r"\s*(?P<at>[*_#> \t]*(?:"
    r"(?:(?:execution|tool|function|test|program|code|console|sandbox|python|the|actual)[ \t_-])?"
    r"(?:outputs?|results?|stdout|stderr|response|observation)"
    r"|user|human|system|environment|tool|sandbox|interpreter|executor)[*_ \t]*:)",
    re.IGNORECASE,
)
"""Words right after code with which a model makes up the answer of the environment."""
_CHAT_TEMPLATE_TURN = re.compile(
    r"<\|(?:(?:im_start|start_header_id)\|>\s*(?:user|tool|system|ipython)\b|(?:user|tool|observation)\|>)"
)
"""The start of somebody else's turn, in the control tokens of chat templates."""
_EXECUTED_KINDS = frozenset({"code", "action", "verify"})


class ReplyBlock(msgspec.Struct, frozen=True):
    """One block of a text, or the plain text between two."""

    kind: BlockKind
    content: str
    """The text between the markers, verbatim."""
    syntax: BlockSyntax = "xml"
    ended_by: Literal["marker", "next", "cut"] = "marker"
    """What ended it: its own marker, the marker of the next block, or the end of the text (cut off, or stopped)."""
    span: tuple[int, int] = (0, 0)
    """Start and end character offsets in the text, including markers."""

    @property
    def is_closed(self) -> bool:
        return self.ended_by != "cut"

    @property
    def code(self) -> str:
        """The code in the content, without its fence and without blank lines around it."""
        return _extract_code(self.content)


class _Marker(msgspec.Struct, frozen=True):
    """A bracket marker, a tag or a fence in a text, whether it is part of a block or only mentioned."""

    start: int
    end: int
    kind: BlockKind
    syntax: BlockSyntax
    closes: bool
    may_open: bool
    """Whether it may open a block: it begins a line, or follows a block."""
    ticks: str = ""
    """The backticks of a fence."""
    info: str = ""
    """The language of a fence, in lower case."""

    def ends(self, opening: _Marker) -> bool:
        """Whether it is the closing marker or tag of this block."""
        return self.closes and (self.syntax, self.kind) == (opening.syntax, opening.kind)


def split_reply(text: str) -> list[ReplyBlock]:
    """Split a text into blocks and the plain text between them. Their spans cover the text without gaps or overlaps."""
    parts: list[ReplyBlock] = []
    at = 0
    for block in _scan_reply(text).blocks:
        start, end = block.span
        if start > at:
            parts.append(ReplyBlock("text", text[at:start], "text", "marker", (at, start)))
        parts.append(block)
        at = end
    if at < len(text):
        parts.append(ReplyBlock("text", text[at:], "text", "marker", (at, len(text))))
    return parts


def find_hallucinated_result(text: str) -> int | None:
    """The start of the first result that the model made up; `None` if there is none.

    Only the environment writes results, errors, hints and the turns of others: as markers, tags, an `output` fence or
    control tokens. Right after code or a call, `Output:`, `User:` and the like also count. They count inside thinking
    too, but not inside code or calls.
    """
    scan = _scan_reply(text)
    results = [m.start for m in scan.markers if m.kind in _ENVIRONMENT_KINDS and not m.closes and scan.is_used(m)]
    for match in _CHAT_TEMPLATE_TURN.finditer(text):
        if text[max(0, match.start() - 1) : match.start()] not in _QUOTES:
            results.append(match.start())
    results += scan.find_labeled_answers()
    inert = scan.list_inert_spans()
    starts = [start for start, _ in inert]
    for at in sorted(results):
        index = bisect.bisect_right(starts, at) - 1
        if index < 0 or at >= inert[index][1]:
            return at
    return None


def _extract_code(content: str) -> str:
    """The code of a block: the content of its only Python fence, if the content as a whole is not Python."""
    if "```" not in content or parse_python(content) is not None:
        return content.strip("\n")
    inner = [b for b in _Scanner(content, fences_only=True).blocks if b.kind == "code"]
    return inner[0].content.strip("\n") if len(inner) == 1 else strip_fence(content).strip("\n")


class _Scanner:
    """The markers and blocks of one text."""

    def __init__(self, text: str, *, fences_only: bool = False) -> None:
        self._text = text
        calls = [] if fences_only or "<tool_call>" not in text else read_code_calls(text, truncated=False)
        self._calls = [call.span for call in calls if call.span]
        self.markers = [m for m in self._find_markers() if not fences_only or m.syntax == "fence"]
        self._starts = [m.start for m in self.markers]
        self._fences = dict(self._pair_fences())
        self._hidden = self._find_markers_in_fences()
        self._has_code_markers = any(m.kind == "code" and m.syntax != "fence" and self._opens(m) for m in self.markers)

    def _find_markers(self) -> Iterator[_Marker]:
        before, follows, call = 0, True, 0
        for match in _MARKER.finditer(self._text):
            start, end = match.span()
            while call < len(self._calls) and self._calls[call][1] <= start:
                before, follows, call = self._calls[call][1], True, call + 1
            if call < len(self._calls) and self._calls[call][0] <= start:
                continue
            line = self._text[before:start].rpartition("\n")
            counts = not line[2].strip() and (bool(line[1]) or follows)
            marker = _make_marker(match, counts or (self._text.startswith("\n", end) and match["tag"] is not None))
            yield marker
            before, follows = end, counts or marker.closes

    def _pair_fences(self) -> Iterator[tuple[int, int]]:
        opening: _Marker | None = None
        for index, marker in enumerate(self.markers):
            if marker.syntax != "fence":
                continue
            if opening is None or (not opening.info and marker.info in _CODE_FENCES):
                opening = marker
            elif not marker.info and marker.ticks.startswith(opening.ticks) and self._may_close(opening, marker, index):
                yield opening.start, index
                opening = None

    def _may_close(self, opening: _Marker, marker: _Marker, index: int) -> bool:
        """Whether a fence closes the code. A fence in a string does not: the code is only complete at a later one."""
        if opening.info not in _CODE_FENCES or parse_python(self._text[opening.end : marker.start]) is not None:
            return True
        later = [m for m in self.markers[index + 1 : index + 1 + _MAX_TRIES] if m.syntax == "fence"][:2]
        return not any(parse_python(self._text[opening.end : m.start]) is not None for m in later if not m.info)

    def _find_markers_in_fences(self) -> set[int]:
        hidden: set[int] = set()
        end = -1
        for marker in self.markers:
            if marker.start < end:
                hidden.add(marker.start)
            elif marker.start in self._fences:
                end = self.markers[self._fences[marker.start]].end
        return hidden

    def _opens(self, marker: _Marker) -> bool:
        return marker.may_open and not marker.closes and marker.start not in self._hidden and marker.kind != "text"

    def _iterate_after(self, marker: _Marker) -> Iterator[_Marker]:
        first = bisect.bisect_right(self._starts, marker.start)
        return (self.markers[index] for index in range(first, len(self.markers)))

    @functools.cached_property
    def blocks(self) -> list[ReplyBlock]:
        """The blocks of the text, in order."""
        return list(self._find_blocks())

    def _find_blocks(self) -> Iterator[ReplyBlock]:
        at = 0
        for marker in self.markers:
            if marker.start < at or not marker.may_open or marker.closes:
                continue
            if marker.syntax == "fence":
                if marker.kind == "text" and marker.start not in self._fences:
                    continue  # a stray fence
                block = self._read_fence(marker)
            else:
                block = self._read_code(marker) if marker.kind == "code" else self._read_prose(marker)
            at = block.span[1]
            if block.kind != "text":
                yield block

    def _make_block(self, marker: _Marker, end: _Marker | None, *, closes: bool) -> ReplyBlock:
        text, stop = self._text, len(self._text) if end is None else end.start
        ended_by = "cut" if end is None else "marker" if closes else "next"
        begin = min(marker.end + (marker.syntax == "fence"), stop)
        span_end = end.end if end is not None and closes else stop
        return ReplyBlock(marker.kind, text[begin:stop], marker.syntax, ended_by, (marker.start, span_end))

    def _read_fence(self, marker: _Marker) -> ReplyBlock:
        index = self._fences.get(marker.start)
        if index is None:
            return self._read_code(marker) if marker.kind == "code" else self._make_block(marker, None, closes=False)
        block = self._make_block(marker, self.markers[index], closes=True)
        if (
            marker.info == ""
            and (module := parse_python(block.content)) is not None
            and _is_program(block.content, len(module.body))
        ):
            return msgspec.structs.replace(block, kind="code")
        return block

    def _read_prose(self, marker: _Marker) -> ReplyBlock:
        """Read a block of prose: to its closing marker or, without one, to the next block.

        It may contain fences. But if it is a bracket block without an end, and all code of the text is in fences, a
        fence with code is the next block.
        """
        following: _Marker | None = None
        for other in self._iterate_after(marker):
            if other.ends(marker):
                return self._make_block(marker, other, closes=True)
            if other.syntax == "fence" and (
                marker.syntax != "bracket" or self._has_code_markers or other.kind != "code"
            ):
                continue
            if following is None and self._opens(other):
                following = other
            if (other.syntax, other.kind) == (marker.syntax, marker.kind) and self._opens(other):
                break
        return self._make_block(marker, following, closes=False)

    def _read_code(self, marker: _Marker) -> ReplyBlock:
        """Read a block of code, up to the first marker before which it is complete.

        Otherwise up to the end of the text if it is complete there, otherwise to the first marker.
        """
        first: _Marker | None = None
        tries = 0
        for other in self._iterate_after(marker):
            closes = other.ends(marker)
            if not closes and (other.syntax == "fence" or not self._opens(other)):
                continue
            first = first or other
            if parse_python(_extract_code(self._text[marker.end : other.start])) is not None:
                return self._make_block(marker, other, closes=closes)
            tries += 1
            if tries == _MAX_TRIES:
                break
        few = tries < _MAX_TRIES  # otherwise many blocks would each read to the end of the text
        if first is None or (few and parse_python(_extract_code(self._text[marker.end :])) is not None):
            return self._make_block(marker, None, closes=False)
        return self._make_block(marker, first, closes=first.closes)

    def is_used(self, marker: _Marker) -> bool:
        """Whether a marker is more than a mention: it begins a line, or is a tag with an end that is not quoted."""
        if marker.start in self._hidden:
            return False
        if marker.may_open:
            return True
        quoted = self._text[max(0, marker.start - 1) : marker.start] in _QUOTES
        ends = (other for other in self._iterate_after(marker) if other.ends(marker))
        end = None if quoted or marker.syntax != "xml" else next(ends, None)
        return end is not None and bool(self._text[marker.end : end.start].strip())

    def find_labeled_answers(self) -> Iterator[int]:
        """The starts of `Output:` and the like right after code or a call that is run."""
        ends = [end for _, end in self._calls] + [b.span[1] for b in self.blocks if b.kind in _EXECUTED_KINDS]
        return (match.start("at") for end in ends if (match := _ANSWER_LABEL.match(self._text, end)))

    def list_inert_spans(self) -> list[tuple[int, int]]:
        """The sorted spans of code and calls, in which nothing counts as a result."""
        spans = list(self._calls)
        for block in self.blocks:
            if block.kind == "code":
                spans.append(block.span)
            elif block.kind not in _ENVIRONMENT_KINDS:
                offset = self.markers[bisect.bisect_left(self._starts, block.span[0])].end
                inner = _Scanner(block.content).blocks
                spans += [(b.span[0] + offset, b.span[1] + offset) for b in inner if b.kind == "code"]
        return sorted(spans)


@functools.lru_cache(maxsize=4)
def _scan_reply(text: str) -> _Scanner:
    """Cached because a reply is scanned for hallucinated results and for its blocks."""
    return _Scanner(text)


def _make_marker(match: re.Match[str], may_open: bool) -> _Marker:
    if ticks := match["ticks"]:
        info = match["info"].strip().lower()
        kind: BlockKind = "code" if info in _CODE_FENCES else "result" if info in _RESULT_FENCES else "text"
        return _Marker(*match.span(), kind, "fence", False, True, ticks, info)
    syntax: BlockSyntax = "bracket" if match["bracket"] else "xml"
    kind = _KIND_OF_NAME[(match["bracket"] or match["tag"]).lower()]
    return _Marker(*match.span(), kind, syntax, bool(match["bracket_end"] or match["tag_end"]), may_open)


def _is_program(content: str, statements: int) -> bool:
    """Whether a fence without a language contains code: output may be valid Python too."""
    return statements > 0 and re.search(r"[=(]|^\s*(?:import|from|def|class|for|while|if)\b", content, re.M) is not None
