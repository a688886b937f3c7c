"""Find the code that a model meant, by undoing each mistake in escaping that models are known to make.

This never guesses: where two variants of a text are both Python and differ in meaning, the code is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from foretrace.core.python_source import try_parse
from foretrace.encodings.code_calls.escapes import (
    OUTSIDE_STRINGS,
    UNICODE_ESCAPE,
    escape_newlines_in_strings,
    has_mixed_quotes,
    list_outside_variants,
    loses_quote_escapes,
    unescape_double_quotes,
    unescape_json,
    unescape_json_with_newlines,
    unescape_leniently,
    unescape_outside_strings,
)

MAX_CODE = 200_000
"""Characters of code that are parsed; longer code counts as no Python."""
_MAX_FENCES = 3
_MIXED_QUOTES = "mixed_quotes"
"""Marks a variant that is never chosen, but that makes others ambiguous."""
_LEVELS = ("double_escaped", "quadruple_escaped", "deeply_escaped")
_RAW_STRING = re.compile(r"""(?<!\w)[bBfF]?[rR][bBfF]?["']""")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})[ \t]*(?:[\w+.-]*[ \t]*\r?\n|(?:python3?|py)[ \t]+)")
_FENCE_END = re.compile(r"(?:\r?\n)?[ \t]*(?P<fence>`{3,}|~{3,})\s*\Z")
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that no source code holds; JSON makes them of a backslash that was not doubled, as in `\b` of a regex."""
_BACKSPACE_OR_FORM_FEED = re.compile("[\b\f]")
_BACKSLASH_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*+\\\r?\n")
_RISKY_REPAIRS = {
    "newlines", "control_characters", "string_newlines", "bad_escapes", "bare_quotes", "triple_quotes",
    "under_escaped", *_LEVELS,
}  # fmt: skip
"""Repairs after which a backslash before a line break may be what is left of `\n`."""


class CodeCandidate(msgspec.Struct, frozen=True):
    """A text that may be the code of a call."""

    code: str
    repairs: tuple[str, ...] = ()
    broken: bool = False
    """Whether it was cut out of broken JSON: then it is taken only if it is Python."""
    tool: str = ""
    """Name of the tool that the call names."""
    other_arguments: dict[str, Any] = {}
    """The other arguments of the call."""
    end: int = 0
    """Character offset at which the call ends in the reply."""
    raw: str = ""
    """The code as written in its JSON string, with all escapes; empty where that is not known."""


class CodeChoice(msgspec.Struct, frozen=True):
    """The code that was chosen, or why none was."""

    candidate: CodeCandidate | None = None
    error: str | None = None


def parse_python(code: str) -> ast.Module | None:
    """Parse code; `None` when it is no Python, is blank or has more than `MAX_CODE` characters."""
    if not code.strip() or len(code) > MAX_CODE:
        return None
    return try_parse(code)


def strip_fence(text: str) -> str:
    """Remove a markdown fence around a text; a text that starts with no fence is returned as it is."""
    opening = _FENCE.match(text)
    if opening is None:
        return text
    inner = text[opening.end() :]
    closing = _FENCE_END.search(inner)
    return inner[: closing.start()] if closing and closing["fence"].startswith(opening["fence"]) else inner


def choose_code(candidates: Iterable[CodeCandidate]) -> CodeChoice:
    """Choose the code, if all variants of the candidates that are Python have one and the same meaning.

    Returns:
        The variant with that meaning that took the fewest repairs. An error when meanings differ, or when nothing is
        Python and the text shows damage. Code that is no Python but shows no damage is the model's own mistake: it is
        taken as it is.
    """
    originals = list(candidates)
    if any(_LONE_SURROGATE.search(original.code) for original in originals):
        return CodeChoice(error="the code holds half a character")
    if any(_CONTROL.search(_remove_control_characters(original.code, original.raw)) for original in originals):
        return CodeChoice(error="the code holds control characters: its backslashes are not escaped")
    if len(originals) == 1 and "\\" not in originals[0].code and parse_python(originals[0].code) is not None:
        return _refuse_lost_escapes(originals[0])
    variants: dict[str, CodeCandidate] = {}
    for original in originals:
        for candidate in _list_variants(original):
            variants.setdefault(candidate.code, candidate)
    parsed = _drop_swallowed_lines(
        [(each, module) for each in variants.values() if (module := parse_python(each.code)) is not None]
    )
    if not parsed:
        return _choose_unparsed(originals)
    parsed.sort(key=lambda pair: ("under_escaped" in pair[0].repairs, len(pair[0].repairs)))
    if len(parsed) > 1 and len({_dump_syntax_tree(t) for _, t in parsed}) > 1:
        return CodeChoice(error="ambiguous escapes: the code can be read in more ways than one")
    under = any("under_escaped" in r.repairs for r, _ in parsed)
    best = parsed[0][0]
    letters = "tu" if _RAW_STRING.search(best.code) else "t"
    if "string_newlines" in best.repairs and not under and any(f"\\{letter}" in best.raw for letter in letters):
        return CodeChoice(error="ambiguous escapes: tabs and line breaks in strings")
    if any(_MIXED_QUOTES in r.repairs for r, _ in parsed):
        return CodeChoice(error="ambiguous escapes: some quotes are escaped, and some are not")
    return _refuse_lost_escapes(best)


def _refuse_lost_escapes(candidate: CodeCandidate) -> CodeChoice:
    """Choose the candidate, unless a line break or a tab in its strings may be what is left of an escape."""
    risky = _RISKY_REPAIRS.intersection(candidate.repairs)
    code = candidate.code.replace("\r\n", "\n")
    strings = (
        [m["verbatim"] for m in OUTSIDE_STRINGS.finditer(code) if m["verbatim"] and m["verbatim"][0] in "\"'"]
        if risky
        else []
    )
    if _MIXED_QUOTES in candidate.repairs:
        return CodeChoice(error="ambiguous escapes: some quotes are escaped, and some are not")
    if risky and "\r" in code:
        return CodeChoice(error="the code holds carriage returns that end no line")
    if any(_BACKSLASH_NEWLINE.search(text) for text in strings):
        return CodeChoice(error="ambiguous escapes: a backslash before a line break")
    single = risky & {"bad_escapes", "triple_quotes"} and "\\" in candidate.raw
    lost = ("\n" * ("bad_escapes" in risky and "newlines" in risky), "\t" * ("\t" in candidate.raw))
    if single and any(letter and letter in text for letter in lost for text in strings):
        return CodeChoice(error="ambiguous escapes: tabs and line breaks in strings")
    return CodeChoice(candidate)


def _remove_control_characters(code: str, raw: str) -> str:
    """Remove those control characters from the code that are written as they are in the raw text."""
    return code.translate(dict.fromkeys(map(ord, set(_CONTROL.findall(raw)))))


def _dump_syntax_tree(module: ast.Module) -> str:
    try:
        return ast.dump(module)
    except RecursionError:
        return f"too deep to compare: {id(module)}"


def _list_variants(original: CodeCandidate) -> Iterator[CodeCandidate]:
    """List the code without its fence as it is, then with one, two and (if it is no Python) three levels undone."""
    yield (original := _strip_fences(original))
    code = original.code.strip("\n")
    suspect = _is_suspect(code)
    if suspect and original.raw:
        yield from _read_as_under_escaped(original)
    if "\\" not in code:
        if suspect and not original.broken:
            yield msgspec.structs.replace(
                original, code=escape_newlines_in_strings(code), repairs=(*original.repairs, "string_newlines")
            )
        return
    seen, this_level = {code}, [(original, suspect)]
    for level in _LEVELS if suspect else _LEVELS[:2]:
        next_level: list[tuple[CodeCandidate, bool]] = []
        for candidate, doubtful in this_level:
            for variant in _unescape_once(original, candidate, level, doubtful=doubtful):
                if variant.code not in seen:
                    seen.add(variant.code)
                    next_level.append((variant, doubtful and _is_suspect(variant.code.strip("\n"))))
                    yield variant
        this_level = next_level
    for level, text in zip(_LEVELS, (code, unescape_json(code)), strict=False):
        if suspect and text is not None and _may_leave_quotes(text):
            for variant in list_outside_variants(text)[1:]:
                yield _strip_fences(msgspec.structs.replace(original, code=variant, repairs=(*original.repairs, level)))


def _may_leave_quotes(code: str) -> bool:
    """Whether an escaping may have left the quotes alone: it has no double quotes, or some of them are not escaped."""
    return '"' not in code or unescape_json(code) is None


def _is_suspect(code: str) -> bool:
    """Whether code is no Python as it stands, or Python only because a comment holds its other lines."""
    return parse_python(code) is None or _has_newline_in_comment(code)


def _unescape_once(
    original: CodeCandidate, candidate: CodeCandidate, level: str, *, doubtful: bool
) -> Iterator[CodeCandidate]:
    """Undo one level of escapes: as JSON does it, and where `doubtful` (no Python so far) also in other ways."""
    code = candidate.code.strip("\n")
    steps: list[Callable[[str], str | None]] = [unescape_json]
    if doubtful or {"newlines", "control_characters"} & set(original.repairs):
        steps.append(unescape_json_with_newlines)
    if doubtful:
        steps.append(unescape_leniently)
        if _may_leave_quotes(code):
            steps += [unescape_outside_strings, *[unescape_double_quotes] * (candidate is original)]
    for step in steps:
        text = step(code)
        if text is None or text == code or _BACKSPACE_OR_FORM_FEED.search(_remove_control_characters(text, code)):
            continue  # an escape that gives a control character was not meant as one
        loses = step is not unescape_json and loses_quote_escapes(original.code, code, text)
        mixed = loses or (step in (unescape_leniently, unescape_outside_strings) and has_mixed_quotes(code))
        if mixed and candidate is not original:
            continue
        fence = ("fence",) if "fence" in candidate.repairs and "fence" not in original.repairs else ()
        repairs = (*original.repairs, *fence, level, *(_MIXED_QUOTES,) * mixed)
        yield _strip_fences(msgspec.structs.replace(original, code=text, repairs=repairs))


def _read_as_under_escaped(original: CodeCandidate) -> Iterator[CodeCandidate]:
    """Read the raw text as code whose line breaks and quotes were escaped, but whose backslashes were not doubled.

    Where that is Python, also as if all pairs of backslashes had been doubled ones.
    """
    repairs = (*original.repairs, "under_escaped")
    raw = original.raw
    characters = UNICODE_ESCAPE.sub(lambda m: unescape_leniently(m[0]), raw)
    quotes = ['"'] + ["'"] * ("single_quotes" in original.repairs)
    for text in dict.fromkeys((*(t.replace(f"\\{q}", q) for q in quotes for t in (raw, characters)), raw)):
        for variant in list_outside_variants(text, quotes=text == raw, always="triple_quotes" not in repairs):
            candidate = _strip_fences(msgspec.structs.replace(original, code=variant, repairs=repairs))
            yield candidate
            if "\\\\" in candidate.code and parse_python(candidate.code) is not None:
                yield msgspec.structs.replace(candidate, code=candidate.code.replace("\\\\", "\\"))


def _strip_fences(candidate: CodeCandidate) -> CodeCandidate:
    """Remove the fences around the code."""
    text = candidate.code
    for _ in range(_MAX_FENCES):
        text = strip_fence(text)
    if text == candidate.code:
        return candidate
    return msgspec.structs.replace(candidate, code=text, repairs=(*candidate.repairs, "fence"))


def _has_newline_in_comment(code: str) -> bool:
    """Whether a comment holds an escaped line break: it may have swallowed the lines after it."""
    return "\n" not in code and "\\n" in code and any(m["escaped"] for m in OUTSIDE_STRINGS.finditer(code))


def _drop_swallowed_lines(parsed: list[tuple[CodeCandidate, ast.Module]]) -> list[tuple[CodeCandidate, ast.Module]]:
    """Drop one-line variants whose comment holds real statements once its escaped line breaks are undone."""
    swallowing = [t for r, t in parsed if _has_newline_in_comment(r.code.strip("\n"))]
    whole = [(r, t) for r, t in parsed if not _has_newline_in_comment(r.code.strip("\n"))]
    if not whole:
        return [] if any(_has_statement_after_newline(r.code) for r, _ in parsed) else parsed
    if not swallowing:
        return parsed
    most = max(len(t.body) for t in swallowing)
    return whole if all(any(map(_does_something, t.body[most:])) for _, t in whole) else parsed


def _has_statement_after_newline(code: str) -> bool:
    """Whether what follows an escaped line break is a statement, or opens a block."""
    lines = re.split(r"\\+(?:r\\+)?n", code)[1:]
    return any(
        line.rstrip().endswith(":") or ((t := parse_python(line.strip())) and any(map(_does_something, t.body)))
        for line in lines
    )


def _does_something(statement: ast.stmt) -> bool:
    """Whether a statement is more than a bare expression: words of a comment may parse as names."""
    return not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call)


def _choose_unparsed(originals: list[CodeCandidate]) -> CodeChoice:
    """Choose where no variant is Python: the only candidate, if nothing shows that it is damaged."""
    if len(originals) != 1:
        return CodeChoice(error="code cannot be told from the broken JSON around it")
    original = originals[0]
    bare = _strip_fences(original)
    if not bare.code.strip():
        return CodeChoice(error="the code is empty")
    pairs = any(m["escaped"] or m["verbatim"] == "\\\\" for m in OUTSIDE_STRINGS.finditer(bare.code))
    if original.broken or bare is not original or pairs or _RISKY_REPAIRS.intersection(original.repairs):
        return CodeChoice(error="the code is no Python however its escapes are read")
    return CodeChoice(original)
