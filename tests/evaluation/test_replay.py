"""Replay on traces: planted predictors are measured as what they are; what is safe, meets, or is refused."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.any_traces import traces as any_traces
from evaluation.planted import make_file, plant
from evaluation.timed import DEPLOY, READ, RUN, WRITE, Timed, make, make_trace
from foretrace.actions.label_steps import classify_calls, label_trace
from foretrace.api.evaluation import ceiling as measure_ceiling
from foretrace.core.errors import PredictionError, UsageError
from foretrace.core.predictions import PredictedCall, Prediction, PredictionsFile, PredictionsHeader
from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.evaluation.replay import replay_traces
from foretrace.evaluation.replay_report import ReplayReport, ReplaySettings
from foretrace.evaluation.step_times import read_assumed_times, time_steps

FIRST = 1
"""Index of the first step's message in a trace of `make_trace`."""


def replay(traces: list[Trace], predictions: PredictionsFile, **options: Any) -> ReplayReport:
    return replay_traces(traces, predictions, ReplaySettings(**options))


def reads(count: int, *, tasks: int = 1, model_s: float = 5.0, tool_s: float = 2.0) -> list[Trace]:
    return [make_trace([Timed(model_s, tool_s)] * count, key=f"k{n}", task=f"t{n}") for n in range(tasks)]


def guess(*calls: tuple[str, dict[str, Any]], step: int = FIRST, rank: int = 1, **fields: Any) -> Prediction:
    made = tuple(PredictedCall(name, json.dumps(arguments)) for name, arguments in calls)
    return Prediction(key="k", step=step, rank=rank, action="tool_call", calls=made, **fields)


@pytest.mark.parametrize("hits", [0, 2, 7, 10])
def test_a_planted_hit_rate_gives_the_formula(hits: int) -> None:
    m, t, g = 5.0, 2.0, 0.5
    traces = reads(50, tasks=4)
    found = replay(traces, plant(traces, lambda n: n % 10 < hits, lambda n: {"seconds": g}))
    saved = 200 * hits / 10 * min(m - g, t)
    assert (found.base_s, found.verdict, found.coverage) == (1400.0, "known", 1.0)
    assert found.saved_s == pytest.approx(saved, abs=1e-9)
    assert found.share == pytest.approx(saved / 1400, abs=1e-9)
    assert found.remaining_s == pytest.approx(1400 - saved, abs=1e-9)
    assert found.speedup == pytest.approx(1400 / (1400 - saved), abs=1e-9)
    assert (found.launched, found.hits) == (200, 20 * hits)
    assert found.wasted_s == pytest.approx((200 - 20 * hits) * t), "the median of the tool is 2 s"
    assert found.hit_rate == found.eligible_hit_rate == pytest.approx(hits / 10)
    assert found.oracle.saved_s == pytest.approx(200 * min(m - g, t), abs=1e-9)


@pytest.mark.parametrize("ahead", [1, 3])
def test_the_oracle_is_the_ceiling(ahead: int) -> None:
    draw = random.Random(ahead)
    calls: list[Any] = [READ, READ, READ, RUN, WRITE, DEPLOY]
    traces = [
        make_trace(
            [Timed(draw.uniform(0.1, 9), draw.uniform(0, 9), draw.choice(calls)) for _ in range(30)],
            key=f"k{n}",
            task=f"t{n % 7}",
        )
        for n in range(8)
    ]
    found = replay(traces, plant(traces), ahead=ahead, guess_latency=0.3, allow=("sandbox_exec",))
    ceiling = measure_ceiling(traces, guess_latency=0.3, allow=["sandbox_exec"])
    expected = ceiling.ahead[str(ahead)]
    assert found.oracle.saved_s == pytest.approx(expected.saved_s, abs=1e-9)
    assert (found.oracle.low, found.oracle.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert found.base_s == pytest.approx(ceiling.wall_s) and found.tool_s == pytest.approx(ceiling.tool_s)
    assert found.saved_s == pytest.approx(found.oracle.saved_s, abs=1e-9), "a predictor that is always right"
    assert found.refused > 0
    how: dict[str, Any] = {"ahead": ahead, "guess_latency": 0.3, "allow": ("sandbox_exec",), "verifier_s": 1.0}
    wrong = replay(traces, plant(traces, lambda n: False), **how)
    assert wrong.oracle == found.oracle and wrong.saved_s == 0, "whatever the guesses and the verifier are"


def test_a_planted_predictor_is_measured_as_what_it_is() -> None:
    """Hit rate .7; confidence .9 where it is right in 8 of 10 and .3 where it is right in 2 of 4; latencies."""
    traces = reads(70, tasks=4)

    def right(n: int) -> bool:
        return n % 14 in range(8) or n % 14 in (12, 13)

    def describe(n: int) -> dict[str, Any]:
        return {"confidence": 0.9 if n % 14 < 10 else 0.3, "seconds": 0.1 + 0.01 * (n % 11), "tokens": 7}

    found = replay(traces, plant(traces, right, describe))
    assert found.hit_rate == pytest.approx(10 / 14) and found.tokens == 280 * 7
    assert found.gate == "confidence"
    by_threshold = {point.threshold: point for point in found.frontier}
    assert set(by_threshold) == {None, 0.3, 0.9}
    assert (by_threshold[0.9].launched, by_threshold[0.9].hits) == (200, 160)
    assert by_threshold[0.3] == msgspec.structs.replace(by_threshold[None], threshold=0.3)


@pytest.mark.parametrize("call", [WRITE, DEPLOY, RUN])
def test_what_is_not_safe_is_not_launched(call: Any) -> None:
    traces = [make_trace([Timed(5.0, 2.0, call), Timed(5.0, 2.0)])]
    found = replay(traces, plant(traces))
    assert (found.launched, found.hits, found.refused) == (1, 1, 1)
    name, arguments = call
    wrong = plant(traces, lambda n: False, wrong=PredictedCall(name, json.dumps(arguments)))
    assert replay(traces, wrong).launched == 0, "the predicted call decides, whatever the step does"


def test_a_read_beside_a_write_is_not_used() -> None:
    calls = (ToolCall(id="a", name=READ[0], arguments=json.dumps(READ[1])), ToolCall(id="b", name="write_file"))
    results = [Message(role="tool", author="environment", tool_call_ids=(i,), tool_s=1.0) for i in "ab"]
    agent = Message(role="assistant", author="model", tool_calls=calls, model_s=5.0)
    found = replay([make([agent, *results])], make_file(guess(READ, step=0)))
    assert (found.launched, found.hits, found.saved_s) == (1, 0, 0.0)


def parallel(*seconds: float) -> Trace:
    """One step with a read of each length, side by side."""
    calls = tuple(ToolCall(id=f"{n}", name="read_file", arguments=f'{{"path": "{n}"}}') for n in range(len(seconds)))
    results = [
        Message(role="tool", author="environment", tool_call_ids=(f"{n}",), tool_s=s) for n, s in enumerate(seconds)
    ]
    return make([Message(role="assistant", author="model", tool_calls=calls, model_s=5.0), *results])


def test_parallel_calls_are_a_hit_together_and_in_part() -> None:
    trace = parallel(3.0, 1.0)
    first, second = ("read_file", {"path": "0"}), ("read_file", {"path": "1"})
    both = replay([trace], make_file(guess(second, first, step=0)))
    assert (both.saved_s, both.hits, both.hit_rate) == (3.0, 2, 1.0), "in any order"
    part = replay([trace], make_file(guess(first, step=0)))
    assert (part.saved_s, part.hits, part.hit_rate) == (2.0, 1, 0.0), "the other one takes a second"
    assert replay([trace], make_file(guess(second, step=0))).saved_s == 0.0
    ranked = make_file(guess(second, step=0), guess(first, step=0, rank=2))
    assert replay([trace], ranked).saved_s == 0.0
    assert replay([trace], ranked, top=2).saved_s == 3.0


def test_a_guess_at_a_later_message_of_a_reply_comes_later() -> None:
    calls = [ToolCall(id=f"{n}", name="read_file", arguments=f'{{"path": "{n}"}}') for n in range(2)]
    messages = [
        Message(role="assistant", author="model", content="x" * 66, tool_calls=(calls[0],), model_s=5.0),
        Message(role="assistant", author="model", tool_calls=(calls[1],), continues=True),
        *(Message(role="tool", author="environment", tool_call_ids=(f"{n}",), tool_s=4.0) for n in range(2)),
    ]
    at_once = guess(("read_file", {"path": "0"}), step=0, seconds=0.0)
    later = guess(("read_file", {"path": "1"}), step=1, seconds=0.0)
    assert replay([make(messages)], make_file(at_once)).saved_s == 0.0, "the other one is waited for"
    found = replay([make(messages)], make_file(at_once, later))
    assert found.saved_s == pytest.approx(1.0), "88 of 110 characters come before it"
    slow = msgspec.structs.replace(later, seconds=0.5)
    assert replay([make(messages)], make_file(at_once, slow)).saved_s == pytest.approx(0.5), "the slower one counts"
    assert found.hit_rate == 1.0
    wrong = guess(("read_file", {"path": "9"}), step=0)
    assert replay([make(messages)], make_file(wrong, later)).hit_rate == 0.0, "one half is not the reply"


def test_what_is_guessed_behind_a_reply_that_could_not_be_read_is_wrong() -> None:
    trace = make_trace([Timed(4.0, None, None), Timed(1.0, 6.0)])
    trace = make([*trace.messages[:2], Message(role="tool", author="environment"), *trace.messages[2:]])
    right = guess(READ, step=3)
    silent, unread = (Prediction(key="k", step=1, action=action) for action in ("final_answer", None))
    assert replay([trace], make_file(silent, right), ahead=2, guess_latency=0.0).saved_s == 5.0
    assert replay([trace], make_file(unread, right), ahead=2, guess_latency=0.0).saved_s == 1.0


def test_a_wrong_guess_takes_the_median_of_its_tool() -> None:
    steps = [Timed(9.0, s, ("bash", {"command": c})) for s, c in ((1.0, "grep a b"), (3.0, "grep c d"), (5.0, "cat e"))]
    traces = [make_trace(steps)]

    def waste(command: str, tool: str = "bash") -> float:
        return replay(traces, make_file(guess((tool, {"command": command})))).wasted_s

    assert waste("grep x y") == 2.0, "the same program"
    assert waste("ls x") == 3.0, "the same tool"
    assert replay(traces, make_file(guess(("read_file", {"path": "x"})))).wasted_s == 3.0, "any tool"


def test_the_time_of_all_steps_of_predicted_traces_counts() -> None:
    traces = [make_trace([Timed(5.0, 2.0)] * 4 + [Timed(None, 2.0)]), make_trace([Timed(5.0, 2.0)], key="other")]
    found = replay(traces[:1], plant(traces, guessed=lambda n: n != 1))
    assert (found.steps, found.known_steps, found.base_s, found.traces) == (4, 3, 28.0, 1)
    assert (found.coverage, found.verdict, found.steps_without_prediction) == (0.75, "known", 1)
    assert found.other_predictions == 1 and found.unknown_steps == {"no_model_time": 1}


@pytest.mark.parametrize(
    ("options", "right", "why"),
    [
        ({"guess_latency": 6.0}, True, "no right guess is ready before the reply"),
        ({}, False, "no guess at a call that is safe to run early is right"),
        ({"threshold": 0.9}, True, "no guess reaches the threshold of 0.9"),
    ],
)
def test_nothing_saved_says_why(options: dict[str, Any], right: bool, why: str) -> None:
    traces = reads(5)
    found = replay(traces, plant(traces, lambda n: right, lambda n: {"seconds": 0.1, "confidence": 0.5}), **options)
    assert found.saved_s == 0 and found.conclusion.text == f"not worth it: {why}"


@pytest.mark.parametrize(
    ("many", "late_s", "shares"),
    [(1, 0.1, ("2.9%", "10%", "10%", "18%")), (7, 4.7, ("3.0%", "70%", "26%", "43%"))],
)
def test_a_verdict_says_how_good_the_guesses_are_and_must_be(many: int, late_s: float, shares: tuple[str, ...]) -> None:
    """Right guesses that come late are worth fewer that are in time, of which so many are needed."""
    traces = reads(10)
    found = replay(traces, plant(traces, lambda n: n < many, lambda n: {"seconds": late_s if n < many else 0.1}))
    assert found.conclusion.text == (
        "not worth it: {} of the time is saved with {} of the guesses right, as much as {} right and in time would "
        "give; 5% needs about {}; `read_file` carries 100% of it"
    ).format(*shares)


def test_assumed_times_fill_what_is_unknown() -> None:
    traces = [make_trace([Timed(), Timed(4.0, 1.0), Timed(call=None)])]
    assert replay(traces, plant(traces)).base_s == 5.0
    assumed = read_assumed_times("model=6,tool=2,file_read=3")
    found, ceiling = replay(traces, plant(traces), assume_times=assumed), measure_ceiling(traces, assume_times=assumed)
    assert found.base_s == ceiling.wall_s == (6.0 + 3.0) + 5.0 + 6.0
    assert found.assumed_steps == ceiling.assumed_steps == 2


def test_times_that_cannot_be_are_left_out_and_below_half_it_is_unknown() -> None:
    steps = [Timed(5.0, 2.0), Timed(-1.0, 2.0), Timed(5.0, 1e9), Timed(float("nan"), 1.0)]
    traces = [make_trace(steps)]
    found = replay(traces, plant(traces))
    assert (found.verdict, found.coverage, found.known_steps) == ("unknown", 0.25, 1)
    assert found.unknown_steps == {"absurd_time": 3}
    nothing = [make_trace([Timed(), Timed()])]
    found = replay(nothing, plant(nothing))
    assert (found.verdict, found.saved_s, found.share, found.speedup) == ("unknown", None, None, None)
    assert (found.low, found.oracle.saved_s, found.per_task.base_s.p50) == (None, None, None)


def test_a_threshold_is_held_against_the_score_and_without_one_against_the_confidence() -> None:
    traces = reads(10)
    both = plant(traces, describe=lambda n: {"confidence": 1 - n / 10, "score": float(n)})
    assert replay(traces, both, threshold=6).launched == 4 and replay(traces, both).gate == "score"
    bare = plant(traces, describe=lambda n: {"confidence": 1 - n / 10} if n else {})
    found = replay(traces, bare, threshold=0.5)
    assert (found.launched, found.gate) == (5, "confidence")
    with pytest.raises(UsageError, match=r"threshold=0.5: p.jsonl holds neither scores nor confidences"):
        replay(traces, plant(traces), threshold=0.5)


def test_tasks_have_percentiles_of_their_mean_attempt() -> None:
    traces = [make_trace([Timed(5.0, 2.0)] * n, key=f"k{n}", task=f"t{n % 2}") for n in (1, 2, 3)]
    found = replay(traces, plant(traces), guess_latency=0.0)
    assert (found.tasks, found.traces) == (2, 3)
    assert found.per_task.base_s.p50 == 14.0 and found.per_task.remaining_s.p50 == 10.0
    assert found.per_task.share.p95 == pytest.approx(2 / 7)


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        (make_file(), "p.jsonl: holds no prediction"),
        (make_file(guess(READ, step=99)), "p.jsonl: none of its 1 predictions is for a step of these traces; name the"),
        (
            make_file(guess(READ), header=PredictionsHeader(target="type")),
            "p.jsonl: holds types without calls; take a predictor of whole calls",
        ),
    ],
)
def test_predictions_for_something_else_are_refused(predictions: PredictionsFile, said: str) -> None:
    with pytest.raises(PredictionError) as refused:
        replay(reads(2), predictions)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"guess_latency": -1.0}, "guess_latency=-1.0: give seconds, 0 or more"),
        ({"verifier_s": float("inf")}, "verifier_s=inf: give seconds, 0 or more"),
        ({"threshold": float("nan")}, "threshold=nan: give a number"), ({"ahead": 0}, "ahead=0: give 1 or more"),
        ({"top": 0}, "top=0: give 1 or more"), ({"allow": ("all",)}, "allow='all': is not safe to run early"),
        ({"seed": -1}, "seed=-1: give 0 or more"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_served_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        replay([], plant(reads(1)), **options)
    assert str(refused.value).startswith(said)


choices = st.sampled_from([READ, READ, RUN, WRITE, DEPLOY, None])
times = st.floats(0.01, 50)
folders = st.lists(st.lists(st.builds(Timed, times, times, choices), min_size=1, max_size=6), min_size=1, max_size=4)
options = st.fixed_dictionaries(
    {
        "ahead": st.integers(1, 3),
        "verifier_s": st.sampled_from([0.0, 1.0]),
        "allow": st.sampled_from([(), ("sandbox_exec",)]),
    }
)


@given(folders, options, st.randoms(use_true_random=False))
def test_laws_of_the_replay(made: list[list[Timed]], how: dict[str, Any], draw: random.Random) -> None:
    traces = [make_trace(steps, key=f"k{n}", task=f"t{n // 2}") for n, steps in enumerate(made)]
    predictions = plant(traces, lambda n: draw.random() < 0.6, lambda n: {"confidence": draw.random()})
    found = replay(traces, predictions, **how)
    saved, most = found.saved_s or 0.0, found.oracle.saved_s or 0.0
    assert -1e-9 <= saved <= most + 1e-6 and most <= found.tool_s + 1e-6
    assert saved + found.remaining_s == pytest.approx(found.base_s)
    assert 0 <= found.stale <= found.launched - found.hits
    assert found.frontier[0].saved_s == found.saved_s
    shuffled = [*traces]
    draw.shuffle(shuffled)
    assert msgspec.json.encode(replay(shuffled, predictions, **how)) == msgspec.json.encode(found)


@given(st.lists(any_traces, min_size=1, max_size=3, unique_by=lambda trace: trace.key))
def test_any_trace_can_be_replayed_and_its_calls_have_the_effect_of_their_label(traces: list[Trace]) -> None:
    predictions = plant(traces)
    steps = {(trace.key, index) for trace in traces for step in time_steps(trace) for index in step.indexes}
    if any((row.key, row.step) in steps for row in predictions.rows):
        found = replay(traces, predictions, allow=("sandbox_exec",), ahead=2)
        assert (found.saved_s or 0.0) >= 0
    for trace in traces:
        for label in label_trace(trace):
            message = trace.messages[label.index]
            facts = classify_calls(trace, message.tool_calls)
            if facts is not None and message.author == "model":
                assert facts.effect == label.effect


def test_the_time_that_the_scores_took_counts_unless_another_is_given() -> None:
    traces = reads(10)
    file = plant(traces, describe=lambda n: {"seconds": 0.5, "score": 1.0})

    def save(latency_s: dict[str, float], **options: Any) -> float | None:
        header = PredictionsHeader(verifier="v", verifier_latency_s=latency_s)
        return replay(traces, msgspec.structs.replace(file, header=header), **options).saved_s

    assert save({}) == save({"p50": 4.0}, verifier_s=0.0) == 20.0
    assert save({"p50": 4.0}) == save({}, verifier_s=4.0) == 5.0
    measured = msgspec.structs.replace(file, header=PredictionsHeader(verifier_latency_s={"p50": 4.0}))
    (said,) = [each.text for each in replay(traces, measured).assumed if "verifier" in each.text]
    assert said == "the verifier takes 4 s, as the median of its scores did"
