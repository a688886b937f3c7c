"""An assistant's turn that goes on behind injected text, as one growing list of token ids that the episode owns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from foretrace.core.completion import ChatMessage, Completion
from foretrace.models.base import TokenModel


class Taken(NamedTuple):
    """A completion as it stands in the stream."""

    completion: Completion
    """Its text is what is kept, and its ids are those that the stream has for it."""
    end: int
    """How many of its last ids say only that the model ended its turn: they go if the turn does not end."""


class Stream:
    """The prompt as the messages are rendered once, then what was sampled, and what was injected.

    The ids are never made from the text again. Where they cannot be known (a text that was cut inside a token, a server
    that left some out), the text is tokenised, and the completion says that it is exact by its text alone.
    """

    def __init__(self, tokens: TokenModel) -> None:
        self._tokens = tokens
        self._ids: list[int] = []

    @property
    def ids(self) -> tuple[int, ...]:
        """The whole context of the next completion."""
        return tuple(self._ids)

    async def open(self, messages: Sequence[ChatMessage]) -> None:
        """Begin with messages, ready for the assistant's reply."""
        self._ids = await self._tokens.render(messages)

    async def take(self, completion: Completion, text: str) -> Taken:
        """Take in what is kept of a completion. White space that its last token brings along is kept, too."""
        taken = _sampled(completion, text)
        if taken is None:
            ids = tuple(await self._tokens.tokenize(text, special=True))
            own = msgspec.structs.replace(completion, text=text, token_ids=ids, logprobs=(), pieces=(), exact="text")
            taken = Taken(own, 0)
        self._ids += taken.completion.token_ids
        return taken

    async def inject(self, text: str) -> tuple[int, ...]:
        """Put in what the environment says; its text cannot spell the names of special tokens."""
        ids = await self._tokens.tokenize(text)
        self._ids += ids
        return tuple(ids)

    def drop(self, count: int) -> None:
        """Take the last ids back."""
        if count:
            del self._ids[-count:]


def _sampled(completion: Completion, text: str) -> Taken | None:
    """The completion with the ids that spell the text; null where there are none that do."""
    pieces, ids = completion.pieces, completion.token_ids
    if completion.exact != "token" or len(pieces) != len(ids):
        return None
    ends = list(accumulate(len(piece) for piece in pieces))
    count = next((n for n, end in enumerate([0, *ends]) if end >= len(text)), None)
    if count is None:
        return None
    spelled = "".join(pieces[:count])
    if not spelled.startswith(text) or spelled[len(text) :].strip():
        return None
    # What a stop sequence of ours or an invented result cut off is no part of the turn; the model's own end is.
    ended = completion.finish == "stop" and spelled.startswith(completion.text)
    most = len(ids) if ended else count
    own = msgspec.structs.replace(
        completion,
        text=spelled,
        token_ids=ids[:most],
        logprobs=completion.logprobs[:most],
        pieces=pieces[:most],
    )
    return Taken(own, most - count)
