"""A finished episode for a trainer: a list of token ids, which of them are trained on, and their logprobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from foretrace.core.trace import Message, Trace

MASKED = -100
"""Replaces tokens in `masks` that are not trained on."""
UNKNOWN = 1.0
"""The value in `logprobs` of tokens that are not trained on: real logprobs are not above 0."""


class TrainSequence(NamedTuple):
    """Three lists of equal length, and the messages."""

    tokens: list[int]
    masks: list[int]
    """The token, or `MASKED`."""
    logprobs: list[float]
    """Natural-log probability under which the token was sampled, or `UNKNOWN`."""
    messages: list[dict[str, str]]
    """What the model was shown and wrote, by turn: role and content."""
    trained: int
    """Number of tokens that are trained on."""
    inexact: int
    """Number of completions' tokens without a certain logprob; they are not trained on."""
    cut: bool
    """Whether the token limit cut off the last reply."""


def make_sequence(trace: Trace, end_id: int, end_ids: Iterable[int]) -> TrainSequence | None:
    """The exact ids that the model was shown and sampled, in order; `None` if the trace does not have them.

    Only ids sampled with a real logprob are trained on. The list ends with the end of the assistant's last turn, which
    is added (and not trained on) if it was not sampled. The model never saw anything after the last reply. `end_id` is
    the id that ends a turn; `end_ids` are all that end a reply."""
    last = max((n for n, m in enumerate(trace.messages) if m.author == "model"), default=-1)
    first = next((m for m in trace.messages if m.author == "model"), None)
    if first is None or first.sampled is None or first.sampled.prompt_token_ids is None:
        return None
    tokens: list[int] = []
    logprobs: list[float] = []

    def add(ids: Sequence[int], sure: Sequence[float] = ()) -> None:
        tokens.extend(ids)
        logprobs.extend([*sure, *[UNKNOWN] * (len(ids) - len(sure))])

    add(first.sampled.prompt_token_ids)
    inexact = count = sure = 0
    for message in trace.messages[: last + 1]:
        sampled = message.sampled
        if sampled is None or message.author not in ("model", "environment"):
            continue
        if message.author == "environment":
            add(sampled.token_ids)
            continue
        add(sampled.token_ids, sampled.logprobs[: len(sampled.token_ids)])
        count, sure = count + len(sampled.token_ids), sure + len(sampled.logprobs)
        if sampled.finish_reason is not None:  # the last part of a completion
            inexact += 0 if sure else count
            count = sure = 0
    if tokens[-1] not in end_ids:
        add([end_id])
    masks = [MASKED if logprob == UNKNOWN else token for token, logprob in zip(tokens, logprobs, strict=True)]
    final = trace.messages[last].sampled
    return TrainSequence(
        tokens=tokens,
        masks=masks,
        logprobs=logprobs,
        messages=merge_turns(trace.messages[: last + 1]),
        trained=len(masks) - masks.count(MASKED),
        inexact=inexact,
        cut=final is not None and final.finish_reason == "length",
    )


def merge_turns(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Messages for a chat template: the spans of a turn are merged, including injected text."""
    chat: list[dict[str, str]] = []
    for _, grouped in groupby(messages, key=lambda message: message.turn):
        spans = list(grouped)
        assistant = any(m.role == "assistant" for m in spans)
        role = "assistant" if assistant else spans[0].raw_role or spans[0].role
        chat.append({"role": role, "content": ("" if assistant else "\n").join(m.content for m in spans)})
    return chat
