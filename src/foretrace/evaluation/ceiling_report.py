"""The report of `ceiling`, and the sentence on whether speculation is worth it, which `replay` uses too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from foretrace.core.report import Report
from foretrace.evaluation.step_times import AssumedTimes

Verdict = Literal["known", "unknown"]
"""`unknown`: fewer than half of the steps have known times; the figures cover only those."""
WORTH_SHARE = 0.05
"""Share of the time that must be saved for speculation to be worth the trouble."""
COMMON_ACCEPTANCE, BEST_ACCEPTANCE = 0.28, 0.55
"""Shares of exactly right guesses in publications: PASTE's first guess (arXiv:2603.18897), and the best of Speculative
Actions (arXiv:2510.04371)."""
_CARRIERS = 3
_MOST_OF_IT = 0.67
"""Calls are named until they account for this share of the saving."""

Worth = Literal["yes", "with_a_good_predictor", "no", "unknown"]


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What to conclude from a report."""

    worth: Worth
    acceptance: float | None = None
    """Share of the guesses that must be right and accepted to save `WORTH_SHARE` of the time; None if even 1 is not
    enough."""
    calls: list[str] = []
    """The few calls that account for most of the saving."""
    calls_share: float = 0.0
    """Share of the saving that these calls account for."""
    text: str


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds saved of the known time; None if no times are known."""

    saved_s: float | None
    share: float | None
    low: float | None
    """Lower end of the share's 95 % interval over tasks."""
    high: float | None


class AheadCeiling(Saving, frozen=True, kw_only=True):
    """What running ahead saves."""

    stale: int
    """Launches made stale by a write."""
    repeated_s: float
    """Tool seconds that those launches wasted and that had to be spent again."""


class HeldBy(Saving, frozen=True, kw_only=True):
    """The steps whose calls can be undone in the same way, and the most that guessing these calls saves."""

    name: Literal["pure", "forkable", "none"]
    """`pure`: they only read. `forkable`: they run code or change files, as tests and builds do, which can be confined
    to a copy of the process and its files (effects `sandbox_exec` and `local_write`). `none`: they cannot be undone, or
    their effect is unknown; they are never run early and save nothing."""
    steps: int
    tool_s: float


class LongCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that took long according to its time stamps."""

    name: str
    tool_s: float
    key: str
    """Key of the trace."""
    step: int
    """Index of the agent's message in the trace."""


class StampedTime(msgspec.Struct, frozen=True, kw_only=True):
    """Tool time that is only known as the difference of the time stamps of call and result. If a person had to approve
    the call, it includes that wait, unless the source marks such calls; these have no time at all."""

    tool_s: float
    share: float | None
    """Share of all tool time; None if there is none."""
    longest: list[LongCall]
    """The longest of these calls, at most five, for a person to look at."""


class CeilingRow(msgspec.Struct, frozen=True, kw_only=True):
    """The ceiling of one source, agent or tool."""

    name: str
    steps: float
    """A step that calls several tools is divided between them by their time."""
    coverage: float
    verdict: Verdict
    wall_s: float
    model_s: float
    tool_s: float
    stamped_s: float
    """Part of the tool time that is a difference of time stamps."""
    eligible_s: float
    oracle: Saving
    ahead: dict[str, Saving]
    """Saving at this row's steps, by the number of steps guessed ahead; all steps are guessed."""


class CeilingReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """What a perfect predictor would save; seconds cover the steps with known times."""

    verdict: Verdict
    traces: int
    tasks: int
    steps: int
    known_steps: int
    coverage: float
    """Share of steps with known times."""
    wall_s: float
    """Model and tool time together, without waiting for a person."""
    model_s: float
    tool_s: float
    eligible_s: float
    """Tool time of steps all of whose calls are safe to run early."""
    oracle: Saving
    """Saving of running each step's calls while the model is still writing them."""
    ahead: dict[str, AheadCeiling]
    """Saving of running ahead, by the number of steps."""
    held_by: list[HeldBy]
    """`pure`, `forkable` and `none`, regardless of `allow`; shares are of all time."""
    stamped: StampedTime
    sources: list[CeilingRow]
    agents: list[CeilingRow]
    tools: list[CeilingRow]
    """The largest saving first."""
    unknown_steps: dict[str, int]
    """Steps with unknown times, by reason."""
    to_record: list[str]
    """What would have to be recorded for more coverage, the most frequent reason first."""
    overlaps: dict[str, int]
    """Steps with several results, by how their times were combined: `union`, or `longest` (too short if calls ran one
    after another)."""
    guess_latency: float
    assume_times: AssumedTimes | None
    assumed_steps: int
    """Steps whose times are assumed rather than measured."""
    conclusion: Conclusion
    allow: list[str]
    seed: int


_UNKNOWN = Conclusion(worth="unknown", text="no verdict: too few times are known")


def conclude_ceiling(share: float | None, saved_by_call: Mapping[str, float]) -> Conclusion:
    """Conclude from the share of the time that a perfect predictor saves (None: unknown)."""
    if share is None:
        return _UNKNOWN
    if share < WORTH_SHARE:
        text = f"not worth it: even if every guess is right, {write_share(share)} of the time is saved (less than 5 %)"
        return _conclude("no", None, text, saved_by_call)
    acceptance = WORTH_SHARE / share
    if acceptance <= COMMON_ACCEPTANCE:
        worth, start = "yes", "worth it"
    elif acceptance <= BEST_ACCEPTANCE:
        worth, start = "with_a_good_predictor", "worth it only with a good predictor"
    else:
        worth, start = "no", "hardly worth it"
    text = f"{start}: 5 % of the time is saved if {write_share(acceptance)} of the guesses are right and accepted"
    return _conclude(worth, acceptance, text, saved_by_call)


def conclude_replay(
    share: float | None, perfect: float | None, right: float | None, saved_by_call: Mapping[str, float], nothing: str
) -> Conclusion:
    """Conclude from the shares of the time that this predictor and a perfect one save, and the share of its guesses
    that are right where calls are safe to run early. `nothing` is the reason if nothing is saved."""
    if share is None or perfect is None:
        return _UNKNOWN
    acceptance = WORTH_SHARE / perfect if perfect >= WORTH_SHARE else None
    start = "worth it" if share >= WORTH_SHARE else "not worth it"
    if not share:
        return _conclude("no", acceptance, f"{start}: {nothing}", {})
    text = f"{start}: {write_share(share)} of the time is saved with {write_share(right or 0.0)} of the guesses right"
    if acceptance is None:
        text += f"; even a perfect predictor saves {write_share(perfect)}"
    elif share < WORTH_SHARE:
        text += f"; 5 % needs about {write_share(acceptance)} of them right and in time"
    return _conclude("yes" if share >= WORTH_SHARE else "no", acceptance, text, saved_by_call)


def _conclude(worth: Worth, acceptance: float | None, text: str, saved_by_call: Mapping[str, float]) -> Conclusion:
    """Make the conclusion; its sentence ends with the calls that account for most of the saving."""
    calls, share = _find_carriers(saved_by_call)
    if calls:
        names, carry = ", ".join(f"`{name}`" for name in calls), "carries" if len(calls) == 1 else "carry"
        text += f"; {names} {carry} {write_share(share)} of it"
    return Conclusion(worth=worth, acceptance=acceptance, calls=calls, calls_share=share, text=text)


def _find_carriers(saved_by_call: Mapping[str, float]) -> tuple[list[str], float]:
    total = math.fsum(saved_by_call.values())
    names: list[str] = []
    share = 0.0
    for name, saved_s in sorted(saved_by_call.items(), key=lambda item: (-item[1], item[0]))[:_CARRIERS]:
        if not saved_s or share >= _MOST_OF_IT:
            break
        names.append(name)
        share += saved_s / total
    return names, share


def write_share(share: float) -> str:
    """A share as people write it: `18 %`, `1.9 %`, `0 %`."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 9.95 or percent < 0.05 else f"{percent:.1f} %"
