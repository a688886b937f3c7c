"""What a model is shown, as one growing list of token ids that the episode owns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from foretrace.core.completion import ChatMessage, Completion
from foretrace.core.errors import UsageError
from foretrace.models.base import TokenModel


class Taken(NamedTuple):
    """A completion as it stands in the stream."""

    completion: Completion
    """Its text is what is kept, and its ids are those that the stream has for it."""
    end: int
    """How many of its last ids say only that the model ended its turn: they go if the turn does not end."""


class Stream:
    """The prompt as the messages are rendered once, then what was sampled, and what was injected.

    The ids are never made from the text again. Where they cannot be known (a text that was cut inside a token, a
    closing tag that the model did not write, a server that left some out), the text from there on is tokenised, has no
    logprobs, and the completion says that it is exact by its text alone.
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
            count = _begun(completion, text)
            rest = text[len("".join(completion.pieces[:count])) :]
            more = await self._tokens.tokenize(rest, special=True)
            ids = (*completion.token_ids[:count], *more)
            pieces = (*completion.pieces[:count], rest, *[""] * (len(more) - 1)) if count and more else ()
            own = msgspec.structs.replace(
                completion, text=text, token_ids=ids, logprobs=completion.logprobs[:count], pieces=pieces, exact="text"
            )
            taken = Taken(own, 0)
        self._ids += taken.completion.token_ids
        return taken

    async def inject(self, text: str) -> tuple[int, ...]:
        """Put what the environment says into the assistant's turn; it cannot spell the names of control tokens."""
        return self._put(await self._tokens.tokenize(text))

    async def turn(self, text: str) -> tuple[int, ...]:
        """Put what the environment says behind the assistant's turn, as a user's message.

        The end of the assistant's turn is put in where the model did not sample it.

        Raises:
            UsageError: the model's template gives turns no place of their own.
        """
        frame = await _frame_of(self._tokens)
        before = frame.before[1:] if self._ids[-1:] == frame.before[:1] else frame.before
        return self._put([*before, *await self._tokens.tokenize(text), *frame.after])

    def _put(self, ids: Sequence[int]) -> tuple[int, ...]:
        self._ids += ids
        return tuple(ids)

    def drop(self, count: int) -> None:
        """Take the last ids back."""
        if count:
            del self._ids[-count:]


def _begun(completion: Completion, text: str) -> int:
    """How many of the first ids spell a beginning of the text."""
    if len(completion.pieces) != len(completion.token_ids):
        return 0
    count = length = 0
    for number, piece in enumerate(completion.pieces, 1):
        if not text.startswith(piece, length):
            break
        length += len(piece)
        count = number if piece else count
    return count


def _sampled(completion: Completion, text: str) -> Taken | None:
    """The completion with the ids that spell the text; null where there are none that do."""
    pieces, ids = completion.pieces, completion.token_ids
    if not ids or len(pieces) != len(ids):
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
    if ended and len(ids) > count + 1:  # half a character in front of the end: its ids are of no text
        return None
    most = len(ids) if ended else count
    own = msgspec.structs.replace(
        completion,
        text=spelled,
        token_ids=ids[:most],
        logprobs=completion.logprobs[:most],
        pieces=pieces[:most],
    )
    return Taken(own, most - count)


class _Frame(NamedTuple):
    """What stands around a user's message that follows the assistant's."""

    before: list[int]
    """From the end of the assistant's text on: first the token that ends its turn."""
    after: list[int]
    """Up to the assistant's next text."""


_frames: WeakKeyDictionary[TokenModel, _Frame] = WeakKeyDictionary()
"""A template does not change while its server runs."""


async def _frame_of(tokens: TokenModel) -> _Frame:
    """Found by what stays the same while the texts change: a template can do what it likes, but must do it again."""
    if (known := _frames.get(tokens)) is not None:
        return known

    async def render(reply: str, answer: str) -> list[int]:
        said = (("user", "Go on."), ("assistant", reply), ("user", answer))
        return await tokens.render([ChatMessage(role, text) for role, text in said])  # type: ignore[arg-type]

    first, other_reply, other_answer = [await render(*texts) for texts in (("yes", "up"), ("no", "up"), ("yes", "is"))]
    behind = first[len(first) - _same(first[::-1], other_reply[::-1]) :]
    begun = len(first) - len(behind)
    before = _same(behind, other_answer[begun:])
    after = _same(behind[::-1], other_answer[begun:][::-1])
    if not begun or first[:begun] != other_answer[:begun] or not before or before + after >= len(behind):
        raise UsageError(
            "the model's chat template changes earlier turns or hides a user's message, so that turns cannot be "
            "appended to its token ids; use another template, or the protocol inline"
        )
    frame = _Frame(behind[:before], behind[len(behind) - after :])
    _frames[tokens] = frame
    return frame


def _same(one: Sequence[int], other: Sequence[int]) -> int:
    """How many of the first ids are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
