"""What a page shows of traces besides their records: labels, times and what prefetching could hide, token logprobs, and
how many attempts reach each turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from foretrace.actions.flags import Flag, find_flag_meaning
from foretrace.actions.taxonomy import Effect, StepLabel
from foretrace.core.token_arrays import pack
from foretrace.core.trace import Sampled, Trace, encode_trace
from foretrace.episodes.speculation_report import Launch
from foretrace.evaluation.step_times import StepTimes, find_step_effect

GUESS_S = 0.2
"""Seconds that a guess takes when computing what prefetching could hide; the same as in `ceiling`."""
_LOWEST_LOGPROB = -20.0
MAX_TURNS = 40
_SHOWN_TOKENS = 2_000
"""Most tokens of a message whose ids and logprobs are in the page."""


def describe_trace(
    trace: Trace,
    labels: Sequence[StepLabel],
    flags: Sequence[Flag],
    times: Sequence[StepTimes],
    launches: Sequence[Launch] = (),
) -> dict[str, Any]:
    """The record without its token arrays, with derived data."""
    bare, _ = pack(trace)
    return {
        "trace": msgspec.Raw(encode_trace(bare)),
        "labels": [
            [x.index, x.action and str(x.action), x.rule, str(x.effect), x.state_version, x.failed] for x in labels
        ],
        "flags": [[x.index, x.rule, x.is_cheat, find_flag_meaning(x.rule), x.evidence] for x in flags],
        "times": _describe_times(labels, times),
        "early": [[x.step, x.tool, x.after_s, x.seconds, x.used, x.saved_s] for x in launches],
        "tokens": [
            [index, *_describe_tokens(m.sampled)]
            for index, m in enumerate(trace.messages)
            if m.sampled is not None and (m.sampled.token_ids or m.sampled.logprobs)
        ],
    }


def _describe_tokens(sampled: Sampled) -> list[Any]:
    """Tokens of a message: their number, mean logprob, number of prompt tokens, first ids, first logprobs."""
    logprobs = [_round_logprob(value) for value in sampled.logprobs]
    return [
        len(sampled.token_ids),
        round(sum(logprobs) / len(logprobs), 4) if logprobs else None,
        len(sampled.prompt_token_ids or ()),
        sampled.token_ids[:_SHOWN_TOKENS],
        logprobs[:_SHOWN_TOKENS],
    ]


def _describe_times(labels: Sequence[StepLabel], times: Sequence[StepTimes]) -> list[list[Any]]:
    """For each step: first message, seconds of model and tools, seconds that a perfect prefetch hides, why unknown."""
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


class TurnSums:
    """Sums by turn over the traces of one folder."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []

    def add(self, trace: Trace, times: Sequence[StepTimes]) -> None:
        """Add a trace; turns after `MAX_TURNS` are left out."""
        for turn, step in enumerate(times[:MAX_TURNS]):
            if turn == len(self._rows):
                self._rows.append([0, 0, 0, 0, 0, 0, 0])
            tokens = _count_tokens(trace, step)
            for place, value in ((1, tokens), (3, step.model_s or None), (5, step.tool_s or None)):
                if value is not None:
                    self._rows[turn][place] += value
                    self._rows[turn][place + 1] += 1
            self._rows[turn][0] += 1

    def list_means(self) -> list[list[float | None]]:
        """For each turn: the number of attempts that have it, and the means of tokens written, model seconds and tool
        seconds over the attempts for which they are known."""
        return [
            [row[0], *(round(row[place] / row[place + 1], 4) if row[place + 1] else None for place in (1, 3, 5))]
            for row in self._rows
        ]


def _count_tokens(trace: Trace, step: StepTimes) -> int | None:
    usages = [m.sampled.usage for m in (trace.messages[i] for i in step.indexes) if m.sampled is not None]
    known = [usage.completion_tokens for usage in usages if usage is not None and usage.completion_tokens is not None]
    return sum(known) if known else None
