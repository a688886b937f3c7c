"""Whether speculation is worth it, from what it saves: one sentence, with the thresholds it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

WORTH_SHARE = 0.05
"""Share of the time that must be saved for speculation to be worth its trouble."""
COMMON_ACCEPTANCE, BEST_ACCEPTANCE = 0.28, 0.55
"""Shares of exactly right guesses in publications: PASTE's first guess (arXiv:2603.18897), and the best of Speculative
Actions (arXiv:2510.04371)."""
_CARRIERS = 3
_MOST_OF_IT = 0.67
"""Calls are named until they carry this share of the saving."""


Worth = Literal["yes", "with_a_good_predictor", "no", "unknown"]


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of a report."""

    worth: Worth
    acceptance: float | None = None
    """Share of the guesses that must be right and accepted to save `WORTH_SHARE` of the time; None where even 1 does
    not."""
    calls: list[str] = []
    """The few calls that carry most of the saving."""
    calls_share: float = 0.0
    """Of the saving."""
    text: str


_UNKNOWN = Conclusion(worth="unknown", text="no verdict: too few times are known")


def conclude_ceiling(share: float | None, saved_by_call: Mapping[str, float]) -> Conclusion:
    """From the share of the time that a perfect predictor saves (None: unknown)."""
    if share is None:
        return _UNKNOWN
    if share < WORTH_SHARE:
        text = f"not worth it: even if every guess is right, {_write(share)} of the time is saved (less than 5 %)"
        return _conclude("no", None, text, saved_by_call)
    acceptance = WORTH_SHARE / share
    if acceptance <= COMMON_ACCEPTANCE:
        worth, start = "yes", "worth it"
    elif acceptance <= BEST_ACCEPTANCE:
        worth, start = "with_a_good_predictor", "worth it only with a good predictor"
    else:
        worth, start = "no", "hardly worth it"
    text = f"{start}: 5 % of the time is saved if {_write(acceptance)} of the guesses are right and accepted"
    return _conclude(worth, acceptance, text, saved_by_call)


def conclude_replay(
    share: float | None, perfect: float | None, right: float | None, saved_by_call: Mapping[str, float], nothing: str
) -> Conclusion:
    """From the shares of the time that this predictor and a perfect one save, and the share of its guesses that is
    right where a call is safe to run early; `nothing` says why nothing is saved."""
    if share is None or perfect is None:
        return _UNKNOWN
    acceptance = WORTH_SHARE / perfect if perfect >= WORTH_SHARE else None
    start = "worth it" if share >= WORTH_SHARE else "not worth it"
    if not share:
        return _conclude("no", acceptance, f"{start}: {nothing}", {})
    text = f"{start}: {_write(share)} of the time is saved with {_write(right or 0.0)} of the guesses right"
    if acceptance is None:
        text += f"; even a perfect predictor saves {_write(perfect)}"
    elif share < WORTH_SHARE:
        text += f"; 5 % needs about {_write(acceptance)} of them right and in time"
    return _conclude("yes" if share >= WORTH_SHARE else "no", acceptance, text, saved_by_call)


def _conclude(worth: Worth, acceptance: float | None, text: str, saved_by_call: Mapping[str, float]) -> Conclusion:
    """The sentence ends with the calls that carry the saving."""
    calls, share = _find_carriers(saved_by_call)
    if calls:
        names, carry = ", ".join(f"`{name}`" for name in calls), "carries" if len(calls) == 1 else "carry"
        text += f"; {names} {carry} {_write(share)} of it"
    return Conclusion(worth=worth, acceptance=acceptance, calls=calls, calls_share=share, text=text)


def _find_carriers(saved_by_call: Mapping[str, float]) -> tuple[list[str], float]:
    total = sum(saved_by_call.values())
    names: list[str] = []
    share = 0.0
    for name, saved_s in sorted(saved_by_call.items(), key=lambda item: (-item[1], item[0]))[:_CARRIERS]:
        if not saved_s or share >= _MOST_OF_IT:
            break
        names.append(name)
        share += saved_s / total
    return names, share


def _write(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 9.95 or percent < 0.05 else f"{percent:.1f} %"
