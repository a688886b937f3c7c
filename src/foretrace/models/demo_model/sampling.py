"""Samples tokens, and builds the reply's text from them, with exact logprobs and without splitting characters."""

from __future__ import annotations

import codecs
import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foretrace.core.completion import Sampling
from foretrace.core.digest import digest
from foretrace.models.completion_builder import cut_at_stop

Doubles = npt.NDArray[np.float64]


def log_softmax(logits: npt.NDArray[np.float32]) -> Doubles:
    """Natural-log probabilities at temperature 1 over the last axis."""
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=-1, keepdims=True)
    return exact - np.log(np.exp(exact).sum(axis=-1, keepdims=True))


def make_rng(prompt: Sequence[int], seed: int | None) -> random.Random:
    """The random number generator of one completion, which depends only on its prompt and seed."""
    return random.Random(int(digest("demo", repr(seed), ",".join(map(str, prompt))), 16))


def sample_token(logprobs: Doubles, sampling: Sampling, rng: random.Random) -> int:
    if sampling.temperature <= 0 or sampling.top_k == 1:
        return int(logprobs.argmax())
    weights = np.exp((logprobs - logprobs.max()) / sampling.temperature)
    if sampling.top_k is None and sampling.top_p >= 1.0:
        return _draw(weights, rng)
    order = np.argsort(-weights, kind="stable")[: sampling.top_k or None]
    top = weights[order]
    if sampling.top_p < 1.0:
        before = np.cumsum(top) - top
        top = top[before < max(sampling.top_p, 0.0) * top.sum()] if sampling.top_p > 0 else top[:1]
    return int(order[_draw(top, rng)])


def _draw(weights: Doubles, rng: random.Random) -> int:
    edges = np.cumsum(weights)
    return min(int(np.searchsorted(edges, rng.random() * edges[-1], side="right")), len(weights) - 1)


class ReplyBuilder:
    """The tokens and the text of a reply so far."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.pieces: list[str] = []
        self.text = ""
        self.stop: str | None = None
        self._stops, self._reach = stops, max((len(stop) for stop in stops), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int, logprob: float, data: bytes) -> bool:
        """Append a token; returns whether a stop sequence ends the reply with it."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.pieces.append(self._decoder.decode(data))
        begin = max(0, len(self.text) - self._reach)
        end, self.stop = cut_at_stop(self.text[begin:] + self.pieces[-1], self._stops)
        self.text = self.text[:begin] + end
        return self.stop is not None

    def finish(self) -> None:
        """End the reply: an incomplete character becomes U+FFFD."""
        left = self._decoder.decode(b"", True)
        if left:
            self.pieces[-1] += left
            self.text += left
