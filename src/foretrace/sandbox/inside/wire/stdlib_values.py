"""Values of the standard library that are sent as text: decimals, fractions, times and their zones, addresses, paths
that are no files."""

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


def _read_date(name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        import datetime

        return getattr(datetime, name).fromisoformat(text)

    return read


def _write_datetime(value: Any) -> str:
    zone = value.tzinfo
    if zone is None or type(zone).__name__ != "ZoneInfo":
        return value.isoformat()
    return f"{value.replace(tzinfo=None).isoformat()} {value.fold} {_write_zone_name(zone)}"


def _read_datetime(text: str) -> Any:
    from datetime import datetime

    moment, *zone = text.split(" ", 2)
    value = datetime.fromisoformat(moment)
    return value.replace(fold=int(zone[0]), tzinfo=_read_zone_name(zone[1])) if zone else value


def _write_zone_name(zone: Any) -> str:
    if type(zone.key) is not str:
        raise ValueError("a zone without a name")
    return zone.key


def _read_zone_name(text: str) -> Any:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(text)
    except (LookupError, OSError) as error:
        raise ValueError(str(error)) from None


def _read_path(name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        import pathlib

        return getattr(pathlib, name)(text)

    return read


def _read_delta(text: str) -> Any:
    from datetime import timedelta

    days, seconds, microseconds = map(int, text.split())
    return timedelta(days, seconds, microseconds)


def _read_uuid(text: str) -> Any:
    from uuid import UUID

    return UUID(hex=text)


def _write_zone(zone: Any) -> str:
    offset, *name = zone.__getinitargs__()
    return " ".join([str(offset.days), str(offset.seconds), str(offset.microseconds), *name])


def _read_zone(text: str) -> Any:
    from datetime import timedelta, timezone

    days, seconds, microseconds, *name = text.split(" ", 3)
    return timezone(timedelta(int(days), int(seconds), int(microseconds)), *name)


def _read_address(name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        import ipaddress

        return getattr(ipaddress, name)(text)

    return read


_ADDRESSES = [f"IPv{version}{kind}" for version in (4, 6) for kind in ("Address", "Network", "Interface")]
_KINDS: dict[str, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    "Decimal": ("decimal", _write_decimal, _read_decimal),
    "Fraction": ("fractions", lambda v: f"{v.numerator:x}/{v.denominator:x}", _read_fraction),
    "date": ("datetime", lambda v: v.isoformat(), _read_date("date")),
    "time": ("datetime", lambda v: v.isoformat(), _read_date("time")),
    "datetime": ("datetime", _write_datetime, _read_datetime),
    "timedelta": ("datetime", lambda v: f"{v.days} {v.seconds} {v.microseconds}", _read_delta),
    "timezone": ("datetime", _write_zone, _read_zone),
    **{name: ("ipaddress", str, _read_address(name)) for name in _ADDRESSES},
    "ZoneInfo": ("zoneinfo", _write_zone_name, _read_zone_name),
    **{name: ("pathlib", str, _read_path(name)) for name in ("PurePosixPath", "PureWindowsPath")},
    "UUID": ("uuid", lambda v: v.hex, _read_uuid),
}
"""By type name: its module, what makes text of a value, and what reads the text."""


def is_stdlib_value(value: Any) -> bool:
    """Whether the value is of one of these types, exactly."""
    return is_stdlib_class(type(value))


def is_stdlib_class(kind: type) -> bool:
    """Whether it is one of these types."""
    found = _KINDS.get(kind.__name__)
    return found is not None and getattr(sys.modules.get(found[0]), kind.__name__, None) is kind


def encode_stdlib_value(value: Any) -> list[str]:
    """Type name and text of a value of one of these types.

    Raises:
        ValueError: too long.
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
    except (ArithmeticError, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None
