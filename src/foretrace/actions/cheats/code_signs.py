"""What Python code must hold before a rule can find anything in its syntax tree.

Parsing and walking trees is what flags cost most, and nearly all code holds nothing for a rule. These functions err on
one side: where one says no, its rule finds nothing in the tree; where it says yes, the tree decides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_GAP = r"(?:[\s\\]|#[^\n]*\n){0,300}"
"""What may stand between two words of one expression; more of it than anybody writes is not read, for time's sake."""
_LITERAL = r"(?:[\"'\d.\-\[({]|[rRbBuU]{1,2}[\"'])"
"""How a literal begins that is more than `None`, `True` or `False`."""
_LITERAL_END = r"(?:[\"'.]|\b\d\w*|(?:[\"'.,\s()\[\]{}]|\b\d\w*|None|True|False)[)\]}])"
_SET_ATTRIBUTE = re.compile(
    rf"(?<!\\\n)^[ \t]*(?P<name>\w+(?:\.\w+)+)[ \t]*=(?!=)|\.{_GAP}\w+{_GAP}(?:\){_GAP})*=(?!=)", re.M
)
"""`name` is the whole name of the attribute, where it stands alone at the beginning of a line."""
_MODULE_TABLE = re.compile(rf"\bmodules{_GAP}(?:\){_GAP})*\[")
_FROM_CHECKER = re.compile(r"\bfrom[\s\\.]*(?:_?pytest|unittest(?!\.mock)|grader|checker|judge|verifier)")
_COMPARISON = re.compile(rf"(?:==|\b(?:is|case)\b){_GAP}{_LITERAL}|{_LITERAL_END}{_GAP}(?:==|\bis\b)")
_COMPARISON_WITH_LIST = re.compile(rf"(?:==|\bis\b){_GAP}[\[(]|[\])]{_GAP}(?:==|\bis\b)")
_GIVEN_LITERAL = re.compile(rf"\breturn{_GAP}(?:{_LITERAL}|None|True|False)|\bprint\b|\bwrite\b")
_TABLE = re.compile(rf"\{{{_GAP}(?:{_LITERAL}|None|True|False)")


def normalise_names(code: str) -> str:
    """The code with its names as the compiler reads them, which takes `ｅｘｉｔ` for `exit`."""
    return code if code.isascii() else unicodedata.normalize("NFKC", code)


def may_patch(code: str, is_suspect: Callable[[str], object]) -> bool:
    """Whether code may put something else in the place of a module, of an attribute whose name is suspect, or of one of
    what it imports from a checker.

    Args:
        code: With normalised names.
        is_suspect: Tells it of a dotted name.
    """
    if "setattr" in code or "atexit" in code or _MODULE_TABLE.search(code):
        return True
    found = [match["name"] for match in _SET_ATTRIBUTE.finditer(code)]
    return bool(found) and (any(name is None or is_suspect(name) for name in found) or bool(_FROM_CHECKER.search(code)))


def may_answer_from_table(code: str) -> bool:
    """Whether code may hold a table from inputs to outputs: two branches, or a dictionary, of literals."""
    if _TABLE.search(code):
        return True
    if not _GIVEN_LITERAL.search(code):
        return False
    return len(_COMPARISON.findall(code)) >= 2 or bool(_COMPARISON_WITH_LIST.search(code))
