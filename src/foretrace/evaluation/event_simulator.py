"""How much time guesses save on steps with known times: an event simulator that needs no traces.

When a step begins, the model starts its reply and a proposer starts guessing what the reply will call, and with `ahead`
K also what the next K - 1 replies will call. A finished guess is launched if a slot is free; otherwise it waits for
one, nearer steps and better guesses first. When the reply arrives, the result of a right call is used or waited for,
and the other calls of the step run as usual. The model's reply is always waited for, so the agent's behavior does not
change.

A guess launched for a later step counts only if all steps before it turn out as its proposer expected
(`SimulatedStep.foreseen`) and none of them writes (`state_version`): a read followed by a write is stale, and has to be
launched and paid for again.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

CLOCK_S = 1e-4
"""Tolerance in seconds between the clocks that timed the calls."""


class GuessedCall(NamedTuple):
    """One call that may be launched before the reply of its step is known."""

    seconds: float
    """Duration of the call."""
    covers: tuple[int, ...] = ()
    """Positions of the step's calls whose result it provides; empty for a wrong call."""
    written_s: float = 0.0
    """Seconds of the reply after which it can be guessed (for a call in a later part of the reply)."""


class SimulatedStep(NamedTuple):
    """One step of a run of steps, all with known times."""

    model_s: float
    tool_s: float
    call_s: tuple[float | None, ...]
    """Seconds of each of its calls on its own; None if unknown."""
    eligible: bool
    """Whether all its calls are safe to run early."""
    state_version: int
    """Number of writes before it."""
    proposer_s: float
    """Seconds until the guesses for it are ready."""
    guesses: tuple[GuessedCall, ...] = ()
    """Distinct calls, the best first."""
    foreseen: bool = True
    """Whether the first guess is exactly what the step does; if not, guesses for later steps are wrong."""


class Speculation(NamedTuple):
    """How guesses are run."""

    ahead: int = 1
    """Number of steps guessed at once; 1 means only the next reply."""
    slots: int | None = None
    """Most guessed calls that run at a time; None means no limit. The agent's own calls need no slot."""
    cancel: bool = True
    """Whether a call is ended once it is known to be wrong; otherwise it runs to its end in its slot."""
    verifier_s: float = 0.0
    """Seconds between a guess and its launch."""


class Launch(NamedTuple):
    """One call that was launched early."""

    step: int
    """Position of the step it was launched for."""
    guess: int
    """Position among the guesses of that step."""
    hit: bool
    """Whether its result was used."""
    stale: bool
    """Whether a write made it stale."""
    wasted_s: float
    """Seconds that it ran in vain."""


class SimulatedRun(NamedTuple):
    """The outcome of a run of steps."""

    took_s: float
    saved_s: tuple[float, ...]
    """Seconds saved at each step; `took_s` plus all of these is the time without guesses."""
    launches: tuple[Launch, ...]
    """In the order of launching."""
    proposals: tuple[int, ...]
    """How often each step was guessed: once when it began, and from earlier steps."""


class _Event(IntEnum):
    """Kinds of events. Of simultaneous ones the lowest comes first, so that nothing is launched at a reply."""

    REPLY = 0
    FINISH = 1
    BEGIN = 2
    READY = 3


class _Key(NamedTuple):
    """Identifies a call: guesses with equal keys are launched once."""

    step: int
    guess: int
    state_version: int
    """State version of the step at which it was guessed."""
    refuted_at: int
    """The earlier step whose reply shows that it is wrong; -1 if there is none."""


class _Job:
    """A launched call."""

    def __init__(self, key: _Key, call: GuessedCall, at: float) -> None:
        self.key, self.call, self.at = key, call, at
        self.running = True
        self.hit = self.stale = False
        self.wasted_s = 0.0


def simulate(steps: Sequence[SimulatedStep], speculation: Speculation) -> SimulatedRun:
    """Run the steps one after another, with their guesses."""
    if not any(step.guesses for step in steps):
        took_s = sum(step.model_s + step.tool_s for step in steps)
        proposals = tuple(min(number, speculation.ahead) for number in range(1, len(steps) + 1))
        return SimulatedRun(took_s, (0.0,) * len(steps), (), proposals)
    return _Simulator(steps, speculation).run()


class _Simulator:
    def __init__(self, steps: Sequence[SimulatedStep], speculation: Speculation) -> None:
        self._steps, self._speculation = steps, speculation
        self._events: list[tuple[float, int, int, _Key | _Job | int]] = []
        self._pushed = 0
        self._replied = -1
        """The last step whose reply is known."""
        self._jobs: dict[_Key, _Job] = {}
        self._open: defaultdict[int, list[_Job]] = defaultdict(list)
        """Jobs for each step that are not known to be wrong."""
        self._waiting: list[_Key] = []
        self._busy = 0
        self._saved: list[float] = []
        self._proposals = [0] * len(steps)
        self._now = 0.0

    def run(self) -> SimulatedRun:
        end = 0.0
        if self._steps:
            self._push(0.0, _Event.BEGIN, 0)
        while self._events:
            self._now, event, _, what = heapq.heappop(self._events)
            if isinstance(what, _Job):
                self._end(what)
                self._fill_slots()
            elif isinstance(what, _Key):
                heapq.heappush(self._waiting, what)
                self._fill_slots()
            elif event == _Event.BEGIN:
                self._begin(what)
            else:
                end = self._reply(what)
        launches = tuple(
            Launch(job.key.step, job.key.guess, job.hit, job.stale, job.wasted_s) for job in self._jobs.values()
        )
        return SimulatedRun(end, tuple(self._saved), launches, tuple(self._proposals))

    def _push(self, at: float, event: _Event, what: _Key | _Job | int) -> None:
        self._pushed += 1
        heapq.heappush(self._events, (at, event, self._pushed, what))

    def _begin(self, begun: int) -> None:
        """The model starts its reply, and the proposer its guesses."""
        self._push(self._now + self._steps[begun].model_s, _Event.REPLY, begun)
        proposed, refuted_at = self._now, -1
        for step in range(begun, min(begun + self._speculation.ahead, len(self._steps))):
            planned = self._steps[step]
            proposed += planned.proposer_s
            self._proposals[step] += 1
            for position, guess in enumerate(planned.guesses):
                key = _Key(step, position, self._steps[begun].state_version, refuted_at)
                written_s = guess.written_s if step == begun else 0.0
                self._push(proposed + written_s + self._speculation.verifier_s, _Event.READY, key)
            if refuted_at < 0 and not planned.foreseen:
                refuted_at = step

    def _fill_slots(self) -> None:
        """Launch waiting guesses while there are free slots."""
        slots = self._speculation.slots
        while self._waiting and (slots is None or self._busy < slots):
            key = heapq.heappop(self._waiting)
            if key in self._jobs or self._is_refuted(key):
                continue
            job = self._jobs[key] = _Job(key, self._steps[key.step].guesses[key.guess], self._now)
            self._open[key.step].append(job)
            self._busy += 1
            self._push(self._now + job.call.seconds, _Event.FINISH, job)

    def _is_refuted(self, key: _Key) -> bool:
        """Whether the replies so far show that a guess is late, wrong, or made stale by a write."""
        if key.step <= self._replied or -1 < key.refuted_at <= self._replied:
            return True
        following = min(self._replied + 1, len(self._steps) - 1)
        return key.state_version < self._steps[following].state_version

    def _end(self, job: _Job) -> None:
        """Free the slot of a call that is still running."""
        self._busy -= job.running
        job.running = False

    def _reply(self, step: int) -> float:
        """The reply has arrived: use right calls, end wrong ones. Returns the time when the step ends."""
        self._replied = step
        planned = self._steps[step]
        found = self._open.pop(step, [])  # without those that an earlier reply refuted
        right = [job for job in found if job.call.covers and planned.eligible]
        saved = _measure_saving(planned, self._now, [(job.at, job.call.covers) for job in right])
        for job in right:
            job.hit = True
        self._end_wrong(job for job in found if not job.hit)
        for jobs in self._open.values():
            wrong = [job for job in jobs if self._is_refuted(job.key)]
            for job in wrong:
                job.stale = job.key.refuted_at < 0
                jobs.remove(job)
            self._end_wrong(wrong)
        self._fill_slots()
        self._saved.append(saved)
        end = self._now + planned.tool_s - saved
        if step + 1 < len(self._steps):
            self._push(end, _Event.BEGIN, step + 1)
        return end

    def _end_wrong(self, jobs: Iterable[_Job]) -> None:
        for job in jobs:
            job.wasted_s = job.call.seconds
            if self._speculation.cancel:
                job.wasted_s = min(job.call.seconds, self._now - job.at)
                self._end(job)


def _measure_saving(step: SimulatedStep, replied: float, launches: Sequence[tuple[float, tuple[int, ...]]]) -> float:
    """Seconds that a step saves, given when its calls were launched.

    Let R be the time of the reply, t the step's tool seconds and L the time by which all calls were launched: the step
    ends at max(R, L + t) instead of R + t, which saves min(t, R - L). If some calls were not launched, they still take
    u seconds after the reply, and the saving is min(t - u, R - L). Later launches are ignored if the earlier ones alone
    save more.
    """
    best, covered = 0.0, set[int]()
    for at, covers in sorted(launches):
        covered.update(covers)
        best = max(best, min(step.tool_s - _time_others(step, covered), replied - at))
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
