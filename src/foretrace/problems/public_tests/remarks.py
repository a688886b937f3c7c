"""What a statement says of an example beside its value: that it is approximate, in any order, or one of several."""

from __future__ import annotations

import ast
import bisect
import itertools
import re

from foretrace.problems.public_tests.literals import is_literal, make_assert, make_equality_assert

_MAX_LINES = 12
"""Lines before and after an example that are looked at."""
_MAX_CHARS = 400
"""Characters of each of them."""
_NEITHER = r"(?:does|do|did|should|need|is|are|will)\s*(?:n[o']t|not)\s+(?:really\s+)?"
_OUTPUT = r"(?:outputs?|answers?|results?|solutions?|return values?|values?|orders?|orderings?|lists?|choices?|ones?)"
_OPEN = re.compile(
    r"\b(?:any|whatever|arbitrary|unspecified|random|no (?:particular|specific|special|given))\s+order\b"
    r"|\border(?:ing)?\s+(?:of\s+[^.\n]{1,60}?\s+)?(?:" + _NEITHER + r"(?:matter|important|relevant|fixed|guaranteed|"
    r"specified|defined)|(?:may|might|can|could)\s+(?:vary|differ|be\s+(?:different|any\w*|arbitrary))|varies|differs|"
    r"(?:is|are)\s+(?:irrelevant|arbitrary|unimportant|undefined|unspecified|free|up to you))"
    r"|\b(?:regardless|irrespective|independent(?:ly)?|ignoring|ignore|disregarding)\s+(?:of\s+)?(?:the\s+)?order\b"
    r"|\b(?:un-?ordered|order-?independent|order irrelevant|up to (?:re)?order(?:ing)?)\b"
    r"|\bnot necessarily (?:in )?(?:this|that|the same|the given) order\b"
    r"|≈|≃|±|\+/-|\bapprox(?:imat\w*)?\b|\broughly\b|\brounding errors?\b"
    r"|\b(?:one|some|another|other|a|an|any|many|several|multiple|different|more than one|single)\s+(?:of\s+(?:the\s+)?"
    rf"(?:many\s+|several\s+)?)?(?:possible|valid|correct|acceptable|accepted|legal|allowed|right)\s+{_OUTPUT}\b"
    rf"|\b(?:possible|sample of possible|example of an?)\s+{_OUTPUT}\s*(?:is|are|:|\)|$)"
    r"|\b(?:is|are|would be|be)\s+(?:also|equally|just as)\s+(?:an?\s+)?(?:fine|ok|okay|valid|correct|accept\w+|"
    r"possible|right|good|allowed)\b"
    r"|\balso\s+(?:an?\s+)?(?:valid|correct|accept\w+|possible)\b"
    rf"|\bthere\s+(?:are|may be|can be)\s+(?:\w+\s+)?(?:other|several|multiple|many|more)\s+(?:\w+\s+)?{_OUTPUT}\b"
    rf"|\b{_OUTPUT}\s+(?:is|are)\s+(?:not|n't)\s+unique\b|\bnon-?deterministic\b|\bnot deterministic\b"
    rf"|\b{_OUTPUT}\s+(?:may|might|will|can|could)\s+(?:vary|differ|be different)\b|\b{_OUTPUT}\s+(?:varies|vary)\b",
    re.IGNORECASE,
)
"""Words near an example by which other values may be right as well."""
_OPEN_HERE = re.compile(
    r"^\W*or\b|\be\.\s?g\.|\bfor (?:example|instance)\b|\b(?:may|might|could|can)\s+(?:vary|differ|be|also|return|give)"
    r"\b|\bvaries\b|\brandom(?:ly)?\b|\bdepend(?:s|ing)\b|\bsomething like\b|\bsimilar\b|\bsuch as\b|\bpossibl[ey]\b|"
    r"\betc\b|\+SKIP\b|\+ELLIPSIS\b|\bor\s+(?:similar|so|any|anything)\b"
    r"|(?:\b(?:about|around|nearly|almost|close to|circa|ca\.)|[~∼])(?=\s*[-+]?\.?\d|\W*$)"
    r"|\b(?:within|tolerance|precision|decimals?|decimal places|rounded|truncated|floating|give or take)\b|\.\.\.|…",
    re.IGNORECASE,
)
"""Words that say so only right at the example."""
_ALL_OPEN = re.compile(
    r"\b(?:return|returns|print|output|give|find|report|choose|pick)\s+any\s+(?:one\s+)?(?:of\s+(?:them|these|those)|"
    r"valid|such|possible|correct|acceptable|suitable|one\b)"
    r"|\bany\s+(?:one\s+)?(?:of\s+(?:them|these|those)|(?:valid|correct|such|possible)\s+\w+)\s+(?:(?:is|are|will be|"
    r"may be|can be|would be)\s+)(?:fine|ok|okay|accept\w*|correct|enough|returned|printed|valid)\b"
    r"|\b(?:return|returns|output|print|give|answer|result|report|list)\w*\b(?:(?!given|come|input|passed)[^.\n]){0,200}?"
    r"\bin (?:any|whatever|arbitrary|no particular) order\b"
    r"|\border\s+of\s+(?:the\s+)?(?:return\w*|result\w*|output|answers?|elements|items|values|pairs|tuples|keys|words)\b"
    r"[^.\n]{0,40}?" + _NEITHER + r"(?:matter|important|relevant|specified)"
    r"|\b(?:results?|outputs?|answers?|return(?:ed)? values?)\s+(?:is|are)\s+(?:only\s+)?(?:an?\s+)?approximat"
    r"|\b(?:answers?|results?|outputs?|solutions?|values?|error)\b[^.\n]{0,40}?\b(?:within|up to|of at most|less than|"
    r"not exceed\w*)\s+(?:an?\s+)?(?:(?:absolute|relative|error|tolerance)[\w\s]*?)?`?(?:10\s*(?:\^|\*\*|<sup>|⁻)|1e-|"
    r"0?\.0)",
    re.IGNORECASE,
)
"""Sentences that say it of all results, wherever they stand."""
_OR = re.compile(r"\W*or\b", re.IGNORECASE)
_HEADING_END = re.compile(r"[:)]\s*$")
_NEXT = re.compile(r"^\W*(?:>>>|(?:Example|Input|Sample|Case|Test)s?\b(?!.*\b(?:order|approx)))", re.IGNORECASE)
_STRING = re.compile(r"(?<!\w)(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')")


class Remarks:
    """What a statement says of its examples.

    Args:
        name: the entry point: a line that calls it is another example.
    """

    def __init__(self, text: str, name: str) -> None:
        self._lines = text.split("\n")
        self._starts = list(itertools.accumulate((len(line) + 1 for line in self._lines), initial=0))
        self._call = f"{name}("
        self._all_open = _ALL_OPEN.search(text) is not None

    def leave_open(self, begin: int, end: int, beside: str = "") -> bool:
        """Whether other values than the one shown may be right for the example between two places of the text.

        Its own words count, those of its paragraph up to the next example, a heading above the list that it stands in,
        and sentences of the whole text that speak of all results (`return them in any order`).

        Args:
            beside: more that is surely said of this example, such as a comment.
        """
        if self._all_open:
            return True
        first, last = (bisect.bisect_right(self._starts, place) - 1 for place in (begin, end))
        here = [self._lines[last][end - self._starts[last] :][:_MAX_CHARS], *beside[:_MAX_CHARS].split("\n")]
        below = self._read_below(last)
        near = "\n".join([*here, *self._read_above(first), *below])
        said = _OPEN.search(near) or any(map(_OPEN_HERE.search, here)) or any(map(_OR.match, below[:1]))
        return bool(said)

    def _read_above(self, number: int) -> list[str]:
        """The lines with which a line's paragraph begins, before its first example; where there are none, the heading
        above."""
        first = number
        while first > max(0, number - _MAX_LINES) and self._lines[first - 1].strip():
            first -= 1
        found: list[str] = []
        for line in self._lines[first:number]:
            if self._call in line or _NEXT.match(line):
                break
            found.append(_STRING.sub("", line[:_MAX_CHARS]))
        above = next((line for line in reversed(self._lines[max(0, first - 3) : first]) if line.strip()), "")
        if not found and _HEADING_END.search(above[-_MAX_CHARS:]) and self._call not in above:
            found.append(above[:_MAX_CHARS])
        return found

    def _read_below(self, number: int) -> list[str]:
        """Lines of the paragraph below a line, up to the next example."""
        found: list[str] = []
        for line in self._lines[number + 1 : number + 1 + _MAX_LINES]:
            if not line.strip() or self._call in line or _NEXT.match(line):
                break
            found.append(_STRING.sub("", line[:_MAX_CHARS]))
        return found


def find_comment(code: str) -> str:
    """The comments of a few lines of Python."""
    return "\n".join(line.partition("#")[2] for line in _STRING.sub("", code).split("\n"))


def make_example_assert(call: ast.expr, value: ast.expr, is_open: bool) -> str:
    """`assert call == value`; empty where other values may be right as well."""
    return "" if is_open or _is_abridged(call, value) else make_equality_assert(call, value)


def keep_assert(test: ast.expr, is_open: bool) -> str:
    """The assert of a test that the statement spells out. One that is more than `call == value` says itself how much it
    leaves open."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        call, value = test.left, test.comparators[0]
        if isinstance(value, ast.Call) and is_literal(call):
            call, value = value, call
        plain = isinstance(call, ast.Call) and all(is_literal(arg) for arg in call.args)
        if is_literal(value) and (plain or _is_abridged(call, value)):
            return make_example_assert(call, value, is_open)
    return make_assert(test)


def _is_abridged(call: ast.expr, value: ast.expr) -> bool:
    """Whether a part of an example is left out: `[1, 2, ...]`, or `'abcabc...'` where no argument begins so."""
    if any(isinstance(n, ast.Constant) and n.value is ... for part in (call, value) for n in ast.walk(part)):
        return True
    given = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for node in ast.walk(value):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        before, dots, _ = text.replace("…", "...").partition("...")
        if dots and not any("..." in one or "…" in one or one.startswith(before.rstrip()) for one in given):
            return True
    return False
