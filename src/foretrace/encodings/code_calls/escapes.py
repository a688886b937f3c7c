"""Undo the escapes of a code, in the ways in which they may have been put in."""

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
        rf"(?P<kept>{_STRINGS}|#(?:[^\\\n]++|{pair}\\(?!(?:r\\)?n))*+|\\\\)|\\(?P<escaped>[\"'nrt\n])", re.DOTALL
    )
    for pair in ("", r"\\\\|")
)
"""What stands outside of strings, when a comment ends at the first `\n`, and when it may hold the `\n` of `\\\\n`."""
_ESCAPED_CONTINUATION = re.compile(rf"({_STRINGS}|#[^\n]*+)|\\\\n", re.DOTALL)
_TRIPLE_QUOTES = ('"""', "'''")
_STRING_OR_COMMENT = re.compile(rf"{_STRINGS}|#[^\n]*+", re.DOTALL)
_ANY_NEWLINE_ESCAPE = re.compile(r"(?<!\\)(\\*)\\(?:r\\)?n")
_CONTINUATION_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*\\)\\(?:r\\)?n")
_BROKEN_STRING = re.compile(
    r'"""(?:[^"]++|"(?!""))*+"""' + r"|'''(?:[^']++|'(?!''))*+'''" + r'|#[^\n]*+|"[^"]*+"' + r"|'[^']*+'"
)
UNICODE_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?<!\\)\\u[0-9a-fA-F]{4}")
"""A character as JSON escapes it: Python joins no halves, and undoes none in raw strings."""
_BARE_QUOTE = re.compile(r'(?<!\\)"')


def unescape_json(code: str) -> str | None:
    return _unescape(code, strict=True)


def unescape_json_with_newlines(code: str) -> str | None:
    return _unescape(code, strict=False)


def _unescape(code: str, *, strict: bool) -> str | None:
    """The code with one level of JSON escapes undone, null when it is not the inside of one JSON string."""
    try:
        value = json.loads(f'"{code}"', strict=strict)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def unescape_leniently(text: str) -> str:
    """One level of JSON escapes undone, with what is no escape left as it stands."""
    out = _ESCAPE.sub(lambda m: _resolve_escape(m.group(1)), text)
    return out.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _resolve_escape(escaped: str) -> str:
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _ESCAPED_CHARACTERS.get(escaped, "\\" + escaped)


def has_mixed_quotes(code: str) -> bool:
    """Whether quotes of one kind stand outside of Python's strings both with and without an escape: then those with
    one may be strings of a single backslash."""
    undone = {m["escaped"] for m in OUTSIDE_STRINGS.finditer(code) if m["escaped"]} & {'"', "'"}
    strings = [m["kept"] for m in OUTSIDE_STRINGS.finditer(code) if m["kept"]] if undone else []
    bare = {text[0] for text in strings} | set(OUTSIDE_STRINGS.sub("", code))
    return bool(undone & bare) or any(count_escaped_quotes(text, text[0]) for text in strings if text[0] in undone)


def loses_quote_escapes(first: str, before: str, after: str) -> bool:
    """Whether quotes lose their last backslash where others of their kind have none, now or at first."""
    return any(
        count_bare_quotes(after, q) > (now := count_bare_quotes(before, q)) and (now or count_bare_quotes(first, q))
        for q in "\"'"
    )


def count_bare_quotes(text: str, quote: str) -> int:
    """How many quotes stand in the text without a backslash."""
    return len(re.findall(rf"(?<!\\){quote}", text))


def count_escaped_quotes(text: str, quote: str) -> int:
    """How many quotes stand in the text behind a backslash of their own."""
    return sum(len(m[1]) % 2 for m in re.finditer(rf"(?<!\\)(\\++){quote}", text))


def unescape_double_quotes(code: str) -> str:
    """The code with the escapes of its double quotes undone and no others, where none of them stands without one."""
    return code.replace('\\"', '"') if _BARE_QUOTE.search(code) is None else code


def unescape_outside_strings(code: str, *, quotes: bool = True, pattern: re.Pattern[str] = OUTSIDE_STRINGS) -> str:
    """Escapes undone outside of Python's strings only: where line breaks were escaped once too often. The code as it
    is where that would break up its strings."""
    strings: list[str] = []

    def undone(match: re.Match[str]) -> str:
        kept = match["kept"]
        if kept:
            strings.append(kept)
        return kept or (
            _ESCAPED_CHARACTERS[match["escaped"]] if quotes or match["escaped"] not in "\"'" else match.group()
        )

    text = pattern.sub(undone, code)
    if text == code:
        return code
    there = {m["kept"] for m in pattern.finditer(text)}
    return text if all(kept in there for kept in strings if kept[0] in "\"'") else code


def list_outside_variants(code: str, *, quotes: bool = True, always: bool = False) -> list[str]:
    """`outside_strings`, and where it undoes line breaks (or always) also with those undone that a string may hold
    (any in triple quotes, and those behind a backslash), and with comments that go on behind `\\\\n`."""
    undone = unescape_outside_strings(code, quotes=quotes)
    if undone.count("\n") == code.count("\n") and not always:
        return [undone]
    ways = [undone, unescape_outside_strings(code, quotes=quotes, pattern=_OUTSIDE_LONG)]
    return [*ways, *(_STRING_OR_COMMENT.sub(_unescape_newlines, way) for way in ways)]


def _unescape_newlines(string: re.Match[str]) -> str:
    text = string[0]
    return (
        text
        if text[0] == "#"
        else (_ANY_NEWLINE_ESCAPE if text[:3] in _TRIPLE_QUOTES else _CONTINUATION_ESCAPE).sub("\\1\n", text)
    )


def escape_newlines_in_strings(code: str) -> str:
    """Line breaks inside of one-line strings as escapes: they were escaped once too little. Code without backslashes
    only: with them, nobody can tell which were escaped too little as well."""

    def mend(match: re.Match[str]) -> str:
        text = match.group()
        return (
            text
            if text[0] == "#" or text[:3] in {'"""', "'''"}
            else text.replace("\r\n", "\n").replace("\n", "\\n").replace("\r", "\\r")
        )

    joined = _BROKEN_STRING.sub(mend, code)
    # CRLF in a string is an escape and a line break, unless all lines end in it
    return joined if "\r\n" not in code or joined.count("\n") == joined.count("\r\n") > 0 else code


def unescape_continuations(code: str) -> str:
    """`outside_strings`, and lines that go on after a backslash whose line break was escaped."""
    return _ESCAPED_CONTINUATION.sub(lambda m: m[1] or "\\\n", unescape_outside_strings(code))
