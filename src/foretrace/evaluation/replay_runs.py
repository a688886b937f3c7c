"""The runs of a plan, simulated: which guesses are launched, and what each launched call came to."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from foretrace.evaluation.ceiling import GUESS_S
from foretrace.evaluation.checked_settings import choose_safe_effects
from foretrace.evaluation.event_simulator import GuessedCall, SimulatedRun, SimulatedStep, Speculation, simulate
from foretrace.evaluation.replay_plan import PlannedCall, PlannedGuess, PlannedStep, ReplayPlan
from foretrace.evaluation.replay_report import Gate, ReplaySettings


class LaunchedCall(NamedTuple):
    """One call that was launched early."""

    call: PlannedCall
    hit: bool
    """Whether its result was used."""
    stale: bool
    """Whether a write overtook it."""
    wasted_s: float
    estimate: str
    """Of what its seconds are the median (`ToolMedians.estimate`); empty where they are recorded."""


class Outcome:
    """What became of all runs."""

    def __init__(self) -> None:
        self.base: defaultdict[str, list[float]] = defaultdict(list)
        """Seconds that make up the time without guesses, by task."""
        self.saved: defaultdict[str, list[float]] = defaultdict(list)
        """Seconds that each step takes less, by task."""
        self._saved_by_call: defaultdict[str, list[float]] = defaultdict(list)
        self.took: list[float] = []
        """Seconds of each run."""
        self.launched: list[LaunchedCall] = []
        self.tokens = 0
        """That the proposer wrote."""

    def add(self, run: Sequence[PlannedStep], done: SimulatedRun) -> None:
        """Take a run, without its launches."""
        task = run[0].task
        self.base[task] += [seconds for step in run for seconds in (step.model_s, step.tool_s)]
        self.saved[task] += done.saved_s
        self.took.append(done.took_s)
        for step, saved_s in zip(run, done.saved_s, strict=True):
            for name in step.names:
                self._saved_by_call[name].append(saved_s / len(step.names))
        for step, times in zip(run, done.proposals, strict=True):
            self.tokens += times * sum(guess.prediction.tokens or 0 for guess in step.guesses)

    @property
    def saved_s(self) -> float:
        return math.fsum(seconds for each in self.saved.values() for seconds in each)

    @property
    def saved_by_call(self) -> dict[str, float]:
        """Seconds by the names of the calls of each step, in equal parts."""
        return {name: math.fsum(each) for name, each in self._saved_by_call.items()}

    @property
    def base_s(self) -> float:
        return math.fsum(seconds for each in self.base.values() for seconds in each)

    @property
    def remaining_s(self) -> float:
        return math.fsum(self.took)

    @property
    def wasted_s(self) -> float:
        return math.fsum(each.wasted_s for each in self.launched)

    @property
    def hits(self) -> int:
        return sum(each.hit for each in self.launched)


class ReplayRuns:
    """Simulates the runs of a plan, for one threshold or with the true calls."""

    def __init__(self, plan: ReplayPlan, settings: ReplaySettings, gate: Gate | None) -> None:
        self._plan, self._settings, self._gate = plan, settings, gate
        self._safe = choose_safe_effects(settings.allow)

    def list_steps(self) -> Iterator[PlannedStep]:
        """The steps of all runs."""
        return (step for run in self._plan.runs for step in run)

    def is_eligible(self, step: PlannedStep) -> bool:
        """Whether all that a step calls is safe to run early."""
        return step.effect in self._safe

    def is_safe(self, guess: PlannedGuess) -> bool:
        """Whether all that a guess would launch is safe to run early."""
        return guess.effect in self._safe

    def find_guess_s(self, step: PlannedStep) -> float:
        """Seconds until the guesses at a step are there."""
        if self._settings.guess_latency is not None:
            return self._settings.guess_latency
        return GUESS_S if step.proposer_s is None else step.proposer_s

    def reaches(self, guess: PlannedGuess, threshold: float | None) -> bool:
        """Whether a guess may be launched at a threshold."""
        value = self.find_gate_value(guess)
        return threshold is None or (value is not None and value >= threshold)

    def find_gate_value(self, guess: PlannedGuess) -> float | None:
        """What a threshold is held against."""
        return guess.prediction.score if self._gate == "score" else guess.prediction.confidence

    def simulate(self, threshold: float | None) -> Outcome:
        """Run all with the guesses that reach the threshold, or with all of them."""
        settings, outcome = self._settings, Outcome()
        speculation = Speculation(settings.ahead, settings.parallel, settings.cancel, settings.verifier_s or 0.0)
        for run in self._plan.runs:
            chosen = [self._choose_calls(step, threshold) for step in run]
            times = [[self._find_seconds(call) for call in calls] for calls in chosen]
            steps = [
                self._make_step(
                    step,
                    (GuessedCall(s, call.covers, call.written_s) for call, (s, _) in zip(calls, timed, strict=True)),
                )
                for step, calls, timed in zip(run, chosen, times, strict=True)
            ]
            done = simulate(steps, speculation)
            outcome.add(run, done)
            for launch in done.launches:
                call, (_, estimate) = chosen[launch.step][launch.guess], times[launch.step][launch.guess]
                outcome.launched.append(LaunchedCall(call, launch.hit, launch.stale, launch.wasted_s, estimate))
        return outcome

    def simulate_oracle(self) -> Outcome:
        """Run all with the true calls as guesses, without a limit on parallel calls and without a verifier."""
        outcome = Outcome()
        for run in self._plan.runs:
            steps: list[SimulatedStep] = []
            for step in run:
                own = enumerate(step.call_s) if self.is_eligible(step) else ()
                guesses = (GuessedCall(step.tool_s if s is None else s, (position,)) for position, s in own)
                steps.append(self._make_step(step, guesses)._replace(foreseen=True))
            outcome.add(run, simulate(steps, Speculation(self._settings.ahead)))
        return outcome

    def count_unsafe(self, launched: Sequence[LaunchedCall]) -> int:
        """Hold each launched call by itself against the safe effects once more: the count is 0.

        Raises:
            AssertionError: one was not safe, which no setting can lead to.
        """
        unsafe = [each.call.call for each in launched if each.call.effect not in self._safe]
        if unsafe:
            raise AssertionError(f"{len(unsafe)} calls that are not safe were launched early, first {unsafe[0]}")
        return len(unsafe)

    def _choose_calls(self, step: PlannedStep, threshold: float | None) -> list[PlannedCall]:
        """The different calls of the guesses that may be launched, the best first."""
        calls: dict[tuple[int, tuple[str, ...]], PlannedCall] = {}
        for guess in step.guesses:
            if self.reaches(guess, threshold) and self.is_safe(guess):
                for call in guess.calls:
                    calls.setdefault((call.message, call.key), call)
        return [*calls.values()]

    def _make_step(self, step: PlannedStep, guesses: Iterator[GuessedCall]) -> SimulatedStep:
        return SimulatedStep(
            model_s=step.model_s,
            tool_s=step.tool_s,
            call_s=step.call_s,
            eligible=self.is_eligible(step),
            state_version=step.state_version,
            proposer_s=self.find_guess_s(step),
            guesses=tuple(guesses),
            foreseen=step.foreseen,
        )

    def _find_seconds(self, call: PlannedCall) -> tuple[float, str]:
        """How long a guessed call runs, and of what that is the median; of nothing where it is recorded."""
        return (call.seconds, "") if call.seconds is not None else self._plan.medians.estimate(call.call)
