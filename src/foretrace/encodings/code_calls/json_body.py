"""Find the code, the tool and the other arguments in the JSON of a call, whole or broken.

What is found are candidates (`CodeCandidate`): which of them is the code is decided in `code_candidates`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from foretrace.encodings.code_calls.code_candidates import CodeCandidate, parse_python, unescape_leniently

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
_VALID_ESCAPES = re.compile(r"""(?:[^\\]++|\\["/\\bfnrt]|\\u[0-9a-fA-F]{4})*+""")
_QUOTE = re.compile(r"""(?<!\\)(\\*+)(["'])""")
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
    members = list(_find_code(value))
    if len(members) != 1:
        return f"the call holds {CODE_KEY!r} more than once" if members else f"the call has no {CODE_KEY!r} argument"
    member = members[0]
    found = (*repairs, *member.repairs)
    return [CodeCandidate(member.code, found, tool=member.tool, other_arguments=member.other_arguments)]


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
    node: Any, name: str = "", path: tuple[str, ...] = (), repairs: tuple[str, ...] = ()
) -> Iterator[_CodeMember]:
    """Find every code in a value: in an object, or in a string that holds an object as JSON."""
    if len(path) > _MAX_DEPTH:
        return
    if isinstance(node, str) and node.lstrip().startswith(("{", "[", '"')):
        value, more, doubled = _load_json(node)
        if not doubled and isinstance(value, (dict, list, str)):
            step = "arguments_string" if path else "nested"
            yield from _find_code(value, name, path or ("",), (*repairs, step, *more))
    elif isinstance(node, list):
        items = cast("list[Any]", node)
        if len(items) == 1:
            yield from _find_code(items[0], name, (*path, "[]"), repairs)
    elif isinstance(node, dict):
        members = cast("dict[str, Any]", node)
        name = next((members[key] for key in _NAME_KEYS if isinstance(members.get(key), str)), name)
        code = members.get(CODE_KEY)
        lines = cast("list[Any]", code) if isinstance(code, list) else []
        if lines and all(isinstance(line, str) for line in lines):
            code, repairs = "\n".join(line.rstrip("\n") for line in lines), (*repairs, "lines")
        if isinstance(code, str):
            others = {k: v for k, v in members.items() if k != CODE_KEY} if path else {}
            yield _unwrap_nested_call(_CodeMember(code, others, name, path, (*repairs, *_list_path_repairs(path))))
        for key in (CODE_KEY, *_WRAPPER_KEYS) if not isinstance(code, str) else _WRAPPER_KEYS:
            if key in members and (key == CODE_KEY or not isinstance(members[key], str) or key != "function"):
                yield from _find_code(members[key], name, (*path, key), repairs)


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
    inner = list(_find_code(value, member.tool, ("",)))
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
            return _make_candidates(text, _CodeString(opening, slashes, quote, text[start:end], end + 3))
        start, quote = match.start(3) + 1, quote[0]
    candidates: list[CodeCandidate] = []
    for end in _find_ends(text, start, slashes, quote):
        candidates += _make_candidates(text, _CodeString(opening, slashes, quote, text[start : end - slashes], end + 1))
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


def _decode(string: _CodeString) -> list[str]:
    """Decode the inside of a string once for each string around it; where quotes or escapes in it are broken, also with
    its backslashes left as they are."""
    is_broken = len(string.quote) == 3 or _has_bare_quotes(string)
    is_broken = is_broken or (_has_bad_escapes(string) and f"\\{string.quote}" not in string.raw)
    values = [string.raw]
    for _ in range((string.slashes + 1).bit_length()):
        values.append(unescape_leniently(values[-1], "" if _escapes_apostrophes(string) else "'"))
    return values if is_broken else values[-1:]


def _has_bad_escapes(string: _CodeString) -> bool:
    """Whether a backslash is part of no escape."""
    raw = string.raw.replace("\\'", "'") if _escapes_apostrophes(string) else string.raw
    return not _VALID_ESCAPES.fullmatch(raw)


def _escapes_apostrophes(string: _CodeString) -> bool:
    """Whether apostrophes are escaped as JSON does not know it, and all of them: else such an escape is the code's."""
    slashes = {len(m[1]) % 2 for m in _QUOTE.finditer(string.raw) if m[2] == "'"}
    return string.quote == "'" or slashes == {1}


def _make_candidates(text: str, string: _CodeString) -> list[CodeCandidate]:
    """Make a candidate of each way to decode the code, if the text without it is a call once that is repaired."""
    import json_repair

    before, after, slash = text[: string.start], text[string.end :], "\\" * string.slashes
    frame = f'{before}{slash}"{_PLACEHOLDER}{slash}"{after}'
    whole = frame.replace('\\"', '"') if frame.lstrip("[{ \n").startswith('\\"') else frame
    try:
        members = list(_find_code(json_repair.loads(whole)))
    except (ValueError, RecursionError):
        return []
    bare = len(string.quote) == 1 and _has_bare_quotes(string)
    if len(members) != 1 or members[0].code != _PLACEHOLDER or "tool_call>" in after or (bare and "}" not in after):
        return []  # with bare quotes and no brace after it, the call may as well be cut off
    repairs = [*members[0].repairs, *_list_structure_repairs(before, after, string.quote)]
    repairs += ["newlines"] * ("\n" in string.raw) + ["bare_quotes"] * bare
    repairs += ["bad_escapes"] * _has_bad_escapes(string)
    unique = tuple(dict.fromkeys(repairs)) or ("json_repair",)
    return [
        CodeCandidate(v, unique, True, members[0].tool, members[0].other_arguments, raw=string.raw)
        for v in dict.fromkeys(_decode(string))
    ]


def _has_bare_quotes(string: _CodeString) -> bool:
    """Whether quotes of the kind that ends the string stand in it without an escape."""
    period = 2 * (string.slashes + 1)
    quotes = (len(m[1]) for m in _QUOTE.finditer(string.raw) if m[2] == string.quote)
    return any(slashes % period == string.slashes for slashes in quotes)


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
