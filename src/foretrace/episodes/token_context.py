"""A model's context as one growing list of token ids, so that sampled text is never tokenized again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from foretrace.core.completion import ChatMessage, Completion
from foretrace.core.errors import UsageError
from foretrace.models.base import TokenModel


class AddedCompletion(NamedTuple):
    """A completion as it was added to the context."""

    completion: Completion
    """The completion, with the kept part of the text and the added ids."""
    end_ids: int
    """How many of its last ids have no text: the end of the model's turn, perhaps after half a character. They are
    removed if the turn continues."""


class TokenContext:
    """The ids of the rendered prompt, followed by sampled and injected ids.

    Sampled ids are kept as they are. If the ids of a text are unknown (it was cut inside a token, a closing tag was
    added, or the server omitted ids), the rest of the completion's text is tokenized; it has no logprobs, and its
    `exact` is `text`.
    """

    def __init__(self, tokens: TokenModel) -> None:
        self._tokens = tokens
        self._ids: list[int] = []

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids, which are the prompt of the next completion."""
        return tuple(self._ids)

    async def open(self, messages: Sequence[ChatMessage]) -> None:
        """Render the first messages, up to the start of the assistant's turn."""
        self._ids = await self._tokens.render(messages)

    async def add_completion(self, completion: Completion, text: str) -> AddedCompletion:
        """Add the part `text` of a completion, including trailing white space of its last token."""
        count, is_whole = _match_ids(completion, text)
        spelled = "".join(completion.pieces[:count])
        if is_whole:
            # Ids after a stop sequence or a hallucinated result are not part of the turn; the model's own end is.
            ended = completion.finish == "stop" and spelled.startswith(completion.text)
            kept_count = len(completion.token_ids) if ended else count
            own = msgspec.structs.replace(
                completion,
                text=spelled,
                token_ids=completion.token_ids[:kept_count],
                logprobs=completion.logprobs[:kept_count],
                pieces=completion.pieces[:kept_count],
            )
        else:
            rest = text[len(spelled) :]
            more = await self._tokens.tokenize(rest, special=True)
            ids = (*completion.token_ids[:count], *more)
            pieces = (*completion.pieces[:count], rest, *[""] * (len(more) - 1)) if count and more else ()
            own = msgspec.structs.replace(
                completion, text=text, token_ids=ids, logprobs=completion.logprobs[:count], pieces=pieces, exact="text"
            )
        self._ids += own.token_ids
        return AddedCompletion(own, len(own.token_ids) - count if is_whole else 0)

    async def add_injection(self, text: str) -> tuple[int, ...]:
        """Add text of the environment to the assistant's turn; control tokens in it are not interpreted."""
        return self._extend(await self._tokens.tokenize(text))

    async def add_user_turn(self, text: str) -> tuple[int, ...]:
        """Add text of the environment after the assistant's turn, as a user message; the end of that turn is added if
        the model did not sample it. A UsageError says that the chat template does not let turns be appended."""
        frame = await _find_turn_frame(self._tokens)
        before = frame.before[1:] if self._ids[-1:] == frame.before[:1] else frame.before
        return self._extend([*before, *await self._tokens.tokenize(text), *frame.after])

    def _extend(self, ids: Sequence[int]) -> tuple[int, ...]:
        self._ids += ids
        return tuple(ids)

    def drop_last(self, count: int) -> None:
        if count:
            del self._ids[-count:]


def _match_ids(completion: Completion, text: str) -> tuple[int, bool]:
    """How many of the first ids spell the beginning of the text, and whether they spell all of it (the last one perhaps
    with white space after it)."""
    count = length = 0
    if not completion.token_ids or len(completion.pieces) != len(completion.token_ids):
        return 0, False
    for number, piece in enumerate(completion.pieces, 1):
        if length == len(text):
            break
        reaches_end = length + len(piece) >= len(text)
        if reaches_end and piece.startswith(text[length:]) and not piece[len(text) - length :].strip():
            return number, True
        if not text.startswith(piece, length):
            return count, False
        length += len(piece)
        count = number if piece else count
    return count, length == len(text)


class _TurnFrame(NamedTuple):
    """The ids around a user message that follows an assistant message."""

    before: list[int]
    """From the end of the assistant's text; the first ends its turn."""
    after: list[int]
    """Up to the start of the assistant's next text."""


_frames: WeakKeyDictionary[TokenModel, _TurnFrame] = WeakKeyDictionary()
"""Cached, since a template does not change while its server runs."""


async def _find_turn_frame(tokens: TokenModel) -> _TurnFrame:
    """Find the ids around a user message: those that are the same in three renderings with different texts."""
    if (known := _frames.get(tokens)) is not None:
        return known

    async def render(reply: str, answer: str) -> list[int]:
        said = (("user", "Go on."), ("assistant", reply), ("user", answer))
        return await tokens.render([ChatMessage(role, text) for role, text in said])  # type: ignore[arg-type]

    first, other_reply, other_answer = [await render(*texts) for texts in (("yes", "up"), ("no", "up"), ("yes", "is"))]
    behind = first[len(first) - _count_common(first[::-1], other_reply[::-1]) :]
    begun = len(first) - len(behind)
    before = _count_common(behind, other_answer[begun:])
    after = _count_common(behind[::-1], other_answer[begun:][::-1])
    if not begun or first[:begun] != other_answer[:begun] or not before or before + after >= len(behind):
        raise UsageError(
            "the model's chat template changes earlier turns or hides a user's message, so that turns cannot be "
            "appended to its token ids; use another template, or the protocol inline"
        )
    frame = _TurnFrame(behind[:before], behind[len(behind) - after :])
    _frames[tokens] = frame
    return frame


def _count_common(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
