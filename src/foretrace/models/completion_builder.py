"""Puts a completion together from the pieces that a server streams, within limits and with logprobs that fit."""

from __future__ import annotations

import codecs
import contextlib
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec

from foretrace.core.completion import Completion, FinishReason, Request, TokenExactness
from foretrace.core.trace import Usage
from foretrace.models.http import Http


class Weighed(msgspec.Struct, gc=False):
    """One token with its logprob, as Ollama, OpenAI and llama.cpp write it."""

    token: str
    logprob: float | None = None
    bytes: list[int] | None = None
    id: int | None = None

    def raw(self) -> bytes:
        """The token's bytes; of a part of a character, only the server's `bytes` know them."""
        if self.bytes:
            with contextlib.suppress(ValueError):  # a number that is no byte
                return bytes(self.bytes)
        return self.token.encode("utf-8", "replace")


@dataclass
class Reply:
    """What has come so far."""

    http: Http
    request: Request
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    weighed: list[Weighed] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: tuple[int, ...] | None = None
    usage: Usage | None = None
    model: str = ""
    finish: FinishReason | None = None
    stop: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    all_ids: bool = False
    """The ids are known to be all that were sampled."""
    _room: int = 0

    def __post_init__(self) -> None:
        self._room = most_chars(self.request)

    def say(self, text: str | None, reasoning: str | None = None) -> None:
        """Add to the text, or to the thinking."""
        if text:
            self.text.append(text)
            self._room -= len(text)
        if reasoning:
            self.reasoning.append(reasoning)
            self._room -= len(reasoning)
        if self._room < 0:
            asked = self.request.sampling.max_tokens
            chars = most_chars(self.request) - self._room
            raise self.http.too_long(f"the reply has {chars:,} characters, for at most {asked:,} tokens")

    def completion(self, seconds: float, *, may_be_empty: bool = False) -> Completion:
        """The whole.

        Raises:
            ModelError: it never came to an end, or there is nothing in it.
        """
        text, reasoning = "".join(self.text), "".join(self.reasoning)
        if self.finish is None:
            if not (text or reasoning or self.weighed or self.token_ids or self.usage or self.model):
                remedy = "try again; if it stays so, check that the base URL is the server's own"
                cause = "the answer holds nothing of a completion"
                raise self.http.place.error(cause, remedy, kind="stream", retryable=True)
            raise self.http.place.stream("the stream ended before the reply did")
        for stop in self.request.stop:
            if stop and text.endswith(stop):
                text, self.finish, self.stop = text[: -len(stop)], "stop_sequence", stop
                break
        continued = self.request.prefill or self.request.prompt_ids is not None
        if not (text or reasoning or continued or may_be_empty or self.finish == "stop_sequence"):
            remedy = "try again, or check the model's template and the stop sequences"
            raise self.http.place.error("the completion is empty", remedy, kind="empty", retryable=True)
        exact, ids, pieces, logprobs = self._weights(text)
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
            model=self.model or self.http.place.model,
            extra=self.extra,
        )

    def _weights(self, text: str) -> tuple[TokenExactness, tuple[int, ...], tuple[str, ...], tuple[float, ...]]:
        logprobs = tuple(w.logprob for w in self.weighed if w.logprob is not None and math.isfinite(w.logprob))
        whole = len(logprobs) == len(self.weighed)
        if self.all_ids and self.token_ids:
            ids = tuple(self.token_ids)
            if whole and len(logprobs) == len(ids):
                return "token", ids, _spelled(text, [w.raw() for w in self.weighed]), logprobs
            if self.weighed:
                self.extra["logprobs"] = f"left out: {len(logprobs)} for {len(ids)} tokens"
            return "token", ids, (), ()
        if not self.weighed or not whole:
            return "none", (), (), ()
        said = [w.token for w in self.weighed]
        if said[-1] and "".join(said) == text and "\ufffd" not in text:  # as mostly: nothing apart, nothing cut
            return "text", (), tuple(said), logprobs
        found = spelling(text, [w.raw() for w in self.weighed])
        if found is None:
            self.extra["logprobs"] = "left out: the pieces do not spell the text"
            return "none", (), (), ()
        first, pieces = found
        return ("text" if pieces else "none"), (), pieces, logprobs[first : first + len(pieces)]


def _spelled(text: str, tokens: Sequence[bytes]) -> tuple[str, ...]:
    """The text of each token; none where they do not begin with the text."""
    pieces, _ = _read(tokens)
    return tuple(pieces) if "".join(pieces).startswith(text) else ()


def spelling(text: str, tokens: Sequence[bytes]) -> tuple[int, tuple[str, ...]] | None:
    """The last run of tokens that begins with the text, as its first index and the text of each; None where there is
    none.

    Thinking before the text is skipped. The last token may go beyond the text: a stop sequence cut it there.
    """
    if not text:
        return 0, ()
    pieces, begins = _read(tokens)
    joined, ends = "".join(pieces), list(accumulate(map(len, pieces)))
    start = joined.rfind(text)
    while start >= 0:
        if (first := begins.get(start)) is not None:
            return first, tuple(pieces[first : bisect_left(ends, start + len(text)) + 1])
        start = joined.rfind(text, 0, start + len(text) - 1)
    return None


def _read(tokens: Sequence[bytes]) -> tuple[list[str], dict[int, int]]:
    """The text of each token, and by place in the whole text the token that begins there.

    A character that spans several tokens stands in the last of them, and bytes that are no character are read as
    U+FFFD, as servers do.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces: list[str] = []
    begins: dict[int, int] = {}
    place = 0
    for index, token in enumerate(tokens):
        if token and not decoder.getstate()[0]:  # not in the middle of a character
            begins[place] = index
        pieces.append(decoder.decode(token))
        place += len(pieces[-1])
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    return pieces, begins


def most_chars(request: Request) -> int:
    """Longest reply that is believed, in characters: no token is that long on average."""
    return 65_536 + 64 * request.sampling.max_tokens


def most_bytes(request: Request) -> int:
    """Longest stream that is read: every token comes in a wrapping of its own, with its logprobs."""
    return 4 * 1024 * 1024 + 8192 * request.sampling.max_tokens
