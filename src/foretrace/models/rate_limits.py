"""Reads from a refusal how long to wait, and whether a wait helps: busy servers and used-up quotas are worded alike."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

MAX_WAIT_S = 120.0
"""Longest wait that a server may ask for; one that asks for more is not waited for."""
_USED_UP = re.compile(
    r"insufficient[_ ](quota|balance|credit|fund)|credit balance|(more|of|available) credits"
    r"|(usage|spend|spending|hard).limit|billing_not_active|limit: 0(?![\d.])|PerDay",
    re.IGNORECASE,
)
"""A used-up quota, whatever else the message says."""
_PER_MINUTE = re.compile(
    r"per[ _-]?(min|minute|sec|second)s?\b|PerMinute|PerSecond|/ ?(min|sec|s)\b|\b[TR]PM\b", re.IGNORECASE
)
_PER_DAY = re.compile(r"per[ _-]?day\b|/ ?day\b|\b[TR]PD\b|daily", re.IGNORECASE)
_RATE = re.compile(r"rate[_ ]limit[_ ](exceeded|error)", re.IGNORECASE)
_MONEY = re.compile(r"quota|billing|credit|upgrade|(hourly|session|weekly|monthly) (request )?limit", re.IGNORECASE)
_WAIT = re.compile(
    r"(?:\b(?:re)?try(?:ing)?(?: again)? (?:in|after)|\"retryDelay\": ?\")\s*"
    r"((?:\d{1,9}(?:\.\d{1,12})?\s?[a-z]{1,12}[\s,]{0,2}){1,3})",
    re.IGNORECASE,
)
_PART = re.compile(r"([\d.]+)\s?(ms|milliseconds?|[smhd]|secs?|seconds?|mins?|minutes?|hours?|days?)(?![a-z])", re.I)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def classify_limit(text: str, wait_s: float | None) -> Literal["quota", "busy", ""]:
    """What a refusal means: `busy` passes, `quota` does not; empty where the text names no limit.

    Args:
        text: The whole answer of the server.
        wait_s: How long it asks to wait.
    """
    short = wait_s is not None and wait_s <= MAX_WAIT_S
    if _USED_UP.search(text):
        return "quota"
    if short or _PER_MINUTE.search(text):
        return "busy"
    if _PER_DAY.search(text):
        return "quota"
    if _RATE.search(text):
        return "busy"
    return "quota" if _MONEY.search(text) else ""


def read_wait(text: str, header: str | None = None) -> float | None:
    """Seconds that a server asks to wait, in its text or by its header `Retry-After`; the longer of the two."""
    found = [seconds for seconds in (_parse_retry_after(header), _parse_wait(text)) if seconds is not None]
    return max(found, default=None)


def _parse_wait(text: str) -> float | None:
    named = _WAIT.search(text)
    parts = _PART.findall(named[1]) if named else []
    if not parts:
        return None
    return sum(
        float(n) * (0.001 if unit.lower().startswith(("ms", "mil")) else _UNITS[unit[0].lower()]) for n, unit in parts
    )


def _parse_retry_after(retry_after: str | None) -> float | None:
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
