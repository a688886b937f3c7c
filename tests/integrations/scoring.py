"""The demo model in numpy, as the reference for what a server says about the same weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.models.demo_model.network import KVCache
from foretrace.models.demo_model.sampling import log_softmax
from foretrace.models.servers.demo import load_checkpoint

CLOSE = 1e-3
"""Largest difference of a logprob, natural logarithm."""


def rescored(ids: Sequence[int], begin: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Logprobs of `ids[begin:]`, each behind all ids before it."""
    network = load_checkpoint()[1]
    rows = log_softmax(network.forward(list(ids[:-1]), KVCache(network.config)))
    return rows[np.arange(begin - 1, len(ids) - 1), list(ids[begin:])]


def spelled(ids: Sequence[int]) -> str:
    """The text of ids; the special tokens that end a turn have none."""
    text = load_checkpoint()[0]
    return b"".join(text.token_bytes[number] for number in ids).decode("utf-8", "replace")
