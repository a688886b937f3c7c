"""Builds a completion from a server's stream: limits its length, and aligns its logprobs with its text."""

from __future__ import annotations

import codecs
import contextlib
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec

from foretrace.core.completion import Completion, FinishReason, Request, TokenExactness
from foretrace.core.trace import Usage
from foretrace.models.server_errors import ServerErrors


class TokenLogprob(msgspec.Struct, gc=False):
    """A token with its logprob, in the form that Ollama, OpenAI and llama.cpp use."""

    token: str
    logprob: float | None = None
    bytes: list[int] | None = None
    id: int | None = None

    def to_bytes(self) -> bytes:
        """Bytes of the token. If it is part of a character, only the field `bytes` has them."""
        if self.bytes:
            with contextlib.suppress(ValueError):  # a number above 255
                return bytes(self.bytes)
        return self.token.encode("utf-8", "replace")


@dataclass
class CompletionBuilder:
    """The reply so far. An adapter fills it from the events of a stream, then calls `build`."""

    errors: ServerErrors
    request: Request
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    token_logprobs: list[TokenLogprob] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: tuple[int, ...] | None = None
    usage: Usage | None = None
    model: str = ""
    finish: FinishReason | None = None
    stop: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    ids_complete: bool = False
    """Whether `token_ids` is known to contain all sampled ids."""
    _chars_left: int = 0

    def __post_init__(self) -> None:
        self._chars_left = max_reply_chars(self.request)

    def add_text(self, text: str | None, reasoning: str | None = None) -> None:
        """Add to the text and the reasoning, which may not be much longer than the token limit allows."""
        if text:
            self.text.append(text)
            self._chars_left -= len(text)
        if reasoning:
            self.reasoning.append(reasoning)
            self._chars_left -= len(reasoning)
        if self._chars_left < 0:
            asked = self.request.sampling.max_tokens
            chars = max_reply_chars(self.request) - self._chars_left
            raise self.errors.make("too_long", f"the reply has {chars:,} characters, for at most {asked:,} tokens")

    def build(self, seconds: float) -> Completion:
        """The finished completion."""
        text, reasoning = "".join(self.text), "".join(self.reasoning)
        if self.finish is None:
            if not (text or reasoning or self.token_logprobs or self.token_ids or self.usage or self.model):
                remedy = "try again; if it stays so, check that the base URL is the server's own"
                raise self.errors.make("stream", "the answer holds nothing of a completion", remedy)
            raise self.errors.make("stream", "the stream ended before the reply did")
        for stop in self.request.stop:
            if stop and text.endswith(stop):
                text, self.finish, self.stop = text[: -len(stop)], "stop_sequence", stop
                break
        exact, ids, pieces, logprobs = self._align_logprobs(text)
        return Completion(
            text=text,
            reasoning=reasoning or None,
            finish=self.finish,
            stop=self.stop,
            token_ids=ids,
            logprobs=logprobs,
            pieces=pieces,
            prompt_token_ids=self.prompt_token_ids,
            exact=exact,
            usage=self.usage,
            seconds=seconds,
            model=self.model or self.errors.model,
            extra=self.extra,
        )

    def _align_logprobs(self, text: str) -> tuple[TokenExactness, tuple[int, ...], tuple[str, ...], tuple[float, ...]]:
        logprobs = tuple(t.logprob for t in self.token_logprobs if t.logprob is not None and math.isfinite(t.logprob))
        complete = len(logprobs) == len(self.token_logprobs)
        if self.ids_complete and self.token_ids:
            ids = tuple(self.token_ids)
            if complete and len(logprobs) == len(ids):
                return "token", ids, self._find_piece_of_each(text), logprobs
            if self.token_logprobs:
                self.extra["logprobs"] = f"left out: {len(logprobs)} for {len(ids)} tokens"
            return "token", ids, (), ()
        if not self.token_logprobs or not complete:
            return "none", (), (), ()
        tokens = [t.token for t in self.token_logprobs]
        # The usual case: no reasoning before the text, and no stop sequence cut off.
        if tokens[-1] and "".join(tokens) == text and "\ufffd" not in text:
            return "text", (), tuple(tokens), logprobs
        found = find_pieces(text, [t.to_bytes() for t in self.token_logprobs])
        if found is None and (pieces := align_token_texts(text, tokens)) is not None:
            found = 0, _drop_beyond(text, pieces)
        if found is None:
            self.extra["logprobs"] = "left out: the pieces do not spell the text"
            return "none", (), (), ()
        first, pieces = found
        return ("text" if pieces else "none"), (), pieces, logprobs[first : first + len(pieces)]

    def _find_piece_of_each(self, text: str) -> tuple[str, ...]:
        """The text of each token; empty if the tokens do not start with the text."""
        pieces, _ = _decode([t.to_bytes() for t in self.token_logprobs])
        if "".join(pieces).startswith(text):
            return tuple(pieces)
        tokens = [t.token for t in self.token_logprobs]
        return align_token_texts(text + (self.stop or ""), tokens) or align_token_texts(text, tokens) or ()


def _drop_beyond(text: str, pieces: Sequence[str]) -> tuple[str, ...]:
    """The pieces up to the one in which the text ends."""
    ends = list(accumulate(map(len, pieces)))
    return tuple(pieces[: bisect_left(ends, len(text)) + 1])


def find_pieces(text: str, tokens: Sequence[bytes]) -> tuple[int, tuple[str, ...]] | None:
    """The last run of tokens that spells the text: the index of its first token, and the text of each.

    Reasoning before the text is skipped. The last token may extend beyond the text if a stop sequence cut it.
    """
    if not text:
        return 0, ()
    pieces, begins = _decode(tokens)
    joined, ends = "".join(pieces), list(accumulate(map(len, pieces)))
    start = joined.rfind(text)
    while start >= 0:
        if (first := begins.get(start)) is not None:
            return first, tuple(pieces[first : bisect_left(ends, start + len(text)) + 1])
        start = joined.rfind(text, 0, start + len(text) - 1)
    return None


def _decode(tokens: Sequence[bytes]) -> tuple[list[str], dict[int, int]]:
    """The text of each token, and for each offset in the whole text the index of the token that begins there.

    A character that spans several tokens belongs to the text of the last of them. Bytes that are not characters become
    U+FFFD, as servers write them.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: list[str] = []
    begins: dict[int, int] = {}
    offset = 0
    for index, token in enumerate(tokens):
        if token and not decoder.getstate()[0]:  # not in the middle of a character
            begins[offset] = index
        pieces.append(decoder.decode(token))
        offset += len(pieces[-1])
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    return pieces, begins


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text before the first stop sequence in it, and that stop sequence (`None` if there is none)."""
    found = [(at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0]
    if not found:
        return text, None
    at, stop = min(found)
    return text[:at], stop


def max_reply_chars(request: Request) -> int:
    """The most characters of a reply that are accepted; tokens are never this long on average."""
    return 65_536 + 64 * request.sampling.max_tokens


def max_stream_bytes(request: Request) -> int:
    """The most bytes of a stream that are read; every token comes in its own JSON object, with its logprobs."""
    return 4 * 1024 * 1024 + 8192 * request.sampling.max_tokens


_UNREADABLE = "\ufffd"
_MAX_POSITIONS = 512
"""The most places where one token may end; there are more only after hundreds of unreadable tokens in a row."""


def align_token_texts(text: str, shown: Sequence[str]) -> tuple[str, ...] | None:
    """The text of each token. A character that spans several tokens belongs to the last of them.

    Args:
        text: The start of what the tokens spell. For tokens after its end, the text is what `shown` says.
        shown: Each token, decoded by itself. A token that is only part of a character is U+FFFD (perhaps several
            times), or empty. Other tokens may lack a space at their start.
    """
    steps: list[dict[int, tuple[int, str]]] = []
    positions = [0]
    for token in shown:
        found: dict[int, tuple[int, str]] = {}
        for before in positions:
            for after, beyond in _read_token(text, token, before):
                # What can belong to the text does, and a character belongs to the last of its tokens.
                if after not in found or len(beyond) <= len(found[after][1]):
                    found[after] = before, beyond
        if not 0 < len(found) <= _MAX_POSITIONS:
            return None
        steps.append(found)
        positions = sorted(found, reverse=True)
    position = len(text)
    if position not in positions:
        return None
    texts: list[str] = []
    for found in reversed(steps):
        before, beyond = found[position]
        texts.append(text[before:position] + beyond)
        position = before
    return tuple(reversed(texts))


def _read_token(text: str, token: str, start: int) -> Iterator[tuple[int, str]]:
    """Where a token that begins at `start` may end, and the part of it that is beyond the text."""
    if start == len(text) or not token:
        yield start, token
        return
    if _UNREADABLE not in token:
        for told in (token, " " + token):  # word tokenizers drop a leading space when decoding one token
            if text.startswith(told, start):
                yield start + len(told), ""
            elif told.startswith(text[start:]):
                yield len(text), told[len(text) - start :]
        return
    positions = {start}
    for index, char in enumerate(token):
        reached: set[int] = set()
        for position in positions:
            if position == len(text):
                yield position, token[index:]
            elif char == text[position]:
                reached.add(position + 1)
            elif char == _UNREADABLE and not text[position].isascii():
                reached |= {position, position + 1}  # part of the next character, or its last part
        positions = reached
    yield from ((position, "") for position in positions)
