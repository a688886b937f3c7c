"""How much time guesses save on steps with known times; needs no traces.

When a step begins, the model starts its reply and a proposer starts guessing what the reply will call, and with `ahead`
K also what the next K - 1 replies will call. A guess is launched as soon as it is ready. When the reply arrives, the
result of a right call is used or waited for, wrong calls are ended, and the other calls of the step run as usual. The
model's reply is always waited for, so the agent's behavior does not change.

A guess launched for a later step counts only if all steps before it turn out as its proposer expected
(`SimulatedStep.foreseen`) and none of them writes (`state_version`): a read followed by a write is stale, and has to be
launched and paid for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

CLOCK_S = 1e-4
"""Tolerance in seconds between the clocks that timed the calls."""


class GuessedCall(NamedTuple):
    """One call that may be launched before the reply of its step is known."""

    seconds: float
    covers: tuple[int, ...] = ()
    """Positions of the step's calls whose result it provides; empty for a wrong call."""
    written_s: float = 0.0
    """Seconds of the reply after which it can be guessed (for a call in a later part of the reply)."""
    estimate: str = ""
    """Of which calls its seconds are the median (`ToolMedians.estimate`); empty if they were recorded."""


class SimulatedStep(NamedTuple):
    """One step of a run of steps, all with known times."""

    model_s: float
    tool_s: float
    call_s: tuple[float | None, ...]
    """Seconds of each of its calls on its own; None if unknown."""
    eligible: bool
    """Whether all its calls are safe to run early."""
    state_version: int
    proposer_s: float
    """Seconds until the guesses for it are ready."""
    guesses: tuple[GuessedCall, ...] = ()
    """Distinct calls, the best first."""
    foreseen: bool = True
    """Whether the first guess is exactly what the step does; if not, guesses for later steps are wrong."""


def guess_true_calls(step: SimulatedStep) -> SimulatedStep:
    """The step as a perfect predictor sees it: its own calls are guessed, if they are safe to run early."""
    own = GuessedCall(step.tool_s, tuple(range(len(step.call_s))))
    return step._replace(guesses=(own,) if step.eligible and step.tool_s else (), foreseen=True)


class Launch(NamedTuple):
    """One call that was launched early."""

    step: int
    """Position of the step it was launched for."""
    guess: int
    hit: bool
    stale: bool
    """Whether a write made it stale."""
    wasted_s: float


class SimulatedRun(NamedTuple):
    """The outcome of a run of steps."""

    took_s: float
    saved_s: tuple[float, ...]
    """Seconds saved at each step; `took_s` plus all of these is the time without guesses."""
    launches: tuple[Launch, ...]
    """In the order in which their outcome was known."""


class _Key(NamedTuple):
    """Identifies a call: guesses with equal keys are launched once."""

    step: int
    guess: int
    state_version: int
    """State version of the step at which it was guessed."""
    refuted_at: int
    """The step whose reply shows that it is wrong; the number of steps if there is none."""


def simulate(steps: Sequence[SimulatedStep], ahead: int = 1, verifier_s: float = 0.0) -> SimulatedRun:
    """Run the steps one after another, with the guesses for the next `ahead` replies made at once, and `verifier_s`
    between a guess and its launch."""
    now = 0.0
    saved: list[float] = []
    launches: list[Launch] = []
    begins: dict[_Key, float] = {}
    """When each guess that no reply has refuted is launched."""
    for at, step in enumerate(steps):
        proposed, refuted_at = now, len(steps)
        for later in range(at, min(at + ahead, len(steps))):
            proposed += steps[later].proposer_s
            for number, guess in enumerate(steps[later].guesses):
                key = _Key(later, number, step.state_version, refuted_at)
                ready = proposed + (guess.written_s if later == at else 0.0) + verifier_s
                begins[key] = min(ready, begins.get(key, ready))
            if refuted_at == len(steps) and not steps[later].foreseen:
                refuted_at = later
        replied = now + step.model_s
        right = {
            key: begin
            for key, begin in begins.items()
            if key.step == at and begin < replied and step.eligible and steps[at].guesses[key.guess].covers
        }
        saved.append(
            _measure_saving(step, [(replied - begin, step.guesses[key.guess].covers) for key, begin in right.items()])
        )
        version = steps[at + 1].state_version if at + 1 < len(steps) else step.state_version
        for key, begin in [*begins.items()]:
            if key.step > at and key.refuted_at > at and key.state_version >= version:
                continue
            del begins[key]
            if begin < replied:
                wasted_s = 0.0 if key in right else min(steps[key.step].guesses[key.guess].seconds, replied - begin)
                stale = key.step > at and key.refuted_at == len(steps)  # nothing else was wrong with it
                launches.append(Launch(key.step, key.guess, key in right, stale, wasted_s))
        now = replied + step.tool_s - saved[-1]
    return SimulatedRun(now, tuple(saved), tuple(launches))


def _measure_saving(step: SimulatedStep, launches: Sequence[tuple[float, tuple[int, ...]]]) -> float:
    """Seconds that a step saves, given its right calls, and how long before the reply each was launched.

    If all calls were launched at least a seconds before the reply, the step's t tool seconds end min(t, a) earlier. If
    some calls were not launched, they still take u seconds after the reply, and the saving is min(t - u, a). Later
    launches are ignored if the earlier ones alone save more.
    """
    best, covered = 0.0, set[int]()
    for before_s, covers in sorted(launches, key=lambda launch: (-launch[0], launch[1])):
        covered.update(covers)
        best = max(best, min(step.tool_s - _time_others(step, covered), before_s))
    return best


def _time_others(step: SimulatedStep, covered: set[int]) -> float:
    """Tool seconds of the step's calls that were not launched: their maximum if the step's calls ran in parallel, else
    their sum. All of the step's tool seconds if the time of one call is unknown."""
    others = [seconds for position, seconds in enumerate(step.call_s) if position not in covered]
    if not others:
        return 0.0
    known = [seconds for seconds in step.call_s if seconds is not None]
    if len(known) < len(step.call_s):
        return step.tool_s
    side_by_side = step.tool_s <= max(known) + CLOCK_S * len(known)
    left = [seconds for seconds in others if seconds is not None]
    return min(step.tool_s, max(left) if side_by_side else sum(left))
