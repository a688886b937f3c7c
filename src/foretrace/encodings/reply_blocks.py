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

from foretrace.encodings.code_calls.code_text import tree, unfenced
from foretrace.encodings.code_calls.reader import read_calls

Kind = Literal[
    "text", "think", "code", "verify", "wait", "plan", "action", "reflection", "result", "error", "hint", "answer"
]
Form = Literal["text", "bracket", "xml", "fence"]

_NAMES: dict[str, Kind] = {
    "think": "think", "thinking": "think", "thought": "think", "reasoning": "think", "code": "code", "python": "code",
    "verify": "verify", "verification": "verify", "wait": "wait", "plan": "plan", "planning": "plan",
    "action": "action", "reflection": "reflection", "reflect": "reflection", "result": "result", "output": "result",
    "tool_response": "result", "observation": "result", "tool_result": "result", "tool_output": "result",
    "function_result": "result", "function_results": "result", "execution_result": "result", "stdout": "result",
    "execution_results": "result", "stderr": "result", "interpreter": "result", "system": "result",
    "error": "error", "hint": "hint", "answer": "answer", "final_answer": "answer", "final answer": "answer",
}  # fmt: skip
_WRITTEN = {kind: name for name, kind in reversed(_NAMES.items())} | {"answer": "final_answer"}
_INVENTED = frozenset({"result", "error", "hint"})
_CODE_FENCES = frozenset({"python", "py", "python3", "tool_code"})
_RESULT_FENCES = frozenset({"output", "result", "stdout", "stderr", "tool_output", "tool_response", "tool_result"})
_MOST_TRIES = 8
_ALTERNATIVES = "|".join(sorted(_NAMES, key=len, reverse=True))
_MARK = re.compile(
    rf"^(?:[ \t]*(?P<ticks>`{{3,}})[ \t]*(?P<info>[^`\n]*)"
    rf"|[ ]{{0,3}}(?P<tildes>~{{3,}})[ \t]*(?P<language>\w*)[ \t\r]*)$"
    rf"|\[(?P<bracket_end>/?)(?P<bracket>{_ALTERNATIVES.upper()})\]"
    rf"|<(?P<tag_end>/?)(?P<tag>(?i:{_ALTERNATIVES}))(?:\s[^<>\n]*)?>",
    re.MULTILINE,
)
_OBSERVED = re.compile(r"(?:\A|\n)[ \t]*(?P<at>Observation:)")
_QUOTES = frozenset("`\"'")
_TELLS = (
    r"(?:(?:execution|tool|function|test|program|code|console|sandbox|python|the|actual)[ \t_-])?"
    r"(?:outputs?|results?|stdout|stderr|response)"
)
_SPEAKS = r"(?:user|human|system|environment|tool|sandbox|interpreter|executor)"
_BEHIND = re.compile(rf"\s*(?P<at>[*_#> \t]*(?:{_TELLS}|{_SPEAKS})[*_ \t]*:)", re.IGNORECASE)
"""What a model writes right behind its code when it goes on as the one who runs it."""
_SPEAKER = re.compile(r"\n[ \t]*\n(?P<at>[*_#> \t]*(?:User|Human|System)[*_ \t]*:)")
_TURN = re.compile(
    r"<\|(?:(?:im_start|start_header_id)\|>\s*(?:user|tool|system|ipython)\b|(?:user|tool|observation)\|>)"
)
"""The turn of another, in the control tokens of chat templates."""
_RUN = frozenset({"code", "action", "verify"})
_CODE_ENDS = re.compile(r"(?:```|</(?:code|tool_call|action)>|\[/(?:CODE|ACTION)\]|\nAction Input:[^\n]*)\s*\Z")


class Block(msgspec.Struct, frozen=True):
    """One block of a text, or the plain text between two."""

    kind: Kind
    content: str
    """What stands between the markers, verbatim."""
    form: Form = "xml"
    end: Literal["marker", "next", "cut"] = "marker"
    """What ended it: its own marker, the marker of the next block, or the end of the text (cut off, or stopped)."""
    span: tuple[int, int] = (0, 0)
    """Start and end character offsets into the text, markers included."""

    @property
    def closed(self) -> bool:
        """Whether its end is in the text."""
        return self.end != "cut"

    @property
    def code(self) -> str:
        """The content as code: out of its fence, without blank lines around it."""
        return _source(self.content)


class _Mark(msgspec.Struct, frozen=True):
    start: int
    end: int
    kind: Kind
    form: Form
    closes: bool
    counts: bool
    """Whether it may open a block: it begins a line, or follows a block."""
    ticks: str = ""
    info: str = ""


def blocks(text: str) -> list[Block]:
    """The blocks of a text, in order, without the plain text between them."""
    return [piece for piece in pieces(text) if piece.kind != "text"]


def pieces(text: str) -> list[Block]:
    """The blocks and the plain text between them: their spans cover the text without gap or overlap."""
    found: list[Block] = []
    at = 0
    for block in _scan(text).blocks:
        start, end = block.span
        if start > at:
            found.append(Block("text", text[at:start], "text", "marker", (at, start)))
        found.append(block)
        at = end
    if at < len(text):
        found.append(Block("text", text[at:], "text", "marker", (at, len(text))))
    return found


def render(items: Iterable[Block]) -> str:
    """The text of blocks and plain text; spans are not looked at.

    Law: `pieces(render(items))` gives the items back, but for their spans, where no content holds a marker of its own,
    a block that has no marker at its end is followed by a block or by nothing, and a fence begins and ends a line.
    """
    return "".join(map(_rendered, items))


def _rendered(item: Block) -> str:
    name, closing = _WRITTEN.get(item.kind, ""), item.end == "marker"
    if item.form == "text":
        return item.content
    if item.form == "fence":
        return f"```{'output' if item.kind == 'result' else 'python'}\n{item.content}{'```' * closing}"
    if item.form == "bracket":
        name = name.replace("_", " ").upper()
        return f"[{name}]{item.content}{f'[/{name}]' * closing}"
    return f"<{name}>{item.content}{f'</{name}>' * closing}"


def invented(text: str) -> int | None:
    """Where the first result stands that the model wrote itself, null when there is none: the text is cut there.

    Results, errors, hints and the turns of others are the environment's to write: as markers, as tags, as an `output`
    fence, as control tokens; right behind code or a call also as `Output:`, `User:` or the like, and as text that a
    closing tag ends. Inside of thinking they count too; inside of code or a call they do not.
    """
    scan = _scan(text)
    inert = scan.inert()
    found = [m.start for m in scan.marks if m.kind in _INVENTED and not m.closes and scan.is_written(m)]
    found += [
        m.start("at") for m in _OBSERVED.finditer(text) if _CODE_ENDS.search(text, max(0, m.start() - 400), m.start())
    ]
    found += [m.start() for m in _TURN.finditer(text) if text[max(0, m.start() - 1) : m.start()] not in _QUOTES]
    found += scan.claims()
    starts = [start for start, _ in inert]
    for at in sorted(found):
        index = bisect.bisect_right(starts, at) - 1
        if index < 0 or at >= inert[index][1]:
            return at
    return None


def _source(content: str) -> str:
    """Code in a block's content: in its one python fence when it is no Python as it stands."""
    if ("```" not in content and "~~~" not in content) or tree(content) is not None:
        return content.strip("\n")
    inner = [b for b in _Scanner(content, fences_only=True).blocks if b.kind == "code"]
    return inner[0].content.strip("\n") if len(inner) == 1 else unfenced(content).strip("\n")


class _Scanner:
    """One text and its marks, found once."""

    def __init__(self, text: str, *, fences_only: bool = False) -> None:
        self._text = text
        calls = [] if fences_only or "<tool_call>" not in text else read_calls(text, truncated=False)
        self._calls = [call.span for call in calls]
        self.marks = [m for m in self._find() if not fences_only or m.form == "fence"]
        self._starts = [m.start for m in self.marks]
        self._fences = dict(self._pair_fences())
        self._hidden = self._inside_fences()
        self._has_code_marks = any(m.kind == "code" and m.form != "fence" and self._opens(m) for m in self.marks)

    def _find(self) -> Iterator[_Mark]:
        """All marks outside of calls."""
        before, follows, call = 0, True, 0
        for match in _MARK.finditer(self._text):
            start, end = match.span()
            while call < len(self._calls) and self._calls[call][1] <= start:
                before, follows, call = self._calls[call][1], True, call + 1
            if call < len(self._calls) and self._calls[call][0] <= start:
                continue
            line = self._text[before:start].rpartition("\n")
            counts = not line[2].strip() and (bool(line[1]) or follows)
            mark = _mark(match, counts or (self._text.startswith("\n", end) and match["tag"] is not None))
            yield mark
            before, follows = end, counts or mark.closes

    def _pair_fences(self) -> Iterator[tuple[int, int]]:
        """Start of an opening fence, and index of the mark that closes it."""
        opening: _Mark | None = None
        for index, mark in enumerate(self.marks):
            if mark.form != "fence":
                continue
            if opening is None or (not opening.info and mark.info in _CODE_FENCES):
                opening = mark if mark.info or mark.ticks[0] == "`" else None  # `~~~` alone underlines
            elif not mark.info and mark.ticks.startswith(opening.ticks) and self._may_close(opening, mark, index):
                yield opening.start, index
                opening = None

    def _may_close(self, opening: _Mark, mark: _Mark, index: int) -> bool:
        """A fence in a string of the code does not close it: the code must be whole, or no later fence may help."""
        if opening.info not in _CODE_FENCES or tree(self._text[opening.end : mark.start]) is not None:
            return True
        later = [m for m in self.marks[index + 1 : index + 1 + _MOST_TRIES] if m.form == "fence"][:2]
        return not any(tree(self._text[opening.end : m.start]) is not None for m in later if not m.info)

    def _inside_fences(self) -> set[int]:
        """Starts of marks inside of closed fences."""
        hidden: set[int] = set()
        end = -1
        for mark in self.marks:
            if mark.start < end:
                hidden.add(mark.start)
            elif mark.start in self._fences:
                end = self.marks[self._fences[mark.start]].end
        return hidden

    def _opens(self, mark: _Mark) -> bool:
        return mark.counts and not mark.closes and mark.start not in self._hidden and mark.kind != "text"

    def _after(self, mark: _Mark) -> Iterator[_Mark]:
        index = bisect.bisect_right(self._starts, mark.start)
        while index < len(self.marks):
            yield self.marks[index]
            index += 1

    @functools.cached_property
    def blocks(self) -> list[Block]:
        """The blocks, in order."""
        return list(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        at = 0
        for mark in self.marks:
            if mark.start < at or not mark.counts or mark.closes:
                continue
            if mark.form == "fence":
                if mark.kind == "text" and mark.start not in self._fences:
                    continue  # a stray fence
                block = self._fence(mark)
            else:
                block = self._code(mark) if mark.kind == "code" else self._prose(mark)
            at = block.span[1]
            if block.kind != "text":
                yield block

    def _block(self, mark: _Mark, end: _Mark | None, *, closes: bool) -> Block:
        text, stop = self._text, len(self._text) if end is None else end.start
        how = "cut" if end is None else "marker" if closes else "next"
        begin = min(mark.end + (mark.form == "fence"), stop)
        span_end = end.end if end is not None and closes else stop
        return Block(mark.kind, text[begin:stop], mark.form, how, (mark.start, span_end))

    def _fence(self, mark: _Mark) -> Block:
        index = self._fences.get(mark.start)
        if index is None:
            return self._code(mark) if mark.kind == "code" else self._block(mark, None, closes=False)
        block = self._block(mark, self.marks[index], closes=True)
        if (
            mark.info == ""
            and (module := tree(block.content)) is not None
            and _is_program(block.content, len(module.body))
        ):
            return msgspec.structs.replace(block, kind="code")
        return block

    def _prose(self, mark: _Mark) -> Block:
        """To its closing marker; without one, to the next block. A fence in it is a draft, but where code has no other
        markers and the block has no end."""
        following: _Mark | None = None
        for other in self._after(mark):
            same = other.form == mark.form and other.kind == mark.kind
            if same and other.closes:
                return self._block(mark, other, closes=True)
            if other.form == "fence" and (mark.form != "bracket" or self._has_code_marks or other.kind != "code"):
                continue
            if following is None and self._opens(other):
                following = other
            if same and self._opens(other):
                break
        return self._block(mark, following, closes=False)

    def _code(self, mark: _Mark) -> Block:
        """To the first marker that leaves whole code behind, else to the end if that does, else to the first marker."""
        first: _Mark | None = None
        tries = 0
        for other in self._after(mark):
            closes = other.closes and other.form == mark.form and other.kind == mark.kind and mark.form != "fence"
            if not closes and (other.form == "fence" or not self._opens(other)):
                continue
            first = first or other
            if tree(_source(self._text[mark.end : other.start])) is not None:
                return self._block(mark, other, closes=closes)
            tries += 1
            if tries == _MOST_TRIES:
                break
        few = tries < _MOST_TRIES  # else the end of the text would be tried for each of many blocks
        if first is None or (few and tree(_source(self._text[mark.end :])) is not None):
            return self._block(mark, None, closes=False)
        return self._block(mark, first, closes=first.closes)

    def is_written(self, mark: _Mark) -> bool:
        """Whether the mark stands for a block: at the start of a line, or with its end and not as a quotation."""
        if mark.start in self._hidden:
            return False
        if mark.counts:
            return True
        quoted = self._text[max(0, mark.start - 1) : mark.start] in _QUOTES
        ends = (m for m in self._after(mark) if m.closes and m.form == mark.form and m.kind == mark.kind)
        end = None if quoted or mark.form != "xml" else next(ends, None)
        return end is not None and bool(self._text[mark.end : end.start].strip())

    def claims(self) -> Iterator[int]:
        """Where a result or another's turn begins without a marker of its own, behind code or a call that is run."""
        found = self.blocks
        ends = [end for _, end in self._calls]
        for block, following in itertools.zip_longest(found, found[1:]):
            if block.kind in _RUN:
                ends.append(block.span[1])
                stop = len(self._text) if following is None else following.span[0]
                yield from (m.start("at") for m in _SPEAKER.finditer(self._text, ends[-1], stop))
        yield from (m.start("at") for end in ends if (m := _BEHIND.match(self._text, end)))
        yield from self._lone_ends(sorted(ends))

    def _lone_ends(self, ends: list[int]) -> Iterator[int]:
        """The text behind code that a closing tag ends, or that tag where it has a line of its own."""
        last = 0
        for mark in self.marks:
            if mark.kind not in _INVENTED or not mark.closes:
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

    def inert(self) -> list[tuple[int, int]]:
        """Spans in which nothing is a result: code, calls, fences; sorted."""
        spans = list(self._calls)
        for block in self.blocks:
            if block.kind == "code":
                spans.append(block.span)
            elif block.kind not in _INVENTED:
                offset = self.marks[bisect.bisect_left(self._starts, block.span[0])].end
                inner = _Scanner(block.content).blocks
                spans += [(b.span[0] + offset, b.span[1] + offset) for b in inner if b.kind == "code"]
        return sorted(spans)


@functools.lru_cache(maxsize=4)
def _scan(text: str) -> _Scanner:
    """A reply is read more than once: for results that it invents, and for its blocks."""
    return _Scanner(text)


def _mark(match: re.Match[str], counts: bool) -> _Mark:
    if ticks := match["ticks"] or match["tildes"]:
        info = (match["info"] or match["language"] or "").strip().lower()
        kind: Kind = "code" if info in _CODE_FENCES else "result" if info in _RESULT_FENCES else "text"
        return _Mark(*match.span(), kind, "fence", False, True, ticks, info)
    form: Form = "bracket" if match["bracket"] else "xml"
    kind = _NAMES[(match["bracket"] or match["tag"]).lower()]
    return _Mark(*match.span(), kind, form, bool(match["bracket_end"] or match["tag_end"]), counts)


def _is_program(content: str, statements: int) -> bool:
    """Whether a fence without a language holds code: output may parse as well."""
    return statements > 0 and re.search(r"[=(]|^\s*(?:import|from|def|class|for|while|if)\b", content, re.M) is not None
