"""What guesses save on steps whose times are known: an event simulator, without any trace.

When a step begins, the model starts on its reply and a proposer on its guesses: what the reply will call, and with
`ahead` K what the next K - 1 replies will. A guess that is ready is launched where a slot is free, else it waits for
one, nearer steps and better guesses first. When the reply is there, a result of a right call is used, or waited for;
the other calls of the step are run as always. The model's reply is always waited for, so nothing that the agent does
changes.

A guess that is launched for a later step counts only if everything between comes as its proposer believes
(`SimulatedStep.foreseen`) and no write lies between (`state_version`): a read that a write overtakes is stale, and is
launched and paid again.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

CLOCK_S = 1e-4
"""Seconds by which the clocks that timed calls may differ."""


class GuessedCall(NamedTuple):
    """One call that may be launched before the reply of its step is known."""

    seconds: float
    """How long it runs."""
    covers: tuple[int, ...] = ()
    """Positions of the calls of its step whose result it has; none for a wrong call."""
    written_s: float = 0.0
    """Seconds of the reply that must have passed before it can be guessed (it answers to a later part of the reply)."""


class SimulatedStep(NamedTuple):
    """One step of a run of steps, all of known times."""

    model_s: float
    tool_s: float
    call_s: tuple[float | None, ...]
    """Seconds of each of its calls by itself; None where not known."""
    eligible: bool
    """Whether all its calls are safe to run early."""
    state_version: int
    """Number of writes before it."""
    proposer_s: float
    """Seconds until the guesses at it are there."""
    guesses: tuple[GuessedCall, ...] = ()
    """Different calls, the best first."""
    foreseen: bool = True
    """Whether the first guess is all that the step does; if not, what was guessed behind it is wrong."""


class Speculation(NamedTuple):
    """How guesses are run."""

    ahead: int = 1
    """Steps that are guessed at once: 1 means only the next reply."""
    slots: int | None = None
    """Guessed calls that run at one time at most; None means no limit. The agent's own calls need no slot."""
    cancel: bool = True
    """Whether a call is ended when it is known to be wrong; if not, it runs to its end and holds its slot."""
    verifier_s: float = 0.0
    """Seconds between a guess and its launch."""


class Launch(NamedTuple):
    """One call that was launched early."""

    step: int
    """Position of the step for which it was."""
    guess: int
    """Position among the guesses of that step."""
    hit: bool
    """Whether its result was used."""
    stale: bool
    """Whether a write overtook it."""
    wasted_s: float
    """Seconds that it ran for nothing."""


class SimulatedRun(NamedTuple):
    """What became of a run of steps."""

    took_s: float
    saved_s: tuple[float, ...]
    """Seconds, step by step; `took_s` and all of them together are the time without guesses."""
    launches: tuple[Launch, ...]
    """In the order in which they were launched."""
    proposals: tuple[int, ...]
    """How often each step was guessed at: once at its own beginning, and from steps before."""


class _Event(IntEnum):
    """What happens; of events at one time the lowest comes first, so that nothing is launched at a reply."""

    REPLY = 0
    FINISH = 1
    BEGIN = 2
    READY = 3


class _Key(NamedTuple):
    """Which call: two guesses of one key are one launch."""

    step: int
    guess: int
    state_version: int
    """Of the step at which it was guessed."""
    refuted_at: int
    """The step whose reply shows that it is wrong, before its own step is reached; -1 where none does."""


class _Job:
    """A call that is launched."""

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
        """By step: jobs for it that are not known to be wrong."""
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
        """The model starts on its reply, and the proposer on its guesses."""
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
        """Launch the guesses that are ready, as far as there are slots."""
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
        """Whether the replies so far show that a guess comes too late, is wrong, or was overtaken by a write."""
        if key.step <= self._replied or -1 < key.refuted_at <= self._replied:
            return True
        following = min(self._replied + 1, len(self._steps) - 1)
        return key.state_version < self._steps[following].state_version

    def _end(self, job: _Job) -> None:
        """Give back the slot of a call that still runs."""
        self._busy -= job.running
        job.running = False

    def _reply(self, step: int) -> float:
        """The reply is there: use what was right, end what was wrong. Returns when the step is over."""
        self._replied = step
        planned = self._steps[step]
        found = self._open.pop(step, [])  # those that a reply before this one refuted are no longer among them
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
    """Seconds that a step takes less, by when the calls that it makes were launched.

    With all calls launched by L and t seconds of tools it ends at max(R, L + t) and not at R + t, R being when the
    reply is there: it saves min(t, R - L). With a part of them launched, the others still take u seconds after the
    reply: it saves min(t - u, R - L). Later launches are left out where the earlier ones alone save more.
    """
    best, covered = 0.0, set[int]()
    for at, covers in sorted(launches):
        covered.update(covers)
        best = max(best, min(step.tool_s - _time_others(step, covered), replied - at))
    return best


def _time_others(step: SimulatedStep, covered: set[int]) -> float:
    """Seconds of tools that the calls of a step take which were not launched: as side by side, or as much one after
    another, as they were. All of its seconds where the time of a call by itself is not known."""
    others = [seconds for position, seconds in enumerate(step.call_s) if position not in covered]
    if not others:
        return 0.0
    known = [seconds for seconds in step.call_s if seconds is not None]
    if len(known) < len(step.call_s):
        return step.tool_s
    side_by_side = step.tool_s <= max(known) + CLOCK_S * len(known)
    left = [seconds for seconds in others if seconds is not None]
    return min(step.tool_s, max(left) if side_by_side else sum(left))
