"""Values of the standard library that are sent as text: decimals, fractions and times."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_MAX_TEXT = 2000
"""Characters of such a text."""
_MAX_EXPONENT = 1_000_000
"""Above this, to make an int of a decimal takes for ever."""


def _write_decimal(value: Any) -> str:
    if value.is_snan() or (value.is_finite() and abs(value.adjusted()) > _MAX_EXPONENT):
        raise ValueError("a decimal that cannot be compared")
    return str(value)


def _read_decimal(text: str) -> Any:
    from decimal import Decimal

    value = Decimal(text)
    _write_decimal(value)
    return value


def _read_fraction(text: str) -> Any:
    from fractions import Fraction

    above, _, below = text.partition("/")
    return Fraction(int(above, 16), int(below, 16))


def _read_iso(name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        import datetime

        return getattr(datetime, name).fromisoformat(text)

    return read


def _read_delta(text: str) -> Any:
    from datetime import timedelta

    days, seconds, microseconds = map(int, text.split())
    return timedelta(days, seconds, microseconds)


def _read_uuid(text: str) -> Any:
    from uuid import UUID

    return UUID(hex=text)


def _write_moment(value: Any) -> str:
    if value.tzinfo is not None and type(value.tzinfo).__name__ != "timezone":
        raise ValueError("a zone of another kind")
    return str(value.isoformat())


_KINDS: dict[str, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    "Decimal": ("decimal", _write_decimal, _read_decimal),
    "Fraction": ("fractions", lambda v: f"{v.numerator:x}/{v.denominator:x}", _read_fraction),
    "date": ("datetime", lambda v: str(v.isoformat()), _read_iso("date")),
    "time": ("datetime", _write_moment, _read_iso("time")),
    "datetime": ("datetime", _write_moment, _read_iso("datetime")),
    "timedelta": ("datetime", lambda v: f"{v.days} {v.seconds} {v.microseconds}", _read_delta),
    "UUID": ("uuid", lambda v: str(v.hex), _read_uuid),
}
"""By type name: its module, what makes text of a value, and what reads the text."""


def is_stdlib_value(value: Any) -> bool:
    """Whether the value is of one of these types, exactly."""
    kind = type(value)
    found = _KINDS.get(kind.__name__)
    return found is not None and getattr(sys.modules.get(found[0]), kind.__name__, None) is kind


def encode_stdlib_value(value: Any) -> list[str]:
    """Type name and text of a value of one of these types.

    Raises:
        ValueError: it cannot be sent.
    """
    name = type(value).__name__
    text = _KINDS[name][1](value)
    if len(text) > _MAX_TEXT:
        raise ValueError("too long")
    return [name, text]


def decode_stdlib_value(name: str, text: str) -> Any:
    """The value that `encode_stdlib_value` made this text of.

    Raises:
        ValueError: there is no such value.
    """
    found = _KINDS.get(name)
    if found is None or len(text) > _MAX_TEXT:
        raise ValueError("no known kind of value")
    try:
        return found[2](text)
    except (ArithmeticError, TypeError) as error:
        raise ValueError(str(error)) from None
