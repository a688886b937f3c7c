"""Hold everything that decides whether a call may run early against the labels of its trace."""

from __future__ import annotations

import msgspec
import pytest

from evaluation.planted import make_file
from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import Effect, StepLabel
from foretrace.api.evaluation import ceiling as measure_ceiling
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.core.trace import Trace
from foretrace.evaluation.effects_manifest import collect_effects
from foretrace.evaluation.replay import Replay
from foretrace.evaluation.replay_report import ReplaySettings
from foretrace.evaluation.step_times import AssumedTimes

TIMES = AssumedTimes(source="test", model=1.0, tool=1.0)


def check_agreement(trace: Trace) -> None:
    """The manifest, the ceiling and replay say of every step what its label says."""
    labels = {label.index: label for label in label_trace(trace)}
    check_manifest(trace, labels)
    calls = {
        (trace.key, index): tuple(PredictedCall(call.name, call.arguments) for call in message.tool_calls)
        for index, message in enumerate(trace.messages)
        if index in labels and message.author == "model"
    }
    true = [Prediction(key=key, step=at, action="tool_call", calls=made) for (key, at), made in calls.items()]
    if not true:
        return
    replay = Replay(make_file(*true), ReplaySettings(assume_times=TIMES))
    replay.add(trace)
    steps = [step for run in replay.runs for step in run]
    for guess in (guess for step in steps for guess in step.guesses if guess.calls):
        message = guess.prediction.step
        if not any(call.error for call in trace.messages[message].tool_calls):
            assert guess.effect is labels[message].effect, trace.messages[message].tool_calls
    eligible = sum(step.timed.tool_s for step in steps if step.names and step.timed.eligible)
    assert measure_ceiling([trace], assume_times=TIMES).eligible_s == pytest.approx(eligible)


def check_manifest(trace: Trace, labels: dict[int, StepLabel]) -> None:
    for index, label in labels.items():
        message = trace.messages[index]
        if message.author != "model" or any(call.error or not call.name for call in message.tool_calls):
            continue
        tools = collect_effects([msgspec.structs.replace(trace, messages=(message,))]).tools
        classes = {each.effect_class for tool in tools for each in tool.patterns}
        if classes and label.effect is not Effect.TERMINAL:
            assert (classes == {"read_only"}) == (label.effect is Effect.PURE_READ), message.tool_calls
