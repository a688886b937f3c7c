"""A model as the engine uses it: within its slots, paused while the server recovers, and with its tokens counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

import msgspec

from foretrace.core.completion import Capabilities, Completion, Request
from foretrace.core.errors import ModelError
from foretrace.episodes.generate.limiter import Slots
from foretrace.models.base import ChatModel
from foretrace.models.rate_limits import LONGEST_PAUSE_S
from foretrace.models.retry import RESTING

PASSING = frozenset({"refused", "timeout", "busy", "server", "stream", "empty"})
"""Kinds of failure that may pass: a whole episode is worth a second try."""
_STRIKES = PASSING - {"empty"} | {"dns", "tls", "bad_reply"}
"""Kinds that speak of the server and not of one request."""
_TOO_MUCH = frozenset({"busy", "timeout"})
"""Kinds of failure that fewer requests at a time would have avoided."""
_CHARACTERS = 4
"""Characters a token, where a server does not count them."""


class Meter:
    """Tokens that were used."""

    def __init__(self) -> None:
        self.prompt = self.completion = self.requests = 0
        self.estimated = False
        """Whether the server left a count out, and it was estimated from the text's length."""

    @property
    def tokens(self) -> int:
        """Of prompts and completions."""
        return self.prompt + self.completion

    def add(self, request: Request, completion: Completion) -> int:
        """Count one completion; returns its own tokens."""
        usage = completion.usage
        given = usage.prompt_tokens if usage else None
        made = usage.completion_tokens if usage else None
        self.estimated = self.estimated or given is None or made is None
        if given is None:
            ids, text = request.prompt_ids, len(request.prefill) + sum(len(m.content) for m in request.messages)
            given = text // _CHARACTERS if ids is None else len(ids)
        if made is None:
            made = (len(completion.text) + len(completion.reasoning or "")) // _CHARACTERS
        self.requests += 1
        self.prompt += given
        self.completion += made
        return made


class Counted:
    """A `ChatModel` on top of another, which also counts what one attempt uses."""

    def __init__(self, model: ChatModel) -> None:
        self.name, self.spec, self.endpoint = model.name, model.spec, model.endpoint
        self._model = model
        self.used = Meter()

    async def probe(self) -> Capabilities:
        """See `ChatModel.probe`."""
        return await self._model.probe()

    async def complete(self, request: Request) -> Completion:
        """See `ChatModel.complete`."""
        completion = await self._model.complete(request)
        self.used.add(request, completion)
        return completion

    async def close(self) -> None:
        """The model is not this attempt's to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Spending:
    """What the attempts of a run have used, each for itself."""

    def __init__(self) -> None:
        self.ended = Meter()
        """Of those that ended, together."""
        self.count = 0
        """How many ended that have used anything."""
        self._running: list[Meter] = []

    @property
    def running(self) -> tuple[Meter, ...]:
        """Of each attempt in flight."""
        return tuple(self._running)

    def begin(self, model: ChatModel) -> Counted:
        """The model for one attempt, which is in flight from now on."""
        counted = Counted(model)
        self._running.append(counted.used)
        return counted

    def end(self, counted: Counted) -> None:
        """The attempt is over."""
        used = counted.used
        self._running.remove(used)
        self.count += used.tokens > 0
        self.ended.prompt += used.prompt
        self.ended.completion += used.completion


class Steady:
    """A `ChatModel` on top of another, for many episodes at one time.

    Failures that speak of the server are counted by rounds (all requests that were under way together are one), with
    a growing pause after each; `give_up` of them without a success between are final. A model that tries again by
    itself is heard at its first failure (`models/_retry.py`): the slots become fewer at once, and the pause that the
    server asks for holds for all requests.
    """

    def __init__(self, model: ChatModel, slots: Slots, meter: Meter, *, give_up: int = 5, pause_s: float = 1.0) -> None:
        self.name, self.spec, self.endpoint = model.name, model.spec, model.endpoint
        self._model, self._slots, self._meter = model, slots, meter
        self._give_up, self._pause_s = give_up, pause_s
        self._strikes = 0
        self._struck = float("-inf")
        """When the last round of failures was counted."""
        self.trouble = ""
        """Kind of the last failure, while no request has been served since."""
        self._until = 0.0
        """Time (of `time.monotonic`) before which nothing is sent."""

    async def probe(self) -> Capabilities:
        """See `ChatModel.probe`."""
        return await self._model.probe()

    async def complete(self, request: Request) -> Completion:
        """See `ChatModel.complete`.

        Raises:
            ModelError: final, too, when the server has failed `give_up` times in a row, or asks for a pause that nobody
                would sit through.
        """
        async with self._slots:
            first = begun = await self._allowed()
            heard = False

            async def rest(failure: ModelError, seconds: float) -> None:
                nonlocal begun, heard
                heard, self.trouble = True, failure.kind
                if failure.kind not in _TOO_MUCH:
                    await asyncio.sleep(seconds)
                    return
                self._slots.trouble(begun)
                self._until = max(self._until, time.monotonic() + (failure.retry_after_s or 0.0))
                await self._slots.without(asyncio.sleep(seconds))
                begun = await self._allowed()

            resting = RESTING.set(rest)
            try:
                completion = await self._model.complete(request)
            except ModelError as error:
                self._failed(error, first, begun)
                raise
            finally:
                RESTING.reset(resting)
            self._strikes, self.trouble = 0, ""
            made = self._meter.add(request, completion)
            if not heard and _TOO_MUCH.intersection(completion.extra.get("retried", ())):
                self._slots.trouble(begun)
            else:
                self._slots.went_well(begun, max(1, made))
            return completion

    async def _allowed(self) -> float:
        """Wait until the pause is over; returns the time."""
        while (rest := self._until - time.monotonic()) > 0:
            await asyncio.sleep(rest)
        return time.monotonic()

    def _failed(self, error: ModelError, first: float, begun: float) -> None:
        """A request failed for good, whose first try began at `first` and whose last at `begun`."""
        if error.kind not in _STRIKES:
            return
        self.trouble = error.kind
        self._slots.trouble(begun)
        if (asked := error.retry_after_s or 0.0) > LONGEST_PAUSE_S:
            told = f"{error}; it asks to wait {asked / 3600:.3g} hours: run the same command again then"
            raise ModelError(told, kind=error.kind, final=True) from None
        if first <= self._struck:
            return
        self._struck = time.monotonic()
        self._strikes += 1
        if self._strikes >= self._give_up:
            told = f"{error}; gave up after {self._strikes} rounds of failures in a row"
            raise ModelError(told, kind=error.kind, final=True) from None
        pause = max(self._pause_s * 2 ** (self._strikes - 1), asked)
        self._until = time.monotonic() + pause

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run may use. No attempt is begun that would probably go beyond it; those in flight are finished."""

    tokens: int | None = None
    """Of prompts and completions."""
    seconds: float | None = None
    cost: float | None = None
    price_in: float = 0.0
    """Of a million prompt tokens, in the unit of `cost`."""
    price_out: float = 0.0
    """Of a million completion tokens."""

    def cost_of(self, meter: Meter) -> float:
        """What was spent."""
        return (meter.prompt * self.price_in + meter.completion * self.price_out) / 1e6

    def over(self, seconds: float) -> str | None:
        """Why no further attempt may begin from now on; null where the time is not over."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"the time of {self.seconds:g} s is over"
        return None

    def full(self, spending: Spending, *, guess: int) -> str | None:
        """Why no further attempt may begin beside those in flight; null where one may. The first one always may.

        Args:
            guess: tokens that an attempt may use at most: what is reckoned with as long as none has ended.
        """
        if not spending.running and not spending.count:
            return None
        dearer = max(self.price_in, self.price_out)
        if self.tokens is not None and _beyond(self.tokens, _tokens, spending, guess):
            return f"the budget of {self.tokens:,} tokens has no room for another attempt"
        if self.cost is not None and _beyond(self.cost, self.cost_of, spending, guess * dearer / 1e6):
            return f"the budget of {self.cost:g} has no room for another attempt"
        return None


def _tokens(meter: Meter) -> float:
    return meter.tokens


def _beyond(most: float, of: Callable[[Meter], float], spending: Spending, guess: float) -> bool:
    """Whether one more attempt would probably use more than there is: each one in flight is reckoned to use as much
    as the average of those that ended, or what it has used already."""
    each = of(spending.ended) / spending.count if spending.count else guess
    return of(spending.ended) + sum(max(each, of(one)) for one in spending.running) + each > most
