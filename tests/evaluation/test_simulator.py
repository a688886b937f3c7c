"""The simulator: closed forms, what writes and wrong guesses do, and laws that hold for all times."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.evaluation.simulator import GuessedCall, SimulatedRun, SimulatedStep, guess_true_calls, simulate

RIGHT = (0,)


def step(
    model_s: float,
    tool_s: float,
    *guesses: GuessedCall,
    g: float = 0.0,
    eligible: bool = True,
    version: int = 0,
    foreseen: bool | None = None,
) -> SimulatedStep:
    """A step of one call; foreseen where its first guess is right."""
    known = bool(guesses) and bool(guesses[0].covers) if foreseen is None else foreseen
    return SimulatedStep(model_s, tool_s, (tool_s,), eligible, version, g, guesses, known)


def save(run: SimulatedRun) -> float:
    return math.fsum(run.saved_s)


def test_a_verifier_delays_the_launch() -> None:
    assert simulate([step(5.0, 9.0, GuessedCall(9.0, RIGHT), g=1.0)], verifier_s=1.5).saved_s == (2.5,)
    late = simulate([step(5.0, 9.0, GuessedCall(9.0, RIGHT), g=4.0)], verifier_s=1.0)
    assert late.saved_s == (0.0,) and late.launches == (), "nothing is launched at the reply"
    assert simulate([]) == SimulatedRun(0, (), ())


def test_a_read_that_a_write_overtakes_is_paid_again() -> None:
    right = GuessedCall(6.0, RIGHT)
    steps = [step(4.0, 1.0, eligible=False, foreseen=True), step(1.0, 6.0, right, version=1)]
    run = simulate(steps, ahead=2)
    assert run.saved_s == (0.0, 1.0)
    assert [(each.hit, each.stale, each.wasted_s) for each in run.launches] == [(False, True, 4.0), (True, False, 0.0)]
    fresh = simulate([steps[0], step(1.0, 6.0, right)], ahead=2)
    assert fresh.saved_s == (0.0, 6.0) and len(fresh.launches) == 1


def test_a_guess_behind_a_wrong_one_is_wrong() -> None:
    steps = [step(4.0, 1.0, GuessedCall(1.0)), step(1.0, 6.0, GuessedCall(6.0, RIGHT))]
    run = simulate(steps, ahead=2)
    assert run.saved_s == (0.0, 1.0), "guessed anew at its own step"
    assert [(each.step, each.hit, each.stale, each.wasted_s) for each in run.launches] == [
        (0, False, False, 1.0),
        (1, False, False, 4.0),
        (1, True, False, 0.0),
    ]


@pytest.mark.parametrize(
    ("own", "tool_s", "covers", "saved"),
    [
        ((3.0, 1.0), 3.0, (0, 1), 3.0), ((3.0, 1.0), 3.0, (0,), 2.0), ((3.0, 1.0), 3.0, (1,), 0.0),
        ((3.0, 1.0), 4.0, (0,), 3.0), ((3.0, 1.0), 4.0, (1,), 1.0), ((2.0, 1.0, 1.0), 4.0, (0,), 2.0),
        ((8.0, 2.0), 10.0, (0,), 5.0), ((None, None), 4.0, (0,), 0.0), ((None, None), 4.0, (0, 1), 4.0),
    ],
)  # fmt: skip
def test_a_part_of_parallel_calls_saves_what_no_longer_is_waited_for(
    own: tuple[float | None, ...], tool_s: float, covers: tuple[int, ...], saved: float
) -> None:
    guesses = tuple(GuessedCall(own[c] or tool_s, (c,)) for c in covers)
    assert simulate([SimulatedStep(5.0, tool_s, own, True, 0, 0.0, guesses)]).saved_s == (saved,)


seconds = st.floats(0.001, 100, allow_subnormal=False)
guessed = st.builds(GuessedCall, seconds, st.sampled_from([(), (), RIGHT]), st.just(0.0))


@st.composite
def runs(draw: st.DrawFn) -> list[SimulatedStep]:
    made: list[SimulatedStep] = []
    version = 0
    for _ in range(draw(st.integers(1, 8))):
        writes = draw(st.sampled_from([False, False, True]))
        guesses, g = draw(st.lists(guessed, max_size=3)), draw(st.floats(0, 5, allow_subnormal=False))
        made.append(step(draw(seconds), draw(seconds), *guesses, g=g, eligible=not writes, version=version))
        version += writes
    return made


@given(runs(), st.integers(1, 4), st.sampled_from([0.0, 0.5]))
@settings(max_examples=100)
def test_saved_and_remaining_are_all_and_no_guesses_beat_the_true_calls(
    steps: list[SimulatedStep], ahead: int, verifier_s: float
) -> None:
    run = simulate(steps, ahead, verifier_s)
    base = math.fsum(each.model_s + each.tool_s for each in steps)
    assert run.took_s + save(run) == pytest.approx(base, rel=1e-9)
    assert all(0 <= saved <= each.tool_s + 1e-9 for saved, each in zip(run.saved_s, steps, strict=True))
    assert run.took_s >= simulate([*map(guess_true_calls, steps)], ahead).took_s - 1e-6
    for each in run.launches:
        assert 0 <= each.wasted_s <= steps[each.step].guesses[each.guess].seconds and not (each.hit and each.wasted_s)
    wrong = [
        each._replace(guesses=tuple(guess._replace(covers=()) for guess in each.guesses), foreseen=False)
        for each in steps
    ]
    assert save(simulate(wrong, ahead, verifier_s)) == 0


def save_by_formula(steps: list[SimulatedStep], ahead: int, g: float) -> list[float]:
    """S[j + 1] = min(S[j] + m + t, max(S[j] + m, L + t)), L being the earliest launch without a write behind it."""
    starts, saved = [0.0], list[float]()
    for j, step in enumerate(steps):
        replied = starts[j] + step.model_s
        end = replied + step.tool_s
        if step.eligible:
            window = [i for i in range(max(0, j - ahead + 1), j + 1) if steps[i].state_version == step.state_version]
            end = min(end, max(replied, min(starts[i] + (j - i + 1) * g for i in window) + step.tool_s))
        starts.append(end)
        saved.append(replied + step.tool_s - end)
    return saved


@given(runs(), st.integers(1, 5))
@settings(max_examples=100)
def test_the_true_calls_save_what_the_formula_says(steps: list[SimulatedStep], ahead: int) -> None:
    g = steps[0].proposer_s
    steps = [each._replace(proposer_s=g) for each in map(guess_true_calls, steps)]
    found = simulate(steps, ahead).saved_s
    assert found == pytest.approx(save_by_formula(steps, ahead, g), abs=1e-9)
    assert math.fsum(found) <= save(simulate(steps, ahead + 1)) + 1e-6, "one more never saves less"
