"""Find the code, the name and the other arguments in the JSON of a call, whole or broken."""

from __future__ import annotations

import ast
import io
import itertools
import json
import re
import tokenize
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from foretrace.core.python_source import parse_quietly
from foretrace.encodings.code_calls.code_text import Reading, tree
from foretrace.encodings.code_calls.escapes import bare_quotes, lenient, mixes_quotes, outside_ways, unquoted

KEY = "code"
_WRAPPERS = ("arguments", "parameters", "args", "input", "kwargs", "function", "tool_call", "call")
_RENAMED = {("parameters",), ("args",), ("input",), ("kwargs",)}
_NAMES = ("name", "tool", "tool_name", "function")
_MOST_DEPTH = 6
_MOST_BROKEN = 64 * 1024
"""Characters of broken JSON that are repaired: every way to end its strings is tried."""
_MOST_ENDS = 8
_VALUE = re.compile(rf"""(?<!\\)(\\*+)["']{KEY}\1["']\s*:\s*(\\*)("{{3}}|'{{3}}|["'])""")
_CLOSERS = re.compile(
    r"""(?:[\s}\]]*,\s*\\*["'][\w-]+\\*["']\s*:\s*(?:\\*"[^"\\{}]*\\*"|'[^'\\{}]*'|[\w.+-]+))*+[\s,}\]"'`\\;]*+\Z"""
)
_ENDS_MEMBER = re.compile(r"""\s*(?:,\s*\\*["']|[}\]])""")
_NO_ESCAPE = re.compile(r"""(?:[^\\]++|\\["'/\\bfnrt]|\\u[0-9a-fA-F]{4})*+""")
_BROKEN_LINE = re.compile(r"(?<!\\)((?:\\\\)*+)\\([\n\t])")
"""An escape that lost its letter: a line break was put for the `\n` of `\\n`, or a tab for its `\t`."""
_PYTHON_DICT = re.compile(r"\s*\{\s*'")
_NOT_PYTHON = re.compile(r"""\\\n|(?<!\\)(?:\\\\)*+\\u[dD][89a-fA-F]|(?<!\\)(?:\\\\)*+\\[^\\'"nrtxuU]""")
"""What JSON and Python read differently: a broken line, halves of characters, which Python does not join, and escapes
that Python never writes."""
_QUOTE = re.compile(r"""(?<!\\)(\\*+)(["'])""")
_ESCAPED_QUOTE = re.compile(r"""\\(["'])""")
_APOSTROPHE = re.compile(r"(?<!\\)((?:\\\\)*+)\\'")
"""An escape that JSON has not, so that it may belong to the code: in a raw string it matters."""
_TWO = re.compile(r'(?<!\\)\\\\"')
_RUN = re.compile(r"(?<!\\)(\\++)(.)", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_PLACE = "0"
"""Stands for the code while the JSON around it is repaired."""


class _Found(msgspec.Struct, frozen=True):
    code: str
    others: dict[str, Any]
    name: str
    path: tuple[str, ...]
    repairs: tuple[str, ...]
    source: str = ""
    """The JSON text whose string the code is."""


class _Cut(msgspec.Struct, frozen=True):
    """The string that holds the code, in the text of a broken call."""

    opens: int
    """Offset of the quote, or of the backslashes before it."""
    slashes: int
    quote: str
    raw: str
    after: int
    """Offset behind the quote that ends it."""


def from_json(text: str) -> list[Reading] | str:
    """Readings of a whole JSON value; for a value without a code, or with several, the error."""
    value, repairs, doubled = _loads(text)
    if value is None:
        return "the call is not JSON"
    if doubled:
        return f"the call holds {KEY!r} more than once"
    return _from_value(value, repairs, text)


def _from_value(value: Any, repairs: tuple[str, ...], source: str = "") -> list[Reading] | str:
    found = list(_walk(value, source=source))
    if not found and (inner := _arguments_text(value)):
        name, text = inner
        if text.lstrip().startswith("{"):
            more = (*repairs, "arguments_string")
            return [
                msgspec.structs.replace(r, name=r.name or name, repairs=(*more, *r.repairs)) for r in from_broken(text)
            ] or "the call's arguments are not JSON"
        if tree(text) is not None:
            found = [_Found(text, {}, name, ("arguments",), ("arguments_string",))]
    if len(found) != 1:
        return f"the call holds {KEY!r} more than once" if found else f"the call has no {KEY!r} argument"
    one = found[0]
    raw = _raw(one.code, one.source) if "\\" in one.source else ""
    return [Reading(one.code, (*repairs, *one.repairs), name=one.name, others=one.others, raw=raw)]


def _raw(code: str, source: str) -> str:
    """The code as it is written in a JSON text: the inside of its string, or of those of its lines; empty where it is
    in none."""
    written = {_loads_string(m[1]): m[1] for m in _STRING.finditer(source)}
    lines = [written.get(line, written.get(f"{line}\n")) for line in code.split("\n")] if code not in written else []
    return written.get(code) or "\\n".join(filter(None, lines)) * (None not in lines)


def _loads(text: str) -> tuple[Any, tuple[str, ...], bool]:
    """The JSON value (null when there is none), the repairs it took, and whether a key that counts is there twice."""
    doubled: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs if key == KEY or key in _WRAPPERS]
        doubled.extend(keys if len(set(keys)) < len(keys) else [])
        return dict(pairs)

    for strict in (True, False):
        try:
            value = json.loads(text, strict=strict, object_pairs_hook=members)
            repairs = () if strict else ("newlines" if "\n" in text.strip() else "control_characters",)
            return value, repairs, bool(doubled)
        except (ValueError, RecursionError):
            doubled.clear()
    return None, (), False


def _walk(
    node: Any, name: str = "", path: tuple[str, ...] = (), repairs: tuple[str, ...] = (), source: str = ""
) -> Iterator[_Found]:
    """Every code in the value: in an object, or in a string that holds an object."""
    if len(path) > _MOST_DEPTH:
        return
    if isinstance(node, str) and node.lstrip().startswith(("{", "[", '"')):
        value, more, doubled = _loads(node)
        if not doubled and isinstance(value, (dict, list, str)):
            step = "arguments_string" if path else "nested"
            yield from _walk(value, name, path or ("",), (*repairs, step, *more), node)
    elif isinstance(node, list):
        items = cast("list[Any]", node)
        if len(items) == 1:
            yield from _walk(items[0], name, (*path, "[]"), repairs, source)
    elif isinstance(node, dict):
        members = cast("dict[str, Any]", node)
        name = next((members[key] for key in _NAMES if isinstance(members.get(key), str)), name)
        code = members.get(KEY)
        lines = cast("list[Any]", code) if isinstance(code, list) else []
        if lines and all(isinstance(line, str) for line in lines):
            code, repairs = "\n".join(line.rstrip("\n") for line in lines), (*repairs, "lines")
        if isinstance(code, str):
            others = {k: v for k, v in members.items() if k != KEY} if path else {}
            yield from _unnested(_Found(code, others, name, path, (*repairs, *_path_kind(path)), source))
        for key in (KEY, *_WRAPPERS) if not isinstance(code, str) else _WRAPPERS:
            if key in members and (key == KEY or not isinstance(members[key], str) or key != "function"):
                yield from _walk(members[key], name, (*path, key), repairs, source)


def _path_kind(path: tuple[str, ...]) -> tuple[str, ...]:
    plain = tuple(key for key in path if key)
    if plain == ("arguments",):
        return ()
    return ("renamed",) if plain in _RENAMED else ("nested",)


def _unnested(found: _Found) -> Iterator[_Found]:
    """Code that is itself a call's JSON, and nothing else: as Python it would do nothing."""
    text = found.code.strip()
    if text.startswith("{"):
        value, _, doubled = _loads(text)
        known = {KEY, "name", *_WRAPPERS}
        inner = list(_walk(value, found.name, ("",), source=text)) if isinstance(value, dict) and not doubled else []
        if len(inner) == 1 and known.issuperset(cast("dict[str, Any]", value)) and tree(inner[0].code) is not None:
            kinds = (*found.repairs, "nested")
            found = msgspec.structs.replace(inner[0], path=found.path, repairs=kinds)
    yield found


def _arguments_text(value: Any) -> tuple[str, str] | None:
    """Name and text of arguments that are a string but no JSON."""
    if not isinstance(value, dict):
        return None
    members = cast("dict[str, Any]", value)
    if isinstance(inner := members.get("function"), dict):
        members = cast("dict[str, Any]", inner)
    text, name = members.get("arguments"), members.get("name")
    return (name if isinstance(name, str) else "", text) if isinstance(text, str) else None


def from_broken(text: str) -> list[Reading]:
    """Readings of broken JSON: the code is cut out, what is around it is repaired and must then be a call.

    Every end of the code that what follows allows is one reading: quotes in it may not be escaped.
    """
    if len(text) <= _MOST_BROKEN and (value := _python_dict(text)) is not None:
        given = _from_value(value, ("single_quotes",))
        return _with_raw(given, text) if isinstance(given, list) else []
    if len(text) > _MOST_BROKEN or (match := _VALUE.search(text)) is None:
        return []
    readings: list[Reading] = []
    opens, slashes, quote, start = match.start(2), len(match.group(2)), match.group(3), match.end()
    if len(quote) == 3:
        end = text.rfind(quote, start)
        if end >= 0:
            raw = text[start:end]
            cut = _Cut(opens, slashes, quote, raw, end + 3)
            return _readings(text, cut, [raw, lenient(raw)]) if _CLOSERS.match(text, end + 3) else []
        start, quote = match.start(3) + 1, quote[0]
    for end in _ends(text, start, slashes, quote):
        raw = text[start : end - slashes]
        readings += _readings(text, _Cut(opens, slashes, quote, raw, end + 1), _decoded(raw, quote, slashes))
    return readings


def _python_dict(text: str) -> Any:
    """The value of a Python dict with single quotes, null when it is none. Strings side by side are none: they are
    one string with quotes that are not escaped."""
    if not _PYTHON_DICT.match(text) or _NOT_PYTHON.search(text):
        return None
    try:
        tokens = [t.type for t in tokenize.generate_tokens(io.StringIO(text.strip()).readline)]
        if any(a == b == tokenize.STRING for a, b in itertools.pairwise(tokens)):
            return None
        return ast.literal_eval(parse_quietly(text.strip(), "eval"))
    except (SyntaxError, ValueError, TypeError, tokenize.TokenError, RecursionError, MemoryError):
        return None


def _with_raw(given: list[Reading], text: str) -> list[Reading]:
    """Readings of a Python dict with the inside of the string that their code is; in triple quotes, whose use is to
    leave code as it is, that inside is a reading too."""
    found: list[Reading] = []
    for reading in given:
        for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline):
            if token.type == tokenize.STRING and ast.literal_eval(token.string) == reading.code:
                size = 3 if token.string.startswith(('"""', "'''")) else 1
                reading = msgspec.structs.replace(reading, raw=token.string[size:-size])
                found += [msgspec.structs.replace(reading, code=reading.raw)] * (size == 3)
                if token.string[0] == '"' and size == 1:
                    code = ast.literal_eval(_APOSTROPHE.sub(r"\1\\\\'", token.string))
                    found += [msgspec.structs.replace(reading, code=code)] * (tree(code) is not None)
        found.append(reading)
    return found


def _ends(text: str, start: int, slashes: int, quote: str) -> list[int]:
    """Offsets of quotes that may end the code: the first that is not escaped, and the last ones."""
    quotes = [
        m.end() - 1
        for m in _QUOTE.finditer(text, start)
        if m.group(2) == quote and len(m.group(1)) % (2 * (slashes + 1)) == slashes
    ]
    ends: list[int] = []
    for at in reversed(quotes[-_MOST_ENDS:]):
        if not _CLOSERS.match(text, at + 1):
            continue
        ends.append(at)
    if quotes and quotes[0] not in ends and _ENDS_MEMBER.match(text, quotes[0] + 1):
        ends.append(quotes[0])
    return sorted(ends)


def _decoded(raw: str, cut_quote: str, slashes: int) -> list[str]:
    """The code that the inside of a string stands for, decoded once for each string around it; where quotes or other
    escapes in it are broken, also with its backslashes left alone."""
    values = [raw]
    if _BROKEN_LINE.search(raw):
        values.append(_BROKEN_LINE.sub(lambda m: m[1] + ("\\\\n" if m[2] == "\n" else "\\\\t"), raw))
    above = []
    for _ in range((slashes + 1).bit_length()):
        above += [*values, *map(unquoted, values)]
        values = [_loads_string(v) for v in values]
    if slashes and _has_single(raw, slashes):
        values += above
    if cut_quote == '"' and not slashes and _APOSTROPHE.search(raw):
        values += [v for v in [lenient(_APOSTROPHE.sub(r"\1\\\\'", raw))] if tree(v) is not None]
    if not _NO_ESCAPE.fullmatch(raw) or _has_bare(raw, cut_quote, slashes):
        values.append(unquoted(values[0]))
        for bare in (_ESCAPED_QUOTE.sub(r"\1", raw), _TWO.sub(r'\\"', raw)):
            if not mixes_quotes(bare) and ('"' not in bare or bare_quotes(bare, '"')):
                values += outside_ways(bare)
        values += outside_ways(raw)
    return values


def _loads_string(raw: str) -> str:
    try:
        return str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return lenient(raw)


def _readings(text: str, cut: _Cut, values: list[str]) -> list[Reading]:
    """The values as code of the call that the text is when its code is taken out and the rest is repaired."""
    import json_repair

    before, after, slash = text[: cut.opens], text[cut.after :], "\\" * cut.slashes
    frame = f'{before}{slash}"{_PLACE}{slash}"{after}'
    whole = frame.replace('\\"', '"') if frame.lstrip("[{ \n").startswith('\\"') else frame
    try:
        found = list(_walk(json_repair.loads(whole)))
    except (ValueError, RecursionError):
        return []
    bare = len(cut.quote) == 1 and _has_bare(cut.raw, cut.quote, cut.slashes)
    if len(found) != 1 or found[0].code != _PLACE or "tool_call>" in after or (bare and "}" not in after):
        return []  # with bare quotes and no brace after it, it may as well be cut off
    repairs = [*found[0].repairs, *_structure(before, after, cut.quote)]
    repairs += ["newlines"] * ("\n" in cut.raw) + ["bare_quotes"] * bare
    repairs += ["bad_escapes"] * (not _NO_ESCAPE.fullmatch(cut.raw))
    kinds = tuple(dict.fromkeys(repairs)) or ("json_repair",)
    return [Reading(v, kinds, True, found[0].name, found[0].others, raw=cut.raw) for v in dict.fromkeys(values)]


def _has_bare(raw: str, quote: str, slashes: int) -> bool:
    """Whether quotes of the kind that ends the string stand in it without an escape."""
    period = 2 * (slashes + 1)
    return any(len(m.group(1)) % period == slashes for m in _QUOTE.finditer(raw) if m.group(2) == quote)


def _has_single(raw: str, slashes: int) -> bool:
    """Whether backslashes stand in a string in a string that were not doubled for the outer one."""
    runs = ((len(m[1]), m[2]) for m in _RUN.finditer(raw))
    return any(size % (2 * (slashes + 1)) != 2 * slashes + 1 if c == '"' else size % (slashes + 1) for size, c in runs)


def _structure(before: str, after: str, quote: str) -> list[str]:
    """Kinds of what is broken around the code."""
    opened, closed = before.count("{") + after.count("{"), before.count("}") + after.count("}")
    found = {
        "single_quotes": "'" in before or quote == "'",
        "triple_quotes": len(quote) == 3,
        "trailing_comma": re.search(r",\s*(?:[}\]]|\Z)", after) is not None,
        "missing_brace": opened > closed,
        "extra_brace": opened < closed,
    }
    return [kind for kind, there in found.items() if there]
