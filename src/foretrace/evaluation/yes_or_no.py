"""A chat model as a verifier: whether an action is the agent's next one, as the probability of a yes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from foretrace.core.completion import ChatMessage, Completion, Request, Sampling

QUESTION = "Is this the agent's next action? Answer with one word: yes or no."
"""Asked behind the prompt of the row and, as the assistant's reply to it, the action."""
MAX_TOKENS = 8
"""Tokens of an answer, where nothing else is said; a model that thinks first needs more."""
_WORD = re.compile(r"[^A-Za-z]*(yes|no)\b", re.IGNORECASE)


class Verdict(NamedTuple):
    """What a model answered."""

    score: float | None
    """Probability of a yes; 1 or 0 without logprobs. None for an answer that is neither yes nor no."""
    has_logprobs: bool


def make_question(prompt: Sequence[ChatMessage], action: str, max_tokens: int = MAX_TOKENS) -> Request:
    """The request that asks whether `action`, the text of a target, is what comes next.

    Args:
        prompt: As in the dataset's rows.
        action: As in their completions.
        max_tokens: Of the answer.
    """
    asked = (ChatMessage(role="assistant", content=action), ChatMessage(role="user", content=QUESTION))
    sampling = Sampling(temperature=0.0, max_tokens=max_tokens, seed=0)
    return Request(messages=(*prompt, *asked), sampling=sampling, logprobs=True)


def read_verdict(completion: Completion) -> Verdict:
    """The verdict of a completion: the first word of its text, behind thinking.

    With p the probability of the word that was sampled, the score is p for a yes and 1 - p for a no: what is left over
    counts for the other word, since servers tell the probability of what was sampled alone.
    """
    begin = completion.text.rpartition("</think>")[0]
    offset = len(begin) + len("</think>") if begin else 0
    found = _WORD.match(completion.text, offset)
    if found is None:
        return Verdict(None, False)
    is_yes = found[1].lower() == "yes"
    logprob = _sum_logprobs(completion, found.start(1), found.end(1))
    if logprob is None:
        return Verdict(float(is_yes), False)
    probability = min(1.0, math.exp(logprob))
    return Verdict(probability if is_yes else 1 - probability, True)


def _sum_logprobs(completion: Completion, start: int, end: int) -> float | None:
    """Log-probability of the tokens that hold the text from `start` to `end`; None where it is not known which."""
    pieces, logprobs = completion.pieces, completion.logprobs
    if len(pieces) < len(logprobs) == 1:
        return logprobs[0]
    if not pieces or len(logprobs) < len(pieces):
        return None
    ends = list(accumulate(map(len, pieces)))
    begins = [0, *ends[:-1]]
    inside = [at for at, (a, b) in enumerate(zip(begins, ends, strict=True)) if a < end and b > start]
    return math.fsum(logprobs[at] for at in inside) if inside else None
