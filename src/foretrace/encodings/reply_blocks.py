"""Find the blocks of a model's reply: thinking, code and the rest, as bracket markers, XML tags or markdown fences.

Blocks do not nest: what stands inside of one (a fence in `<code>`, a marker in a string of its code) is its content.
A marker counts at the start of a line or right behind another block; in the middle of a line it is only mentioned.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from foretrace.encodings.code_calls.code_candidates import parse_python, strip_fence
from foretrace.encodings.code_calls.reader import read_calls

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
_NAME_OF_KIND = {kind: name for name, kind in reversed(_KIND_OF_NAME.items())} | {"answer": "final_answer"}
_ENVIRONMENT_KINDS = frozenset({"result", "error", "hint"})
_CODE_FENCES = frozenset({"python", "py", "python3", "tool_code"})
_RESULT_FENCES = frozenset({"output", "result", "stdout", "stderr", "tool_output", "tool_response", "tool_result"})
_MAX_TRIES = 8
_ALTERNATIVES = "|".join(sorted(_KIND_OF_NAME, key=len, reverse=True))
_MARKER = re.compile(
    rf"^(?:[ \t]*(?P<ticks>`{{3,}})[ \t]*(?P<info>[^`\n]*)"
    rf"|[ ]{{0,3}}(?P<tildes>~{{3,}})[ \t]*(?P<language>\w*)[ \t\r]*)$"
    rf"|\[(?P<bracket_end>/?)(?P<bracket>{_ALTERNATIVES.upper()})\]"
    rf"|<(?P<tag_end>/?)(?P<tag>(?i:{_ALTERNATIVES}))(?:\s[^<>\n]*)?>",
    re.MULTILINE,
)
_OBSERVATION = re.compile(r"(?:\A|\n)[ \t]*(?P<at>Observation:)")
_QUOTES = frozenset("`\"'")
_OUTPUT_NAMES = (
    r"(?:(?:execution|tool|function|test|program|code|console|sandbox|python|the|actual)[ \t_-])?"
    r"(?:outputs?|results?|stdout|stderr|response)"
)
_SPEAKER_NAMES = r"(?:user|human|system|environment|tool|sandbox|interpreter|executor)"
_OUTPUT_LABEL = re.compile(rf"\s*(?P<at>[*_#> \t]*(?:{_OUTPUT_NAMES}|{_SPEAKER_NAMES})[*_ \t]*:)", re.IGNORECASE)
"""What a model writes right behind its code when it goes on as the one who runs it."""
_SPEAKER_LABEL = re.compile(r"\n[ \t]*\n(?P<at>[*_#> \t]*(?:User|Human|System)[*_ \t]*:)")
_CHAT_TEMPLATE_TURN = re.compile(
    r"<\|(?:(?:im_start|start_header_id)\|>\s*(?:user|tool|system|ipython)\b|(?:user|tool|observation)\|>)"
)
"""The turn of another, in the control tokens of chat templates."""
_EXECUTED_KINDS = frozenset({"code", "action", "verify"})
_END_OF_CODE = re.compile(r"(?:```|</(?:code|tool_call|action)>|\[/(?:CODE|ACTION)\]|\nAction Input:[^\n]*)\s*\Z")


class ReplyBlock(msgspec.Struct, frozen=True):
    """One block of a text, or the plain text between two."""

    kind: BlockKind
    content: str
    """What stands between the markers, verbatim."""
    syntax: BlockSyntax = "xml"
    ended_by: Literal["marker", "next", "cut"] = "marker"
    """What ended it: its own marker, the marker of the next block, or the end of the text (cut off, or stopped)."""
    span: tuple[int, int] = (0, 0)
    """Start and end character offsets into the text, markers included."""

    @property
    def is_closed(self) -> bool:
        """Whether its end is in the text."""
        return self.ended_by != "cut"

    @property
    def code(self) -> str:
        """The content as code: out of its fence, without blank lines around it."""
        return _extract_code(self.content)


class _Marker(msgspec.Struct, frozen=True):
    start: int
    end: int
    kind: BlockKind
    syntax: BlockSyntax
    closes: bool
    may_open: bool
    """Whether it may open a block: it begins a line, or follows a block."""
    ticks: str = ""
    info: str = ""


def find_blocks(text: str) -> list[ReplyBlock]:
    """The blocks of a text, in order, without the plain text between them."""
    return [piece for piece in split_reply(text) if piece.kind != "text"]


def split_reply(text: str) -> list[ReplyBlock]:
    """The blocks and the plain text between them: their spans cover the text without gap or overlap."""
    found: list[ReplyBlock] = []
    at = 0
    for block in _scan_reply(text).blocks:
        start, end = block.span
        if start > at:
            found.append(ReplyBlock("text", text[at:start], "text", "marker", (at, start)))
        found.append(block)
        at = end
    if at < len(text):
        found.append(ReplyBlock("text", text[at:], "text", "marker", (at, len(text))))
    return found


def render_blocks(items: Iterable[ReplyBlock]) -> str:
    """The text of blocks and plain text; spans are not looked at.

    Law: `pieces(render(items))` gives the items back, but for their spans, where no content holds a marker of its own,
    a block that has no marker at its end is followed by a block or by nothing, and a fence begins and ends a line.
    """
    return "".join(map(_render_block, items))


def _render_block(item: ReplyBlock) -> str:
    name, closing = _NAME_OF_KIND.get(item.kind, ""), item.ended_by == "marker"
    if item.syntax == "text":
        return item.content
    if item.syntax == "fence":
        return f"```{'output' if item.kind == 'result' else 'python'}\n{item.content}{'```' * closing}"
    if item.syntax == "bracket":
        name = name.replace("_", " ").upper()
        return f"[{name}]{item.content}{f'[/{name}]' * closing}"
    return f"<{name}>{item.content}{f'</{name}>' * closing}"


def find_hallucinated_result(text: str) -> int | None:
    """Where the first result stands that the model wrote itself, null when there is none: the text is cut there.

    Results, errors, hints and the turns of others are the environment's to write: as markers, as tags, as an `output`
    fence, as control tokens; right behind code or a call also as `Output:`, `User:` or the like, and as text that a
    closing tag ends. Inside of thinking they count too; inside of code or a call they do not.
    """
    scan = _scan_reply(text)
    inert = scan.list_inert_spans()
    found = [m.start for m in scan.markers if m.kind in _ENVIRONMENT_KINDS and not m.closes and scan.is_used(m)]
    found += [
        m.start("at")
        for m in _OBSERVATION.finditer(text)
        if _END_OF_CODE.search(text, max(0, m.start() - 400), m.start())
    ]
    found += [
        m.start() for m in _CHAT_TEMPLATE_TURN.finditer(text) if text[max(0, m.start() - 1) : m.start()] not in _QUOTES
    ]
    found += scan.find_unmarked_results()
    starts = [start for start, _ in inert]
    for at in sorted(found):
        index = bisect.bisect_right(starts, at) - 1
        if index < 0 or at >= inert[index][1]:
            return at
    return None


def _extract_code(content: str) -> str:
    """Code in a block's content: in its one python fence when it is no Python as it stands."""
    if ("```" not in content and "~~~" not in content) or parse_python(content) is not None:
        return content.strip("\n")
    inner = [b for b in _Scanner(content, fences_only=True).blocks if b.kind == "code"]
    return inner[0].content.strip("\n") if len(inner) == 1 else strip_fence(content).strip("\n")


class _Scanner:
    """One text and its marks, found once."""

    def __init__(self, text: str, *, fences_only: bool = False) -> None:
        self._text = text
        calls = [] if fences_only or "<tool_call>" not in text else read_calls(text, truncated=False)
        self._calls = [call.span for call in calls]
        self.markers = [m for m in self._find_markers() if not fences_only or m.syntax == "fence"]
        self._starts = [m.start for m in self.markers]
        self._fences = dict(self._pair_fences())
        self._hidden = self._find_markers_in_fences()
        self._has_code_marks = any(m.kind == "code" and m.syntax != "fence" and self._opens(m) for m in self.markers)

    def _find_markers(self) -> Iterator[_Marker]:
        """All marks outside of calls."""
        before, follows, call = 0, True, 0
        for match in _MARKER.finditer(self._text):
            start, end = match.span()
            while call < len(self._calls) and self._calls[call][1] <= start:
                before, follows, call = self._calls[call][1], True, call + 1
            if call < len(self._calls) and self._calls[call][0] <= start:
                continue
            line = self._text[before:start].rpartition("\n")
            counts = not line[2].strip() and (bool(line[1]) or follows)
            mark = _make_marker(match, counts or (self._text.startswith("\n", end) and match["tag"] is not None))
            yield mark
            before, follows = end, counts or mark.closes

    def _pair_fences(self) -> Iterator[tuple[int, int]]:
        """Start of an opening fence, and index of the mark that closes it."""
        opening: _Marker | None = None
        for index, mark in enumerate(self.markers):
            if mark.syntax != "fence":
                continue
            if opening is None or (not opening.info and mark.info in _CODE_FENCES):
                opening = mark if mark.info or mark.ticks[0] == "`" else None  # `~~~` alone underlines
            elif not mark.info and mark.ticks.startswith(opening.ticks) and self._may_close(opening, mark, index):
                yield opening.start, index
                opening = None

    def _may_close(self, opening: _Marker, mark: _Marker, index: int) -> bool:
        """A fence in a string of the code does not close it: the code must be whole, or no later fence may help."""
        if opening.info not in _CODE_FENCES or parse_python(self._text[opening.end : mark.start]) is not None:
            return True
        later = [m for m in self.markers[index + 1 : index + 1 + _MAX_TRIES] if m.syntax == "fence"][:2]
        return not any(parse_python(self._text[opening.end : m.start]) is not None for m in later if not m.info)

    def _find_markers_in_fences(self) -> set[int]:
        """Starts of marks inside of closed fences."""
        hidden: set[int] = set()
        end = -1
        for mark in self.markers:
            if mark.start < end:
                hidden.add(mark.start)
            elif mark.start in self._fences:
                end = self.markers[self._fences[mark.start]].end
        return hidden

    def _opens(self, mark: _Marker) -> bool:
        return mark.may_open and not mark.closes and mark.start not in self._hidden and mark.kind != "text"

    def _iterate_after(self, mark: _Marker) -> Iterator[_Marker]:
        index = bisect.bisect_right(self._starts, mark.start)
        while index < len(self.markers):
            yield self.markers[index]
            index += 1

    @functools.cached_property
    def blocks(self) -> list[ReplyBlock]:
        """The blocks, in order."""
        return list(self._find_blocks())

    def _find_blocks(self) -> Iterator[ReplyBlock]:
        at = 0
        for mark in self.markers:
            if mark.start < at or not mark.may_open or mark.closes:
                continue
            if mark.syntax == "fence":
                if mark.kind == "text" and mark.start not in self._fences:
                    continue  # a stray fence
                block = self._read_fence(mark)
            else:
                block = self._read_code(mark) if mark.kind == "code" else self._read_prose(mark)
            at = block.span[1]
            if block.kind != "text":
                yield block

    def _make_block(self, mark: _Marker, end: _Marker | None, *, closes: bool) -> ReplyBlock:
        text, stop = self._text, len(self._text) if end is None else end.start
        how = "cut" if end is None else "marker" if closes else "next"
        begin = min(mark.end + (mark.syntax == "fence"), stop)
        span_end = end.end if end is not None and closes else stop
        return ReplyBlock(mark.kind, text[begin:stop], mark.syntax, how, (mark.start, span_end))

    def _read_fence(self, mark: _Marker) -> ReplyBlock:
        index = self._fences.get(mark.start)
        if index is None:
            return self._read_code(mark) if mark.kind == "code" else self._make_block(mark, None, closes=False)
        block = self._make_block(mark, self.markers[index], closes=True)
        if (
            mark.info == ""
            and (module := parse_python(block.content)) is not None
            and _is_program(block.content, len(module.body))
        ):
            return msgspec.structs.replace(block, kind="code")
        return block

    def _read_prose(self, mark: _Marker) -> ReplyBlock:
        """To its closing marker; without one, to the next block. A fence in it is a draft, but where code has no other
        markers and the block has no end."""
        following: _Marker | None = None
        for other in self._iterate_after(mark):
            same = other.syntax == mark.syntax and other.kind == mark.kind
            if same and other.closes:
                return self._make_block(mark, other, closes=True)
            if other.syntax == "fence" and (mark.syntax != "bracket" or self._has_code_marks or other.kind != "code"):
                continue
            if following is None and self._opens(other):
                following = other
            if same and self._opens(other):
                break
        return self._make_block(mark, following, closes=False)

    def _read_code(self, mark: _Marker) -> ReplyBlock:
        """To the first marker that leaves whole code behind, else to the end if that does, else to the first marker."""
        first: _Marker | None = None
        tries = 0
        for other in self._iterate_after(mark):
            closes = other.closes and other.syntax == mark.syntax and other.kind == mark.kind and mark.syntax != "fence"
            if not closes and (other.syntax == "fence" or not self._opens(other)):
                continue
            first = first or other
            if parse_python(_extract_code(self._text[mark.end : other.start])) is not None:
                return self._make_block(mark, other, closes=closes)
            tries += 1
            if tries == _MAX_TRIES:
                break
        few = tries < _MAX_TRIES  # else the end of the text would be tried for each of many blocks
        if first is None or (few and parse_python(_extract_code(self._text[mark.end :])) is not None):
            return self._make_block(mark, None, closes=False)
        return self._make_block(mark, first, closes=first.closes)

    def is_used(self, mark: _Marker) -> bool:
        """Whether the mark stands for a block: at the start of a line, or with its end and not as a quotation."""
        if mark.start in self._hidden:
            return False
        if mark.may_open:
            return True
        quoted = self._text[max(0, mark.start - 1) : mark.start] in _QUOTES
        ends = (m for m in self._iterate_after(mark) if m.closes and m.syntax == mark.syntax and m.kind == mark.kind)
        end = None if quoted or mark.syntax != "xml" else next(ends, None)
        return end is not None and bool(self._text[mark.end : end.start].strip())

    def find_unmarked_results(self) -> Iterator[int]:
        """Where a result or another's turn begins without a marker of its own, behind code or a call that is run."""
        found = self.blocks
        ends = [end for _, end in self._calls]
        for block, following in itertools.zip_longest(found, found[1:]):
            if block.kind in _EXECUTED_KINDS:
                ends.append(block.span[1])
                stop = len(self._text) if following is None else following.span[0]
                yield from (m.start("at") for m in _SPEAKER_LABEL.finditer(self._text, ends[-1], stop))
        yield from (m.start("at") for end in ends if (m := _OUTPUT_LABEL.match(self._text, end)))
        yield from self._find_lone_closing_tags(sorted(ends))

    def _find_lone_closing_tags(self, ends: list[int]) -> Iterator[int]:
        """The text behind code that a closing tag ends, or that tag where it has a line of its own."""
        last = 0
        for mark in self.markers:
            if mark.kind not in _ENVIRONMENT_KINDS or not mark.closes:
                last = last if mark.closes else mark.end
                continue
            index = bisect.bisect_right(ends, mark.start) - 1
            line = self._text[: mark.start].rpartition("\n")[2]
            if index < 0 or mark.start in self._hidden or self._text[mark.start - 1] in _QUOTES:
                continue
            if ends[index] >= last:
                between = self._text[ends[index] : mark.start]
                yield mark.start - len(between.lstrip())
            elif not line.strip():
                yield mark.start

    def list_inert_spans(self) -> list[tuple[int, int]]:
        """Spans in which nothing is a result: code, calls, fences; sorted."""
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
    """A reply is read more than once: for results that it invents, and for its blocks."""
    return _Scanner(text)


def _make_marker(match: re.Match[str], counts: bool) -> _Marker:
    if ticks := match["ticks"] or match["tildes"]:
        info = (match["info"] or match["language"] or "").strip().lower()
        kind: BlockKind = "code" if info in _CODE_FENCES else "result" if info in _RESULT_FENCES else "text"
        return _Marker(*match.span(), kind, "fence", False, True, ticks, info)
    form: BlockSyntax = "bracket" if match["bracket"] else "xml"
    kind = _KIND_OF_NAME[(match["bracket"] or match["tag"]).lower()]
    return _Marker(*match.span(), kind, form, bool(match["bracket_end"] or match["tag_end"]), counts)


def _is_program(content: str, statements: int) -> bool:
    """Whether a fence without a language holds code: output may parse as well."""
    return statements > 0 and re.search(r"[=(]|^\s*(?:import|from|def|class|for|while|if)\b", content, re.M) is not None
