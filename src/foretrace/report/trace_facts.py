"""What a page shows of one trace beside its record: labels, times and what prefetching could hide, token logprobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.actions.flag_meanings import find_flag_meaning
from foretrace.actions.flags import Flag
from foretrace.actions.taxonomy import Effect, StepLabel
from foretrace.core.token_arrays import pack
from foretrace.core.trace import Sampled, Trace, encode_trace
from foretrace.evaluation.step_times import StepTimes, find_step_effect

GUESS_S = 0.2
"""Seconds that a guess takes, for what prefetching could hide; as `ceiling` has it."""
_LOWEST_LOGPROB = -20.0
_SHOWN_TOKENS = 2_000
"""Tokens of a message whose ids and logprobs the page holds."""


def describe_trace(
    trace: Trace, labels: Sequence[StepLabel], flags: Sequence[Flag], times: Sequence[StepTimes]
) -> dict[str, Any]:
    """The record without its token arrays, and what is derived from it."""
    bare, _ = pack(trace)
    return {
        "trace": msgspec.Raw(encode_trace(bare)),
        "labels": [
            [x.index, x.action and str(x.action), x.rule, str(x.effect), x.state_version, x.failed] for x in labels
        ],
        "flags": [[x.index, x.rule, x.is_cheat, find_flag_meaning(x.rule), x.evidence] for x in flags],
        "times": _describe_times(labels, times),
        "tokens": [
            [index, *_describe_tokens(m.sampled)]
            for index, m in enumerate(trace.messages)
            if m.sampled is not None and (m.sampled.token_ids or m.sampled.logprobs)
        ],
    }


def _describe_tokens(sampled: Sampled) -> list[Any]:
    """Of the tokens of a message: how many, their mean logprob, those of its prompt, the first ids and logprobs."""
    logprobs = [_round_logprob(value) for value in sampled.logprobs]
    return [
        len(sampled.token_ids),
        round(sum(logprobs) / len(logprobs), 4) if logprobs else None,
        len(sampled.prompt_token_ids or ()),
        sampled.token_ids[:_SHOWN_TOKENS],
        logprobs[:_SHOWN_TOKENS],
    ]


def _describe_times(labels: Sequence[StepLabel], times: Sequence[StepTimes]) -> list[list[Any]]:
    """Of each step: its first message, seconds of model and tools, seconds of a perfect prefetch, why not known."""
    by_index = {label.index: label for label in labels}
    rows: list[list[Any]] = []
    for step in times:
        hidden = 0.0
        if step.unknown is None and step.calls and find_step_effect(step, by_index) is Effect.PURE_READ:
            hidden = max(0.0, min((step.model_s or 0.0) - GUESS_S, step.tool_s or 0.0))
        rows.append([step.indexes[0], _round(step.model_s), _round(step.tool_s), _round(hidden), step.unknown])
    return rows


def _round(seconds: float | None) -> float | None:
    return None if seconds is None or not math.isfinite(seconds) else round(seconds, 4)


def _round_logprob(value: float) -> float:
    return round(max(value, _LOWEST_LOGPROB), 2) if value == value else _LOWEST_LOGPROB
