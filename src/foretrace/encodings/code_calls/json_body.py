"""Find the code, the tool and the other arguments in the JSON of a call, whole or broken.

What is found are candidates (`CodeCandidate`): which of them is the code is decided in `code_candidates`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from foretrace.encodings.code_calls.code_candidates import CodeCandidate, parse_python
from foretrace.encodings.code_calls.escapes import (
    count_bare_quotes,
    list_outside_variants,
    unescape_double_quotes,
    unescape_leniently,
)

CODE_KEY = "code"
_WRAPPER_KEYS = ("arguments", "parameters", "args", "input", "kwargs", "function", "tool_call", "call")
_RENAMED_PATHS = {("parameters",), ("args",), ("input",), ("kwargs",)}
_NAME_KEYS = ("name", "tool", "tool_name", "function")
_MAX_DEPTH = 6
_MAX_BROKEN = 64 * 1024
"""Characters of broken JSON that are read: every way to end its strings is tried."""
_MAX_ENDS = 8
_CODE_MEMBER = re.compile(rf"""(?<!\\)(\\*+)["']{CODE_KEY}\1["']\s*:\s*(\\*)("{{3}}|'{{3}}|["'])""")
_REST_OF_CALL = re.compile(
    r"""(?:[\s}\]]*,\s*\\*["'][\w-]+\\*["']\s*:\s*(?:\\*"[^"\\{}]*\\*"|'[^'\\{}]*'|[\w.+-]+))*+[\s,}\]"'`\\;]*+\Z"""
)
_END_OF_MEMBER = re.compile(r"""\s*(?:,\s*\\*["']|[}\]])""")
_VALID_ESCAPES = re.compile(r"""(?:[^\\]++|\\["'/\\bfnrt]|\\u[0-9a-fA-F]{4})*+""")
_BROKEN_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*+)\\([\n\t])")
"""What is left of `\\n` or `\\t` once their `\n` or `\t` was replaced by a line break or a tab."""
_QUOTE = re.compile(r"""(?<!\\)(\\*+)(["'])""")
_ESCAPED_QUOTE = re.compile(r"""\\(["'])""")
_APOSTROPHE = re.compile(r"(?<!\\)((?:\\\\)*+)\\'")
"""An escape that JSON does not know, so that it may belong to the code, where it matters in a raw string."""
_DOUBLED_QUOTE_ESCAPE = re.compile(r'(?<!\\)\\\\"')
_BACKSLASHES = re.compile(r"(?<!\\)(\\++)(.)", re.DOTALL)
_JSON_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_PLACEHOLDER = "0"
"""Put in the place of the code while the JSON around it is repaired."""


class _CodeMember(msgspec.Struct, frozen=True):
    """The code argument in a JSON value, and what stands around it."""

    code: str
    other_arguments: dict[str, Any]
    tool: str
    path: tuple[str, ...]
    """Keys that lead to the object with the code."""
    repairs: tuple[str, ...]
    source: str = ""
    """The JSON text in which the code is a string."""


class _CodeString(msgspec.Struct, frozen=True):
    """The string that holds the code, in the text of a broken call."""

    start: int
    """Offset of the quote, or of the backslashes before it."""
    slashes: int
    """Backslashes before that quote: the code is in a string inside of a string."""
    quote: str
    raw: str
    """What stands between the quotes."""
    end: int
    """Offset behind the quote that ends it."""


def read_json(text: str) -> list[CodeCandidate] | str:
    """Read a JSON value that is whole: its candidates, or the error where it holds no code or several."""
    value, repairs, doubled = _load_json(text)
    if value is None:
        return "the call is not JSON"
    if doubled:
        return f"the call holds {CODE_KEY!r} more than once"
    members = list(_find_code(value, source=text))
    if len(members) != 1:
        return f"the call holds {CODE_KEY!r} more than once" if members else f"the call has no {CODE_KEY!r} argument"
    member = members[0]
    raw = _find_raw(member.code, member.source) if "\\" in member.source else ""
    return [
        CodeCandidate(
            member.code, (*repairs, *member.repairs), tool=member.tool, other_arguments=member.other_arguments, raw=raw
        )
    ]


def _find_raw(code: str, source: str) -> str:
    """Find the code as written in a JSON text: the inside of its string, or of the strings of its lines.

    Empty where it is in none.
    """
    written = {_decode_string(m[1]): m[1] for m in _JSON_STRING.finditer(source)}
    lines = [written.get(line, written.get(f"{line}\n")) for line in code.split("\n")] if code not in written else []
    return written.get(code) or "\\n".join(filter(None, lines)) * (None not in lines)


def _load_json(text: str) -> tuple[Any, tuple[str, ...], bool]:
    """Load JSON.

    Returns:
        The value (`None` when there is none), the repairs it took, and whether a key that matters is there twice.
    """
    doubled: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs if key == CODE_KEY or key in _WRAPPER_KEYS]
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


def _find_code(
    node: Any, name: str = "", path: tuple[str, ...] = (), repairs: tuple[str, ...] = (), source: str = ""
) -> Iterator[_CodeMember]:
    """Find every code in a value: in an object, or in a string that holds an object as JSON."""
    if len(path) > _MAX_DEPTH:
        return
    if isinstance(node, str) and node.lstrip().startswith(("{", "[", '"')):
        value, more, doubled = _load_json(node)
        if not doubled and isinstance(value, (dict, list, str)):
            step = "arguments_string" if path else "nested"
            yield from _find_code(value, name, path or ("",), (*repairs, step, *more), node)
    elif isinstance(node, list):
        items = cast("list[Any]", node)
        if len(items) == 1:
            yield from _find_code(items[0], name, (*path, "[]"), repairs, source)
    elif isinstance(node, dict):
        members = cast("dict[str, Any]", node)
        name = next((members[key] for key in _NAME_KEYS if isinstance(members.get(key), str)), name)
        code = members.get(CODE_KEY)
        lines = cast("list[Any]", code) if isinstance(code, list) else []
        if lines and all(isinstance(line, str) for line in lines):
            code, repairs = "\n".join(line.rstrip("\n") for line in lines), (*repairs, "lines")
        if isinstance(code, str):
            others = {k: v for k, v in members.items() if k != CODE_KEY} if path else {}
            yield _unwrap_nested_call(
                _CodeMember(code, others, name, path, (*repairs, *_list_path_repairs(path)), source)
            )
        for key in (CODE_KEY, *_WRAPPER_KEYS) if not isinstance(code, str) else _WRAPPER_KEYS:
            if key in members and (key == CODE_KEY or not isinstance(members[key], str) or key != "function"):
                yield from _find_code(members[key], name, (*path, key), repairs, source)


def _list_path_repairs(path: tuple[str, ...]) -> tuple[str, ...]:
    plain = tuple(key for key in path if key)
    if plain == ("arguments",):
        return ()
    return ("renamed",) if plain in _RENAMED_PATHS else ("nested",)


def _unwrap_nested_call(member: _CodeMember) -> _CodeMember:
    """Unwrap code that is itself the JSON of a call: as Python it would do nothing."""
    text = member.code.strip()
    value, _, doubled = _load_json(text) if text.startswith("{") else (None, (), False)
    if doubled or not isinstance(value, dict):
        return member
    inner = list(_find_code(value, member.tool, ("",), source=text))
    only_call_keys = {CODE_KEY, "name", *_WRAPPER_KEYS}.issuperset(cast("dict[str, Any]", value))
    if len(inner) != 1 or not only_call_keys or parse_python(inner[0].code) is None:
        return member
    return msgspec.structs.replace(inner[0], path=member.path, repairs=(*member.repairs, "nested"))


def read_broken_json(text: str) -> list[CodeCandidate]:
    """Read broken JSON: the code is cut out; what is left is repaired and must then be a call.

    Quotes in the code may not be escaped, so that each quote after which the call can end gives a candidate.
    """
    if len(text) > _MAX_BROKEN:
        return []
    if (match := _CODE_MEMBER.search(text)) is None:
        return []
    opening, slashes, quote, start = match.start(2), len(match.group(2)), match.group(3), match.end()
    if len(quote) == 3:
        end = text.rfind(quote, start)
        if end >= 0:
            if not _REST_OF_CALL.match(text, end + 3):
                return []
            raw = text[start:end]
            string = _CodeString(opening, slashes, quote, raw, end + 3)
            return _make_candidates(text, string, [raw, unescape_leniently(raw)])
        start, quote = match.start(3) + 1, quote[0]
    candidates: list[CodeCandidate] = []
    for end in _find_ends(text, start, slashes, quote):
        raw = text[start : end - slashes]
        string = _CodeString(opening, slashes, quote, raw, end + 1)
        candidates += _make_candidates(text, string, _decode_in_all_ways(raw, quote, slashes))
    return candidates


def _find_ends(text: str, start: int, slashes: int, quote: str) -> list[int]:
    """Find the offsets of quotes that may end the code: the first that is not escaped, and the last ones."""
    quotes = [
        m.end() - 1
        for m in _QUOTE.finditer(text, start)
        if m.group(2) == quote and len(m.group(1)) % (2 * (slashes + 1)) == slashes
    ]
    ends: list[int] = []
    for at in reversed(quotes[-_MAX_ENDS:]):
        if not _REST_OF_CALL.match(text, at + 1):
            continue
        ends.append(at)
    if quotes and quotes[0] not in ends and _END_OF_MEMBER.match(text, quotes[0] + 1):
        ends.append(quotes[0])
    return sorted(ends)


def _decode_in_all_ways(raw: str, cut_quote: str, slashes: int) -> list[str]:
    """Decode the inside of a string once for each string around it.

    Where quotes or other escapes in it are broken, also with its backslashes left as they are.
    """
    values = [raw]
    if _BROKEN_ESCAPE.search(raw):
        values.append(_BROKEN_ESCAPE.sub(lambda m: m[1] + ("\\\\n" if m[2] == "\n" else "\\\\t"), raw))
    above = []
    for _ in range((slashes + 1).bit_length()):
        above += [*values, *map(unescape_double_quotes, values)]
        values = [_decode_string(v) for v in values]
    if slashes and _has_single_backslashes(raw, slashes):
        values += above
    if cut_quote == '"' and not slashes and _APOSTROPHE.search(raw):
        values += [v for v in [unescape_leniently(_APOSTROPHE.sub(r"\1\\\\'", raw))] if parse_python(v) is not None]
    if not _VALID_ESCAPES.fullmatch(raw) or _has_bare_quotes(raw, cut_quote, slashes):
        values.append(unescape_double_quotes(values[0]))
        for bare in (_ESCAPED_QUOTE.sub(r"\1", raw), _DOUBLED_QUOTE_ESCAPE.sub(r'\\"', raw)):
            if '"' not in bare or count_bare_quotes(bare, '"'):
                values += list_outside_variants(bare)
        values += list_outside_variants(raw)
    return values


def _decode_string(raw: str) -> str:
    """Decode the inside of one JSON string, leniently where it is broken."""
    try:
        return str(json.loads(f'"{raw}"', strict=False))
    except ValueError:
        return unescape_leniently(raw)


def _make_candidates(text: str, string: _CodeString, values: list[str]) -> list[CodeCandidate]:
    """Make a candidate of each value, if the text is a call once its code is taken out and the rest is repaired."""
    import json_repair

    before, after, slash = text[: string.start], text[string.end :], "\\" * string.slashes
    frame = f'{before}{slash}"{_PLACEHOLDER}{slash}"{after}'
    whole = frame.replace('\\"', '"') if frame.lstrip("[{ \n").startswith('\\"') else frame
    try:
        members = list(_find_code(json_repair.loads(whole)))
    except (ValueError, RecursionError):
        return []
    bare = len(string.quote) == 1 and _has_bare_quotes(string.raw, string.quote, string.slashes)
    if len(members) != 1 or members[0].code != _PLACEHOLDER or "tool_call>" in after or (bare and "}" not in after):
        return []  # with bare quotes and no brace after it, the call may as well be cut off
    repairs = [*members[0].repairs, *_list_structure_repairs(before, after, string.quote)]
    repairs += ["newlines"] * ("\n" in string.raw) + ["bare_quotes"] * bare
    repairs += ["bad_escapes"] * (not _VALID_ESCAPES.fullmatch(string.raw))
    unique = tuple(dict.fromkeys(repairs)) or ("json_repair",)
    return [
        CodeCandidate(v, unique, True, members[0].tool, members[0].other_arguments, raw=string.raw)
        for v in dict.fromkeys(values)
    ]


def _has_bare_quotes(raw: str, quote: str, slashes: int) -> bool:
    """Whether quotes of the kind that ends a string stand in it without an escape."""
    period = 2 * (slashes + 1)
    return any(len(m.group(1)) % period == slashes for m in _QUOTE.finditer(raw) if m.group(2) == quote)


def _has_single_backslashes(raw: str, slashes: int) -> bool:
    """Whether a string inside of a string holds backslashes that were not doubled for the outer string."""
    runs = ((len(m[1]), m[2]) for m in _BACKSLASHES.finditer(raw))
    return any(size % (2 * (slashes + 1)) != 2 * slashes + 1 if c == '"' else size % (slashes + 1) for size, c in runs)


def _list_structure_repairs(before: str, after: str, quote: str) -> list[str]:
    """List the repairs that the JSON around the code needs."""
    opened, closed = before.count("{") + after.count("{"), before.count("}") + after.count("}")
    repairs = {
        "single_quotes": "'" in before or quote == "'",
        "triple_quotes": len(quote) == 3,
        "trailing_comma": re.search(r",\s*(?:[}\]]|\Z)", after) is not None,
        "missing_brace": opened > closed,
        "extra_brace": opened < closed,
    }
    return [repair for repair, needed in repairs.items() if needed]
