"""What saved time is worth: the terms, settings and conclusions that `ceiling` and `replay` share."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from foretrace.actions.taxonomy import Effect
from foretrace.core.errors import Setting, UsageError

GUESS_S = 0.2
MIN_COVERAGE = 0.5
"""Share of steps whose times must be known for a verdict."""
WORTH_SHARE = 0.05
"""Share of the time that must be saved for speculation to be worth the trouble."""
COMMON_ACCEPTANCE, BEST_ACCEPTANCE = 0.28, 0.55
"""Shares of exactly right guesses in publications: PASTE's first guess (arXiv:2603.18897), and the best of Speculative
Actions (arXiv:2510.04371)."""
_CARRIERS, _MOST_OF_IT = 3, 0.67
"""Calls are named until they account for this share of the saving, but not more of them."""
TO_RECORD = {
    "no_model_time": "the model's seconds on every reply (`model_s`), or time stamps of its input and its reply",
    "no_tool_time": "the tool's seconds on every result (`tool_s`), or time stamps of the call and of its result",
    "no_result": "the result of every call, with its time",
    "clock_backwards": "time stamps of one clock that only goes forward",
    "absurd_time": "durations in seconds, not below 0 and not above a day",
}
"""What would have to be recorded, by the reason why a step's times are unknown."""
Verdict = Literal["known", "unknown"]
"""`unknown`: fewer than half of the steps have known times; the figures cover only those."""


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds saved of the known time; None if no times are known."""

    saved_s: float | None
    share: float | None
    low: float | None
    """Lower end of the share's 95% interval over tasks."""
    high: float | None


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What to conclude from a report."""

    worth: Literal["yes", "with_a_good_predictor", "no", "unknown"]
    acceptance: float | None = None
    """Share of the guesses that must be right and accepted to save `WORTH_SHARE` of the time; None if even 1 is not
    enough."""
    calls: list[str] = []
    """The few calls that account for most of the saving."""
    calls_share: float = 0.0
    """Share of the saving that these calls account for."""
    text: str


def choose_safe_effects(allow: Collection[str]) -> frozenset[Effect]:
    """The effects whose calls are safe to run early: `pure_read` and the allowed ones; refuses any that cannot be
    allowed."""
    for effect in allow:
        if effect not in (Effect.PURE_READ, Effect.SANDBOX_EXEC):
            why = f": is not safe to run early; what can be allowed is {Effect.SANDBOX_EXEC}"
            raise UsageError(Setting("allow", str(effect)), why)
    return frozenset((Effect.PURE_READ, *map(Effect, allow)))


def check_number(name: str, value: Any, unit: str = "", *, lowest: int = 0) -> None:
    """Refuse a setting that is neither None nor a finite number of at least `lowest`."""
    if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value) and value >= lowest):
        raise UsageError(Setting(name, value), f": give {unit}{lowest} or more")


def conclude_ceiling(share: float | None, saved_by_call: Mapping[str, float]) -> Conclusion:
    if share is None:
        return Conclusion(worth="unknown", text="no verdict: too few times are known")
    if share < WORTH_SHARE:
        text = f"not worth it: even if every guess is right, {write_share(share)} of the time is saved (less than 5%)"
        return _conclude("no", None, text, saved_by_call)
    acceptance = WORTH_SHARE / share
    if acceptance <= COMMON_ACCEPTANCE:
        worth, start = "yes", "worth it"
    elif acceptance <= BEST_ACCEPTANCE:
        worth, start = "with_a_good_predictor", "worth it only with a good predictor"
    else:
        worth, start = "no", "hardly worth it"
    text = f"{start}: 5% of the time is saved if {write_share(acceptance)} of the guesses are right and accepted"
    return _conclude(worth, acceptance, text, saved_by_call)


def conclude_replay(
    share: float | None, perfect: float | None, right: float | None, saved_by_call: Mapping[str, float], nothing: str
) -> Conclusion:
    """Conclude from the shares of the time that this predictor and a perfect one save, and the share of its guesses
    that are right where calls are safe to run early. `nothing` is the reason if nothing is saved."""
    if share is None or perfect is None:
        return Conclusion(worth="unknown", text="no verdict: too few times are known")
    acceptance = WORTH_SHARE / perfect if perfect >= WORTH_SHARE else None
    worth, start = ("yes", "worth it") if share >= WORTH_SHARE else ("no", "not worth it")
    if not share:
        return _conclude("no", acceptance, f"{start}: {nothing}", {})
    text = f"{start}: {write_share(share)} of the time is saved with {write_share(right or 0.0)} of the guesses right"
    if acceptance is None:
        text += f"; even a perfect predictor saves {write_share(perfect)}"
    elif share < WORTH_SHARE:
        in_time = write_share(share / perfect)  # in units of `acceptance`
        text += f", as much as {in_time} right and in time would give; 5% needs about {write_share(acceptance)}"
    return _conclude(worth, acceptance, text, saved_by_call)


def _conclude(worth: Any, acceptance: float | None, text: str, saved_by_call: Mapping[str, float]) -> Conclusion:
    total, calls, share = math.fsum(saved_by_call.values()), list[str](), 0.0
    for name, saved_s in sorted(saved_by_call.items(), key=lambda item: (-item[1], item[0]))[:_CARRIERS]:
        if saved_s and share < _MOST_OF_IT:
            calls.append(name)
            share += saved_s / total
    if calls:
        names, carry = ", ".join(f"`{name}`" for name in calls), "carries" if len(calls) == 1 else "carry"
        text += f"; {names} {carry} {write_share(share)} of it"
    return Conclusion(worth=worth, acceptance=acceptance, calls=calls, calls_share=share, text=text)


def write_share(share: float) -> str:
    """A share as people write it: `18%`, `1.9%`, `0%`."""
    percent = 100 * share
    return f"{percent:.0f}%" if percent >= 9.95 or percent < 0.05 else f"{percent:.1f}%"
