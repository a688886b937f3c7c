"""Find the code that a model meant, by reading its text in every way that a known damage allows.

Never a guess: two readings that are both Python and differ in meaning are ambiguous, and the code is refused.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

MOST_READ = 200_000
"""Characters of code that are read in more ways than one."""
_MOST_FENCES = 3
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MEANT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": "\n", **{c: c for c in "\"'\\/"}}
_STRINGS = (
    r'"""(?:[^"\\]++|\\.|"(?!""))*+"""'
    r"|'''(?:[^'\\]++|\\.|'(?!''))*+'''"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'(?:[^'\\\n]++|\\.)*+'"
)
_OUTSIDE = re.compile(rf"(?P<kept>{_STRINGS}|#(?:[^\\\n]++|\\(?!(?:r\\)?n))*+)|\\(?P<escaped>[\"'nrt\n])", re.DOTALL)
_BROKEN_STRING = re.compile(
    r'"""(?:[^"]++|"(?!""))*+"""' + r"|'''(?:[^']++|'(?!''))*+'''" + r'|#[^\n]*+|"[^"]*+"' + r"|'[^']*+'"
)
_PAIR = re.compile(r"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
"""One character as JSON escapes it in two halves, which Python does not join."""
_HALF = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})[ \t]*(?:[\w+.-]*[ \t]*\r?\n|(?:python3?|py)[ \t]+)")
_FENCE_END = re.compile(r"(?:\r?\n)?[ \t]*(?P<fence>`{3,}|~{3,})\s*\Z")
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that no source code holds, and that JSON makes of a backslash that was not doubled: `\b` of a regex."""


class Reading(msgspec.Struct, frozen=True):
    """One way to read a text as code."""

    code: str
    repairs: tuple[str, ...] = ()
    broken: bool = False
    """True when it was cut out of broken JSON: then it must be Python to be believed."""
    name: str = ""
    """Name of the tool that is called."""
    others: dict[str, Any] = {}
    """The other arguments of the call."""
    end: int = 0
    """Offset at which the call ends in the text that it was read from."""
    raw: str = ""
    """The code as it stands in its JSON string, with all escapes; empty where that is not known."""


class Choice(msgspec.Struct, frozen=True):
    """The reading that stands, or why none does."""

    reading: Reading | None = None
    error: str | None = None


def tree(code: str) -> ast.Module | None:
    """The code's syntax tree, null when it is no Python (or has no statement and no comment)."""
    if not code.strip() or len(code) > MOST_READ:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an invalid escape in a string is only a warning, of no use here
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def unfenced(text: str) -> str:
    """The text without a markdown fence around it; the text as it is when no fence opens it."""
    opening = _FENCE.match(text)
    if opening is None:
        return text
    inner = text[opening.end() :]
    closing = _FENCE_END.search(inner)
    return inner[: closing.start()] if closing and closing["fence"].startswith(opening["fence"]) else inner


def choose(given: Iterable[Reading]) -> Choice:
    """The one meaning that all readings which are Python share.

    Returns:
        The first reading with it. An error when meanings differ, or when nothing is Python and the text shows damage.
        Code that is no Python but shows no damage is the model's own mistake: it stands as given.
    """
    firsts = list(given)
    if any(_HALF.search(first.code) for first in firsts):
        return Choice(error="the code holds half a character")
    if any(_CONTROL.search(_without(first.code, first.raw)) for first in firsts):
        return Choice(error="the code holds control characters: its backslashes are not escaped")
    if len(firsts) == 1 and "\\" not in firsts[0].code and tree(firsts[0].code) is not None:
        return Choice(firsts[0])
    readings: dict[str, Reading] = {}
    for first in firsts:
        for reading in _readings(first):
            readings.setdefault(reading.code, reading)
    parsed = [(r, t) for r in readings.values() if (t := tree(r.code)) is not None]
    parsed = _without_swallowed(parsed)
    if not parsed:
        return _unparsed(firsts)
    parsed.sort(key=lambda pair: ("under_escaped" in pair[0].repairs, len(pair[0].repairs)))
    if len(parsed) > 1 and len({_meaning(t) for _, t in parsed}) > 1:
        return Choice(error="ambiguous escapes: the code can be read in more ways than one")
    under = any("under_escaped" in r.repairs for r, _ in parsed)
    if "string_newlines" in parsed[0][0].repairs and "\\t" in parsed[0][0].raw and not under:
        return Choice(error="ambiguous escapes: tabs and line breaks in strings")
    return Choice(parsed[0][0])


def _without(code: str, raw: str) -> str:
    """The code without the characters that stand in it as they are written."""
    return code.translate(dict.fromkeys(map(ord, set(_CONTROL.findall(raw)))))


def _meaning(module: ast.Module) -> str:
    try:
        return ast.dump(module)
    except RecursionError:
        return f"too deep to compare: {id(module)}"


def _readings(first: Reading) -> Iterator[Reading]:
    """The text as given, out of its fence, and with up to two levels of escapes undone."""
    yield (first := _bare(first))
    code = first.code.strip("\n")
    suspect = tree(code) is None or _swallows(code)
    if suspect and first.raw:
        yield from _under_escaped(first)
    if "\\" not in code:
        if suspect and not first.broken:
            yield msgspec.structs.replace(first, code=_joined(code), repairs=(*first.repairs, "string_newlines"))
        return
    yield from _undone(first, _strictly, levels=2)
    if suspect or {"newlines", "control_characters"} & set(first.repairs):
        yield from _undone(first, _with_newlines, levels=2)
    if suspect:
        yield from _undone(first, lenient, levels=1)
        if '"' not in code or _strictly(code) is None:  # else all quotes are escaped, and so is all that may be
            yield from _undone(first, outside_strings, levels=1)


def _undone(first: Reading, step: Callable[[str], str | None], *, levels: int) -> Iterator[Reading]:
    """The reading with escapes undone by one rule, once and again."""
    reading = first
    for level in ("double_escaped", "quadruple_escaped")[:levels]:
        code = reading.code.strip("\n")
        text = step(code)
        if text is None or text == code or _CONTROL.search(_without(text, code)):
            return  # what makes control characters is no escape that was meant
        fence = ("fence",) if "fence" in reading.repairs and "fence" not in first.repairs else ()
        reading = _bare(msgspec.structs.replace(first, code=text, repairs=(*first.repairs, *fence, level)))
        yield reading


def _under_escaped(first: Reading) -> Iterator[Reading]:
    """The code that was put into its JSON string with line breaks and quotes escaped, but no backslash doubled; where
    that is Python, also as if some of them had been doubled."""
    kinds = (*first.repairs, "under_escaped")
    raw = first.raw
    joined = _PAIR.sub(lambda m: lenient(m[0]), raw)
    for text in dict.fromkeys((raw.replace('\\"', '"'), raw, joined.replace('\\"', '"'))):
        reading = _bare(msgspec.structs.replace(first, code=outside_strings(text), repairs=kinds))
        yield reading
        if "\\\\" in reading.code and tree(reading.code) is not None:
            yield msgspec.structs.replace(reading, code=reading.code.replace("\\\\", "\\"))


def _bare(reading: Reading) -> Reading:
    """The reading without fences around it."""
    text = reading.code
    for _ in range(_MOST_FENCES):
        text = unfenced(text)
    if text == reading.code:
        return reading
    return msgspec.structs.replace(reading, code=text, repairs=(*reading.repairs, "fence"))


def _strictly(code: str) -> str | None:
    return _unescaped(code, strict=True)


def _with_newlines(code: str) -> str | None:
    return _unescaped(code, strict=False)


def _unescaped(code: str, *, strict: bool) -> str | None:
    """The code with one level of JSON escapes undone, null when it is not the inside of one JSON string."""
    try:
        value = json.loads(f'"{code}"', strict=strict)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def lenient(text: str) -> str:
    """One level of JSON escapes undone, with what is no escape left as it stands."""
    out = _ESCAPE.sub(lambda m: _meant(m.group(1)), text)
    return out.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(escaped: str) -> str:
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _MEANT.get(escaped, "\\" + escaped)


def outside_strings(code: str) -> str:
    """Escapes undone outside of Python's strings only: where line breaks were escaped once too often."""
    return _OUTSIDE.sub(lambda m: m.group("kept") or _MEANT[m.group("escaped")], code)


def _swallows(code: str) -> bool:
    """Whether a comment holds an escaped line break: it may have swallowed the lines after it."""
    return "\n" not in code and "\\n" in code and outside_strings(code) != code


def _without_swallowed(parsed: list[tuple[Reading, ast.Module]]) -> list[tuple[Reading, ast.Module]]:
    """Leave out one-liners whose comment holds real statements when line breaks in it are undone."""
    swallowing = [t for r, t in parsed if _swallows(r.code.strip("\n"))]
    whole = [(r, t) for r, t in parsed if not _swallows(r.code.strip("\n"))]
    if not swallowing or not whole:
        return parsed
    most = max(len(t.body) for t in swallowing)
    return whole if all(any(map(_acts, t.body[most:])) for _, t in whole) else parsed


def _acts(statement: ast.stmt) -> bool:
    """Whether it does something: words of a comment may parse as names."""
    return not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call)


def _unparsed(firsts: list[Reading]) -> Choice:
    if len(firsts) != 1:
        return Choice(error="code cannot be told from the broken JSON around it")
    first = firsts[0]
    bare = _bare(first)
    if not bare.code.strip():
        return Choice(error="the code is empty")
    if first.broken or bare is not first or outside_strings(bare.code) != bare.code:
        return Choice(error="the code is no Python however its escapes are read")
    return Choice(first)


def _joined(code: str) -> str:
    """Line breaks inside of one-line strings as escapes: they were escaped once too little. Code without backslashes
    only: with them, nobody can tell which were escaped too little as well."""

    def mend(match: re.Match[str]) -> str:
        text = match.group()
        return (
            text
            if text[0] == "#" or text[:3] in {'"""', "'''"}
            else text.replace("\r\n", "\n").replace("\n", "\\n").replace("\r", "\\r")
        )

    return _BROKEN_STRING.sub(mend, code)
