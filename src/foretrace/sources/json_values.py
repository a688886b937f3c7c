"""Take values out of foreign JSON that may hold anything: a value of the wrong kind reads as empty, not as an error."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from foretrace.encodings.json_arguments import encode_json, try_decode


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def as_dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_text(value: Any) -> str:
    """The value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


def as_number(value: Any) -> float | None:
    """The number, if it can be written as JSON."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        return None
    return float(value)


def read_success(value: Any) -> bool | None:
    """A clear yes or no: true or false, 1 or 0, or a word such as `passed`; `None` for anything else."""
    if isinstance(value, str):
        value = _ANSWERS.get(value.strip().lower())
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


_ANSWERS = {
    **dict.fromkeys(("true", "yes", "1", "1.0", "success", "successful", "succeeded", "passed", "resolved"), 1),
    **dict.fromkeys(("false", "no", "0", "0.0", "failure", "failed", "unresolved"), 0),
}


def get_value(record: Any, key: str, other: Any = None) -> Any:
    """The value under `key`; `other` if there is no such key or no object."""
    return record.get(key, other) if isinstance(record, dict) else other


def get_dict(record: Any, key: str) -> dict[str, Any]:
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, dict) else {}


def get_list(record: Any, key: str) -> list[Any]:
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, list) else []


def get_dicts(record: Any, key: str) -> list[dict[str, Any]]:
    return as_dicts(as_dict(record).get(key))


def get_text(record: Any, *keys: str) -> str:
    """The first text under one of the keys that is not empty; empty if there is none."""
    if isinstance(record, dict):  # `as_dict` would be slower, and readers call this most often
        for key in keys:
            text = record.get(key)
            if text and isinstance(text, str):
                return text
    return ""


def get_number(record: Any, *keys: str) -> float | None:
    if isinstance(record, dict):
        for key in keys:
            if (number := as_number(record.get(key))) is not None:
                return number
    return None


def get_bool(record: Any, key: str) -> bool | None:
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, bool) else None


def as_count(value: Any) -> int | None:
    """A count, which may also be written as text; `None` for anything else."""
    if isinstance(value, str) and value.isdigit() and len(value) < 20:
        return number if (number := int(value)) < 1 << 63 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def as_token_ids(value: Any) -> tuple[int, ...]:
    """A list of token ids; empty if any item is not one."""
    ids = tuple(i for i in as_list(value) if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 1 << 31)
    return ids if len(ids) == len(as_list(value)) else ()


def as_numbers(value: Any) -> tuple[float, ...]:
    """A list of numbers; empty if any item is not one."""
    numbers = tuple(n for item in as_list(value) if (n := as_number(item)) is not None)
    return numbers if len(numbers) == len(as_list(value)) else ()


def decode_json(text: Any) -> Any:
    """The value of a JSON text; `None` if it is not JSON. Anything but text is returned unchanged."""
    return try_decode(text) if isinstance(text, str) else text


def decode_nested(value: Any) -> Any:
    """The object or list in a JSON text; any other value unchanged."""
    is_nested = isinstance(value, str) and value.lstrip().startswith(("{", "["))
    found = decode_json(value) if is_nested else None
    return value if found is None else found


def decode_quoted(value: Any) -> Any:
    """The text in a JSON string that was quoted twice; any other value unchanged."""
    is_quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"'
    decoded = decode_json(value) if is_quoted else None
    return decoded if isinstance(decoded, str) else value


def write_text(value: Any) -> str:
    """A text unchanged, `None` as an empty text, and any other value as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return encode_json(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def write_sorted(value: Any) -> str:
    """A value as JSON text that does not depend on the order of keys."""
    return msgspec.json.encode(value, order="sorted").decode()
