"""Undo escapes in code, for each way in which models write them."""

from __future__ import annotations

import json
import re

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "\n", **{c: c for c in "\"'\\/"}}
_STRINGS = (
    r'"""(?:[^"\\]++|\\.|"(?!""))*+"""'
    r"|'''(?:[^'\\]++|\\.|'(?!''))*+'''"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'(?:[^'\\\n]++|\\.)*+'"
)
OUTSIDE_STRINGS, _OUTSIDE_LONG = (
    re.compile(
        rf"(?P<verbatim>{_STRINGS}|#(?:[^\\\n]++|{pair}\\(?!(?:r\\)?n))*+|\\\\)|\\(?P<escaped>[\"'nrt\n])", re.DOTALL
    )
    for pair in ("", r"\\\\|")
)
"""Code outside of strings: `escaped` is an escape there, `verbatim` a string, a comment or a pair of backslashes.

For the first a comment ends at any escaped line break, for the second not at one behind a pair of backslashes.
"""
_TRIPLE_QUOTES = ('"""', "'''")
_STRING_OR_COMMENT = re.compile(rf"{_STRINGS}|#[^\n]*+", re.DOTALL)
_ANY_NEWLINE_ESCAPE = re.compile(r"(?<!\\)(\\*)\\(?:r\\)?n")
_CONTINUATION_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*\\)\\(?:r\\)?n")
_BROKEN_STRING = re.compile(
    r'"""(?:[^"]++|"(?!""))*+"""' + r"|'''(?:[^']++|'(?!''))*+'''" + r'|#[^\n]*+|"[^"]*+"' + r"|'[^']*+'"
)
UNICODE_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?<!\\)\\u[0-9a-fA-F]{4}")
"""A character as JSON escapes it. Python does not join surrogate halves, and undoes no escape in raw strings."""
_BARE_QUOTE = re.compile(r'(?<!\\)"')


def unescape_json(code: str) -> str | None:
    """Undo one level of JSON escapes; `None` when the code is not the inside of one JSON string."""
    return _unescape(code, strict=True)


def unescape_json_with_newlines(code: str) -> str | None:
    """`unescape_json`, with raw line breaks and other control characters allowed."""
    return _unescape(code, strict=False)


def _unescape(code: str, *, strict: bool) -> str | None:
    try:
        value = json.loads(f'"{code}"', strict=strict)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def unescape_leniently(text: str) -> str:
    """Undo one level of JSON escapes; a backslash that is part of none stays as it is."""
    out = _ESCAPE.sub(lambda m: _resolve_escape(m.group(1)), text)
    return out.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _resolve_escape(escaped: str) -> str:
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _ESCAPED_CHARACTERS.get(escaped, "\\" + escaped)


def has_mixed_quotes(code: str) -> bool:
    """Whether quotes of one kind stand outside of strings both with and without a backslash.

    Then those with one may be strings that hold a single backslash.
    """
    undone = {m["escaped"] for m in OUTSIDE_STRINGS.finditer(code) if m["escaped"]} & {'"', "'"}
    strings = [m["verbatim"] for m in OUTSIDE_STRINGS.finditer(code) if m["verbatim"]] if undone else []
    bare = {text[0] for text in strings} | set(OUTSIDE_STRINGS.sub("", code))
    return bool(undone & bare) or any(count_escaped_quotes(text, text[0]) for text in strings if text[0] in undone)


def loses_quote_escapes(first: str, before: str, after: str) -> bool:
    """Whether quotes lost their last backslash from `before` to `after`, while others of their kind had none.

    Those others are looked for in `before` and in `first`, the text before any escapes were undone.
    """
    return any(
        count_bare_quotes(after, q) > (now := count_bare_quotes(before, q)) and (now or count_bare_quotes(first, q))
        for q in "\"'"
    )


def count_bare_quotes(text: str, quote: str) -> int:
    """Count the quotes of a kind without a backslash."""
    return len(re.findall(rf"(?<!\\){quote}", text))


def count_escaped_quotes(text: str, quote: str) -> int:
    """Count the quotes of a kind with a backslash of their own (an odd number of backslashes before them)."""
    return sum(len(m[1]) % 2 for m in re.finditer(rf"(?<!\\)(\\++){quote}", text))


def unescape_double_quotes(code: str) -> str:
    """Undo the escapes of double quotes alone, if all of them are escaped; else return the code as it is."""
    return code.replace('\\"', '"') if _BARE_QUOTE.search(code) is None else code


def unescape_outside_strings(code: str, *, quotes: bool = True, pattern: re.Pattern[str] = OUTSIDE_STRINGS) -> str:
    """Undo escapes outside of strings only, for code whose line breaks were escaped once too often.

    Args:
        code: the code.
        quotes: whether escaped quotes are undone too.
        pattern: what counts as outside of strings (see `OUTSIDE_STRINGS`).

    Returns:
        The code with them undone; as it was, if that would break up one of its strings.
    """
    strings: list[str] = []

    def unescape(match: re.Match[str]) -> str:
        verbatim = match["verbatim"]
        if verbatim:
            strings.append(verbatim)
        if verbatim or (not quotes and match["escaped"] in "\"'"):
            return match.group()
        return _ESCAPED_CHARACTERS[match["escaped"]]

    text = pattern.sub(unescape, code)
    if text == code:
        return code
    there = {m["verbatim"] for m in pattern.finditer(text)}
    return text if all(verbatim in there for verbatim in strings if verbatim[0] in "\"'") else code


def list_outside_variants(code: str, *, quotes: bool = True, always: bool = False) -> list[str]:
    """List the code with the escapes outside of its strings undone, in each way that makes sense.

    The first is `unescape_outside_strings`. Where that undoes line breaks (or `always`), there are three more: with
    comments that go on behind `\\\\n`, and both also with the escaped line breaks in strings undone that a string may
    hold (any in triple quotes, in others those behind a backslash).
    """
    undone = unescape_outside_strings(code, quotes=quotes)
    if undone.count("\n") == code.count("\n") and not always:
        return [undone]
    variants = [undone, unescape_outside_strings(code, quotes=quotes, pattern=_OUTSIDE_LONG)]
    return [*variants, *(_STRING_OR_COMMENT.sub(_unescape_newlines, each) for each in variants)]


def _unescape_newlines(string: re.Match[str]) -> str:
    """Undo the escaped line breaks that a string may hold; a comment stays as it is."""
    text = string[0]
    if text[0] == "#":
        return text
    escape = _ANY_NEWLINE_ESCAPE if text[:3] in _TRIPLE_QUOTES else _CONTINUATION_ESCAPE
    return escape.sub("\\1\n", text)


def escape_newlines_in_strings(code: str) -> str:
    """Escape the line breaks inside of one-line strings, for code whose escapes were undone once too often.

    Only for code without backslashes: with them, nobody can tell which were undone too often as well.
    """

    def escape(match: re.Match[str]) -> str:
        text = match.group()
        if text[0] == "#" or text[:3] in _TRIPLE_QUOTES:
            return text
        return text.replace("\r\n", "\n").replace("\n", "\\n").replace("\r", "\\r")

    joined = _BROKEN_STRING.sub(escape, code)
    # CRLF in a string may be an escape and a line break, unless all lines end in it
    return joined if "\r\n" not in code or joined.count("\n") == joined.count("\r\n") > 0 else code
