"""Plain values that are similar to a given one, but not equal to it."""

from __future__ import annotations

from typing import Any

_DIGITS, _LETTERS = "0123456789", "abcdefghijklmnopqrstuvwxyz"


class NoDecoyError(Exception):
    """No similar value is known."""


def vary(value: Any, random: Any) -> Any:
    """Another value of the same type, near the given one.

    Args:
        random: a `random.Random`, or the module.

    Raises:
        NoDecoyError: none is known.
    """
    kind = type(value)
    if kind is bool:
        return not value
    if value is None:
        return random.choice([0, "", "none", False, []])
    if kind in (int, float, complex):
        step = (
            random.choice([1, 2, 3, 7, 10, 100]) if kind is not float else random.choice([0.75, 1.0, 2.5, 10.0, 100.0])
        )
        return value + random.choice([-1, 1]) * step * (max(1.0, abs(value)) if kind is float else 1)
    if kind is str:
        return _vary_text(value, random)
    if kind in (bytes, bytearray):
        return value + bytes([random.randrange(97, 122)])
    if kind in (list, tuple):
        return kind(_vary_items(list(value), random))
    if kind in (set, frozenset):
        items = list(value)
        while (other := vary(random.choice(items), random) if items else random.randrange(1000)) in value:
            pass
        return kind([*items, other])
    if kind is dict:
        key = random.choice(list(value)) if value else random.randrange(100)
        return {**value, key: vary(value[key], random) if value else 1}
    if kind is range:
        return range(value.start, value.stop + value.step * 2, value.step)
    if kind.__name__ in ("Decimal", "Fraction"):
        return value + random.choice([1, 2, -3])
    if kind.__name__ in ("date", "datetime", "timedelta"):
        from datetime import timedelta

        return value + timedelta(days=random.choice([1, -1, 40]))
    raise NoDecoyError


def _vary_text(value: str, random: Any) -> str:
    if not value:
        return str(random.choice("abcxyz"))
    at = random.randrange(len(value))
    other = random.choice([c for c in (_DIGITS if value[at].isdigit() else _LETTERS) if c != value[at].lower()])
    return value[:at] + other + value[at + (random.random() < 0.7) :]


def _vary_items(items: list[Any], random: Any) -> list[Any]:
    if items and random.random() < 0.8:
        at = random.randrange(len(items))
        return [*items[:at], vary(items[at], random), *items[at + 1 :]]
    return [*items, vary(items[-1], random) if items else random.randrange(100)]
