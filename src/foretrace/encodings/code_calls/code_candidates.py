"""Find the code that a model meant, by undoing the mistakes in escaping that models are known to make.

This never guesses: where two variants of a text are both Python and differ in meaning, the code is refused.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from foretrace.core.python_source import try_parse

MAX_CODE = 200_000
"""Characters of code that are parsed; longer code does not count as Python."""
_MAX_FENCES = 3
_LEVELS = ("double_escaped", "quadruple_escaped")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})[ \t]*(?:[\w+.-]*[ \t]*\r?\n|(?:python3?|py)[ \t]+)")
_FENCE_END = re.compile(r"(?:\r?\n)?[ \t]*(?P<fence>`{3,}|~{3,})\s*\Z")
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f]")
"""Characters that no source code holds; JSON makes them of a backslash that was not doubled, as in `\b` of a regex."""
_DOUBTFUL_ESCAPES = {
    "bad_escapes": re.compile(r"\\[\\tubfr/]"),
    "bare_quotes": re.compile(r'\\\\"'),
    "triple_quotes": re.compile(r'\\"'),
}
"""Repair -> escapes that may be the code's own, since the model escaped less than it should have."""
_LONG_RAW_STRING = re.compile(r"""[rR][bBfF]?(?:'''|\"{3})""")
_NEWLINE = re.compile(r"(?<!\\)((?:\\\\)*)\\n")
_BROKEN_STRING = re.compile(
    r'"""(?:[^"]++|"(?!""))*+"""' + r"|'''(?:[^']++|'(?!''))*+'''" + r'|#[^\n]*+|"[^"]*+"' + r"|'[^']*+'"
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", **{c: c for c in "\"'\\/"}}
_RISKY_REPAIRS = frozenset({"newlines", "control_characters", "bad_escapes", "bare_quotes", "triple_quotes", *_LEVELS})
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
    """The code as written in broken JSON, with all escapes."""


class CodeChoice(msgspec.Struct, frozen=True):
    """The code that was chosen, or why none was."""

    candidate: CodeCandidate | None = None
    error: str | None = None


def parse_python(code: str) -> ast.Module | None:
    """Parse code; `None` when it is not Python, is blank or has more than `MAX_CODE` characters."""
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
        Python and the text shows damage. Code that is not Python but shows no damage is the model's own mistake: it is
        taken as it is.
    """
    originals = [_strip_fences(candidate) for candidate in candidates]
    if any(_LONE_SURROGATE.search(original.code) for original in originals):
        return CodeChoice(error="the code holds half a character")
    if any(_CONTROL.search(original.code) for original in originals):
        return CodeChoice(error="the code holds control characters: its backslashes are not escaped")
    variants: dict[str, CodeCandidate] = {}
    for variant in (each for original in originals for each in _list_variants(original)):
        variants.setdefault(variant.code, variant)
    parsed = [(each, module) for each in variants.values() if (module := parse_python(each.code)) is not None]
    parsed = [(each, module) for each, module in parsed if module.body] or parsed  # a comment may hold all other lines
    if not parsed:
        return _choose_unparsed(originals)
    if len(parsed) > 1 and len({_dump_syntax_tree(module) for _, module in parsed}) > 1:
        return CodeChoice(error="ambiguous escapes: the code can be read in more ways than one")
    best = min((each for each, _ in parsed), key=lambda each: len(each.repairs))
    doubt = _find_doubt(best, is_longest=not any(each.code.count("\n") > best.code.count("\n") for each, _ in parsed))
    return CodeChoice(best) if doubt is None else CodeChoice(error=doubt)


def _find_doubt(candidate: CodeCandidate, *, is_longest: bool) -> str | None:
    """Why code may be other code of which an escape was lost."""
    code = candidate.code.replace("\r\n", "\n")
    is_suspect = "\n" not in code.strip("\n") or any(level in candidate.repairs for level in _LEVELS)
    if is_longest and is_suspect and _has_newline_in_comment(code):
        return "ambiguous escapes: a comment may hold the other lines"
    if not _RISKY_REPAIRS.intersection(candidate.repairs):
        return None
    if "\r" in code:
        return "the code holds carriage returns that end no line"
    if "\\\n" in code or _LONG_RAW_STRING.search(code):
        return "ambiguous escapes: a backslash before a line break"
    doubtful = (escape for repair, escape in _DOUBTFUL_ESCAPES.items() if repair in candidate.repairs)
    if any(escape.search(candidate.raw) for escape in doubtful):
        return "ambiguous escapes: some backslashes are escaped, and some are not"
    return None


def _has_newline_in_comment(code: str) -> bool:
    """Whether a comment in Python code goes on behind an escaped line break."""
    if "#" not in code or "\\n" not in code:
        return False
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return any("\\n" in token.string for token in tokens if token.type == tokenize.COMMENT)


def _dump_syntax_tree(module: ast.Module) -> str:
    try:
        return ast.dump(module)
    except RecursionError:
        return f"too deep to compare: {id(module)}"


def _list_variants(original: CodeCandidate) -> Iterator[CodeCandidate]:
    """List the code as it is, then with one and two levels of escapes undone."""
    yield original
    code = original.code
    is_doubtful = parse_python(code) is None or _has_newline_in_comment(code)
    if is_doubtful and "\\" not in code and not original.broken:
        text = _BROKEN_STRING.sub(_escape_newlines, code)
        yield msgspec.structs.replace(original, code=text, repairs=(*original.repairs, "string_newlines"))
    for level in _LEVELS:
        texts = list(_unescape(code.strip("\n"), is_doubtful, strict="newlines" not in original.repairs))
        for text in texts:
            if text != code and not _CONTROL.search(text):  # such an escape was not meant as one
                repairs = (*original.repairs, level)
                yield _strip_fences(msgspec.structs.replace(original, code=text, repairs=repairs))
        if not texts or texts[0] == code:
            return
        code = texts[0]


def _escape_newlines(string: re.Match[str]) -> str:
    """A string of one line with its line breaks escaped: the model did not double the backslashes of its code."""
    text = string[0]
    return text if text[0] == "#" or text[:3] in ("'''", '"""') else text.replace("\n", "\\n")


def _unescape(code: str, is_doubtful: bool, *, strict: bool) -> Iterator[str]:
    """Undo one level of JSON escapes; in code that is not Python also where all quotes stand bare, or only those of
    line breaks."""
    try:
        yield str(json.loads(f'"{code}"', strict=strict))
    except ValueError:
        if not is_doubtful or '\\"' in code:
            return
        yield unescape_leniently(code)
    if is_doubtful and "\n" not in code:
        yield _NEWLINE.sub("\\1\n", code)


def unescape_leniently(text: str, kept: str = "'") -> str:
    """Undo one level of JSON escapes; a backslash that is part of none, or before `kept`, stays as it is."""
    known = {letter: to for letter, to in _ESCAPED_CHARACTERS.items() if letter != kept}
    text = _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) > 1 else known.get(m[1], m[0]), text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _strip_fences(candidate: CodeCandidate) -> CodeCandidate:
    """Remove the fences around the code."""
    text = candidate.code
    for _ in range(_MAX_FENCES):
        text = strip_fence(text)
    if text == candidate.code:
        return candidate
    return msgspec.structs.replace(candidate, code=text, repairs=(*candidate.repairs, "fence"))


def _choose_unparsed(originals: list[CodeCandidate]) -> CodeChoice:
    """Choose where no variant is Python: the only candidate, if nothing shows that it is damaged."""
    if len(originals) != 1:
        return CodeChoice(error="code cannot be told from the broken JSON around it")
    original = originals[0]
    if not original.code.strip():
        return CodeChoice(error="the code is empty")
    if original.broken or "\\" in original.code or _RISKY_REPAIRS.union({"fence"}).intersection(original.repairs):
        return CodeChoice(error="the code is not Python however its escapes are read")
    return CodeChoice(original)
