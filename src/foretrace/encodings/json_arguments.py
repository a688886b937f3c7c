"""Read the arguments of a call from JSON text, repairing common mistakes of models."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_STRING = re.compile(r'\\.|"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
_WINDOW = 4096
_MAX_REPAIRED = 64 * 1024
"""Most characters of broken JSON that repair is tried on; longer texts would take too long."""


class JsonArguments(msgspec.Struct, frozen=True):
    """The arguments of a call as JSON, and the repairs that were needed."""

    text: str
    """JSON text of an object: the input verbatim if it was valid, otherwise the repaired JSON."""
    repairs: tuple[str, ...] = ()
    error: str | None = None


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def encode_json(value: Any) -> str:
    """A value as JSON, with keys in the given order and text not escaped to ASCII: the form of parsed arguments.

    Raises:
        ValueError: NaN or an infinity, which JSON does not have.
        TypeError: not a JSON value.
    """
    return _encode(value)


def try_decode(text: str | bytes) -> Any:
    """The value of a JSON text; `None` if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


_scan = json.JSONDecoder(strict=False).raw_decode


def find_json_end(text: str, start: int) -> int | None:
    """The end of the JSON value that begins at `start` or after spaces there; `None` if it is not complete.

    Raw control characters are allowed. The text is decoded in growing windows: trying every possible end, or letting
    an error count the lines of the whole text, would take quadratic time.
    """
    space = _SPACE.match(text, start)
    start = space.end() if space else start
    size = _WINDOW
    while True:
        window = text[start : start + size]
        cut = start + size < len(text)
        try:
            end: int = _scan(window)[1]
            if not cut or end < size:
                return start + end
        except json.JSONDecodeError as error:
            if not cut or (error.pos < size - len("\\u0000\\u0000") and not error.msg.startswith("Unterminated")):
                return None
        except (ValueError, RecursionError):  # a number too long for Python, or too many brackets
            return None
        size *= 8


_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def find_member(text: str, name: str) -> str:
    """The text of one member of a JSON object, so that a number or an escape stays as the agent wrote it."""
    return bytes(_read_members(text)[name]).decode()


def read_arguments(text: str) -> JsonArguments:
    """Read JSON arguments: as JSON, then allowing raw control characters, then by repair; each repair is recorded.

    A text that was cut off is never repaired: the result would be a call that nobody made.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return _repair(text)
    if isinstance(value, dict):
        return JsonArguments(text)
    return JsonArguments(encode_json({"input": value}), ("wrapped",))


def _repair(text: str) -> JsonArguments:
    try:
        value: Any = json.loads(text, strict=False)
        kind = "control_characters"
    except (ValueError, RecursionError):
        if _is_cut_off(text):
            return JsonArguments("{}", error="arguments are cut off" if text.strip() else "no arguments")
        if len(text) > _MAX_REPAIRED:
            return JsonArguments("{}", error="arguments are not JSON, and too long to repair")
        import json_repair

        try:
            value, kind = json_repair.loads(text), "json_repair"
        except (ValueError, RecursionError) as error:
            return JsonArguments("{}", error=f"arguments are not JSON: {error}")
    if not isinstance(value, dict):
        return JsonArguments("{}", error="arguments are not a JSON object")
    try:
        repaired = encode_json(value)
    except (ValueError, RecursionError) as error:
        return JsonArguments("{}", error=f"arguments are not JSON: {error}")
    if whole := _replace_lone_surrogates(repaired):
        return JsonArguments(whole, ("lone_surrogates",))
    return JsonArguments(repaired, (kind,))


def _is_cut_off(text: str) -> bool:
    """Whether the text ends inside the object: in a string, or with an open bracket."""
    bare = _STRING.sub("", text)
    is_open = bare.count("{") + bare.count("[") > bare.count("}") + bare.count("]")
    return not text.rstrip().endswith("}") or '"' in bare or is_open


def _replace_lone_surrogates(text: str) -> str | None:
    """Replace lone surrogates (an emoji that was cut in half); `None` if there are none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return None
