"""Records with fields that this version does not know, as a newer one writes them: what is known of them is read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_args, get_type_hints

import msgspec

from foretrace.core.trace import Trace, decode_trace, upgrade_record


def decode_known(data: bytes) -> tuple[Trace, tuple[str, ...]]:
    """Read a record; also the paths of the fields that were passed over, such as `messages.mood`.

    Raises:
        msgspec.ValidationError: what is known of the JSON is no Trace.
        msgspec.DecodeError: the bytes are not JSON.
    """
    try:
        return decode_trace(data), ()
    except msgspec.ValidationError:
        record: Any = msgspec.json.decode(data)
        unknown: dict[str, None] = {}
        record = upgrade_record(record) if isinstance(record, dict) else record
        return msgspec.convert(_keep_known(record, Trace, "", unknown), Trace), tuple(unknown)


def _keep_known(value: Any, kind: Any, path: str, unknown: dict[str, None]) -> Any:
    """The value without the fields that the records in `kind` do not have, whose paths are put into `unknown`."""
    record = _find_record(kind)
    if isinstance(value, list) and record is not None:
        return [_keep_known(item, record, path, unknown) for item in value]
    if not isinstance(value, dict) or record is None:
        return value
    fields = _list_fields(record)
    unknown.update(dict.fromkeys(f"{path}{name}" for name in value if name not in fields))
    return {
        name: _keep_known(item, fields[name], f"{path}{name}.", unknown)
        for name, item in value.items()
        if name in fields
    }


def _find_record(kind: Any) -> type[msgspec.Struct] | None:
    """The record in a type such as `Part`, `Part | None` or `tuple[Part, ...]`."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next(filter(None, map(_find_record, get_args(kind))), None)


@lru_cache
def _list_fields(record: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(record)
