"""Find the code that a model meant, by reading its text in every way that a known damage allows.

Never a guess: two readings that are both Python and differ in meaning are ambiguous, and the code is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from foretrace.core.python_source import try_parse
from foretrace.encodings.code_calls.escapes import (
    OUTSIDE,
    UNICODE,
    bares_more,
    continued,
    escapes,
    joined,
    lenient,
    mixes_quotes,
    outside_strings,
    outside_ways,
    strictly,
    unquoted,
    with_newlines,
)

MOST_READ = 200_000
"""Characters of code that are read in more ways than one."""
_MOST_FENCES = 3
_MIXED = "mixed_quotes"
"""Marks a reading that speaks against others, but is not believed itself."""
_LEVELS = ("double_escaped", "quadruple_escaped", "deeply_escaped")
_RAW = re.compile(r"""(?<!\w)[bBfF]?[rR][bBfF]?["']""")
_HALF = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})[ \t]*(?:[\w+.-]*[ \t]*\r?\n|(?:python3?|py)[ \t]+)")
_FENCE_END = re.compile(r"(?:\r?\n)?[ \t]*(?P<fence>`{3,}|~{3,})\s*\Z")
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that no source code holds, and that JSON makes of a backslash that was not doubled: `\b` of a regex."""
_LETTERED = re.compile("[\b\f]")
_LEFT_OUT = re.compile(r"(?<!\\)(?:\\\\)*+\\\r?\n")
_RISKY = {
    "newlines", "control_characters", "string_newlines", "bad_escapes", "bare_quotes", "triple_quotes",
    "under_escaped", *_LEVELS,
}  # fmt: skip
"""Repairs after which a backslash and a line break may be an escape that lost its letter."""


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
    return try_parse(code)


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
        return _without_lost(firsts[0])
    readings: dict[str, Reading] = {}
    for first in firsts:
        for reading in _readings(first):
            readings.setdefault(reading.code, reading)
    parsed = _parsed(readings.values()) or _parsed(_continued(r) for r in readings.values())
    parsed = _without_swallowed(parsed)
    if not parsed:
        return _unparsed(firsts)
    parsed.sort(key=lambda pair: ("under_escaped" in pair[0].repairs, len(pair[0].repairs)))
    if len(parsed) > 1 and len({_meaning(t) for _, t in parsed}) > 1:
        return Choice(error="ambiguous escapes: the code can be read in more ways than one")
    under = any("under_escaped" in r.repairs for r, _ in parsed)
    best = parsed[0][0]
    letters = "tu" if _RAW.search(best.code) else "t"
    if "string_newlines" in best.repairs and not under and any(f"\\{letter}" in best.raw for letter in letters):
        return Choice(error="ambiguous escapes: tabs and line breaks in strings")
    if any(_MIXED in r.repairs for r, _ in parsed):
        return Choice(error="ambiguous escapes: some quotes are escaped, and some are not")
    return _without_lost(best)


def _parsed(readings: Iterable[Reading]) -> list[tuple[Reading, ast.Module]]:
    return [(r, t) for r in readings if (t := tree(r.code)) is not None]


def _continued(reading: Reading) -> Reading:
    """The reading with lines that go on after a backslash, whose line break was escaped once too often."""
    if "newlines" in reading.repairs:
        return reading
    return msgspec.structs.replace(reading, code=continued(reading.code), repairs=(*reading.repairs, _LEVELS[0]))


def _without_lost(reading: Reading) -> Choice:
    """The reading, unless an escape that lost its letter may hide in its line breaks and tabs."""
    kinds = _RISKY.intersection(reading.repairs)
    code = reading.code.replace("\r\n", "\n")
    strings = [m["kept"] for m in OUTSIDE.finditer(code) if m["kept"] and m["kept"][0] in "\"'"] if kinds else []
    if _MIXED in reading.repairs or (reading.broken and _bares_quotes(reading)):
        return Choice(error="ambiguous escapes: some quotes are escaped, and some are not")
    if kinds and "\r" in code:
        return Choice(error="the code holds carriage returns that end no line")
    if any(_LEFT_OUT.search(text) for text in strings):
        return Choice(error="ambiguous escapes: a backslash before a line break")
    single = kinds & {"bad_escapes", "triple_quotes"} and "\\" in reading.raw
    lost = ("\n" * ("bad_escapes" in kinds and "newlines" in kinds), "\t" * ("\t" in reading.raw))
    if single and any(letter and letter in text for letter in lost for text in strings):
        return Choice(error="ambiguous escapes: tabs and line breaks in strings")
    return Choice(reading)


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
    suspect = _is_suspect(code)
    if suspect and first.raw:
        yield from _under_escaped(first)
    if "\\" not in code:
        if suspect and not first.broken:
            yield msgspec.structs.replace(first, code=joined(code), repairs=(*first.repairs, "string_newlines"))
        return
    seen, above = {code}, [(first, suspect)]
    for level in _LEVELS if suspect else _LEVELS[:2]:
        below: list[tuple[Reading, bool]] = []
        for reading, doubtful in above:
            for found in _undone(first, reading, level, doubtful=doubtful):
                if found.code not in seen:
                    seen.add(found.code)
                    below.append((found, doubtful and _is_suspect(found.code.strip("\n"))))
                    yield found
        above = below
    for level, text in zip(_LEVELS, (code, strictly(code)), strict=False):
        if suspect and text is not None and _leaves_quotes(text):
            for way in outside_ways(text)[1:]:
                yield _bare(msgspec.structs.replace(first, code=way, repairs=(*first.repairs, level)))


def _leaves_quotes(code: str) -> bool:
    """Whether line breaks may be all that was escaped: else all quotes are, and so is all that may be."""
    return '"' not in code or strictly(code) is None


def _is_suspect(code: str) -> bool:
    return tree(code) is None or _swallows(code)


def _undone(first: Reading, reading: Reading, level: str, *, doubtful: bool) -> Iterator[Reading]:
    """The reading with one level of escapes undone: as JSON does it, and where it is no Python also in other ways."""
    code = reading.code.strip("\n")
    steps: list[Callable[[str], str | None]] = [strictly]
    if doubtful or {"newlines", "control_characters"} & set(first.repairs):
        steps.append(with_newlines)
    if doubtful:
        steps.append(lenient)
        if _leaves_quotes(code):
            steps += [outside_strings, *[unquoted] * (reading is first)]
    for step in steps:
        text = step(code)
        if text is None or text == code or _LETTERED.search(_without(text, code)):
            continue  # what makes control characters of letters is no escape that was meant
        bares = step is not strictly and bares_more(first.code, code, text)
        mixed = bares or (step in (lenient, outside_strings) and mixes_quotes(code))
        if mixed and reading is not first:
            continue
        fence = ("fence",) if "fence" in reading.repairs and "fence" not in first.repairs else ()
        kinds = (*first.repairs, *fence, level, *(_MIXED,) * mixed)
        yield _bare(msgspec.structs.replace(first, code=text, repairs=kinds))


def _under_escaped(first: Reading) -> Iterator[Reading]:
    """The code that was put into its JSON string with line breaks and quotes escaped, but no backslash doubled; where
    that is Python, also as if some of them had been doubled."""
    kinds = (*first.repairs, "under_escaped")
    raw = first.raw
    characters = UNICODE.sub(lambda m: lenient(m[0]), raw)
    quotes = ['"'] + ["'"] * ("single_quotes" in first.repairs)
    for text in dict.fromkeys((*(t.replace(f"\\{q}", q) for q in quotes for t in (raw, characters)), raw)):
        for undone in outside_ways(text, quotes=text == raw, always="triple_quotes" not in kinds):
            reading = _bare(msgspec.structs.replace(first, code=undone, repairs=kinds))
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


def _bares_quotes(reading: Reading) -> bool:
    """Whether the code has lost the backslash of a quote that JSON does not escape, while others have none."""
    raw, kinds = reading.raw, "'\"" if "triple_quotes" in reading.repairs else "'"
    return any(0 < escapes(raw, q) < raw.count(q) and escapes(reading.code, q) < escapes(raw, q) for q in kinds)


def _swallows(code: str) -> bool:
    """Whether a comment holds an escaped line break: it may have swallowed the lines after it."""
    return "\n" not in code and "\\n" in code and any(m["escaped"] for m in OUTSIDE.finditer(code))


def _without_swallowed(parsed: list[tuple[Reading, ast.Module]]) -> list[tuple[Reading, ast.Module]]:
    """Leave out one-liners whose comment holds real statements when line breaks in it are undone."""
    swallowing = [t for r, t in parsed if _swallows(r.code.strip("\n"))]
    whole = [(r, t) for r, t in parsed if not _swallows(r.code.strip("\n"))]
    if not whole:
        return [] if any(_ends_code(r.code) for r, _ in parsed) else parsed
    if not swallowing:
        return parsed
    most = max(len(t.body) for t in swallowing)
    return whole if all(any(map(_acts, t.body[most:])) for _, t in whole) else parsed


def _ends_code(code: str) -> bool:
    """Whether a line behind an escaped line break is a statement of its own, or opens a block."""
    lines = re.split(r"\\+(?:r\\+)?n", code)[1:]
    return any(line.rstrip().endswith(":") or ((t := tree(line.strip())) and any(map(_acts, t.body))) for line in lines)


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
    pairs = any(m["escaped"] or m["kept"] == "\\\\" for m in OUTSIDE.finditer(bare.code))
    if first.broken or bare is not first or pairs or _RISKY.intersection(first.repairs):
        return Choice(error="the code is no Python however its escapes are read")
    return Choice(first)
