"""Tells a server that wants a pause from an account whose quota is used up: both speak of limits and of money."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

MAX_WAIT_S = 120.0
"""A pause up to this is waited for; a limit of the day that asks for more is a used-up quota."""
_USED_UP = re.compile(
    r"insufficient[_ ](quota|balance|credit|fund)|credit balance|(more|of|available) credits"
    r"|(usage|spend|spending|hard).limit|billing_not_active|limit: 0(?![\d.])|PerDay",
    re.IGNORECASE,
)
"""What no pause of minutes mends, whatever else is said beside it."""
_OF_A_MINUTE = re.compile(
    r"per[ _-]?(min|minute|sec|second)s?\b|PerMinute|PerSecond|/ ?(min|sec|s)\b|\b[TR]PM\b", re.IGNORECASE
)
_OF_A_DAY = re.compile(r"per[ _-]?day\b|/ ?day\b|\b[TR]PD\b|daily", re.IGNORECASE)
_RATE = re.compile(r"rate[_ ]limit[_ ](exceeded|error)", re.IGNORECASE)
_MONEY = re.compile(r"quota|billing|credit|upgrade|(hourly|session|weekly|monthly) (request )?limit", re.IGNORECASE)
_WAIT = re.compile(
    r"(?:\b(?:re)?try(?:ing)?(?: again)? (?:in|after)|\"retryDelay\": ?\")\s*"
    r"((?:\d{1,9}(?:\.\d{1,12})?\s?[a-z]{1,12}[\s,]{0,2}){1,3})",
    re.IGNORECASE,
)
_PART = re.compile(r"([\d.]+)\s?(ms|milliseconds?|[smhd]|secs?|seconds?|mins?|minutes?|hours?|days?)(?![a-z])", re.I)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def classify_limit(words: str, wait_s: float | None) -> Literal["quota", "busy", ""]:
    """What a refusal for a limit means: `busy` passes, `quota` does not; empty where the words speak of no limit.

    Args:
        words: all that the server said.
        wait_s: how long it asked to wait, seconds.
    """
    short = wait_s is not None and wait_s <= MAX_WAIT_S
    if _USED_UP.search(words):
        return "quota"
    if short or _OF_A_MINUTE.search(words):
        return "busy"
    if _OF_A_DAY.search(words):
        return "quota"
    if _RATE.search(words):
        return "busy"
    return "quota" if _MONEY.search(words) else ""


def read_wait(words: str, header: str | None = None) -> float | None:
    """Seconds that a server asks to wait, in its words or by `Retry-After`; the longer of the two."""
    found = [seconds for seconds in (_seconds(header), _in_words(words)) if seconds is not None]
    return max(found, default=None)


def _in_words(words: str) -> float | None:
    named = _WAIT.search(words)
    parts = _PART.findall(named[1]) if named else []
    if not parts:
        return None
    return sum(
        float(n) * (0.001 if unit.lower().startswith(("ms", "mil")) else _UNITS[unit[0].lower()]) for n, unit in parts
    )


def _seconds(retry_after: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date."""
    if not retry_after:
        return None
    try:
        return max(0.0, min(float(retry_after), 1e9))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
