"""Settings objects out of plain values."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from foretrace.core.errors import UsageError

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def make_settings(kind: type[_Struct], **given: Any) -> _Struct:
    """A settings object of the values given, each of which is checked.

    Raises:
        UsageError: a value of the wrong type, or a field of a table that is not known.
    """
    try:
        return msgspec.convert(msgspec.to_builtins(given), kind, strict=True)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(_explain(error)) from None


def _explain(error: Exception) -> str:
    """msgspec's message with the place first: `Expected int, got str - at $.seed` -> `seed: Expected int, got str`."""
    what, _, place = str(error).rpartition(" - at ")
    name = place.strip("`").removeprefix("$").lstrip(".")
    return f"{name}: {what}" if what and name else what or str(error)
