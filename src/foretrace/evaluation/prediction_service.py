"""A predictor as a service for a running agent: JSON lines in, JSON lines out (docs/speculation.md).

The agent's runtime reports the events of a turn: it begins, the model has written some text, a call is known, it ends.
The service answers with predictions, each with its confidence and effect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from foretrace.actions.label_steps import classify_lone_call, find_lone_action
from foretrace.actions.same_action import canonicalise_json
from foretrace.actions.taxonomy import Effect
from foretrace.core.errors import ForetraceError, UsageError, find_first_line
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.core.trace import Message, ToolCall, ToolSpec
from foretrace.encodings.calls_in_text import find_calls
from foretrace.sources.base import RowError
from foretrace.sources.openai_messages import check_objects, read_tool_specs
from foretrace.sources.row_messages import make_messages
from foretrace.sources.turn_items import flatten_turns

MAX_OPEN_TURNS = 10_000
"""Most open turns of one client."""
_MAX_READ = 100_000
"""Most characters of an unfinished call that are read."""

AskGuesser = Callable[[tuple[Message, ...], tuple[ToolSpec, ...]], Coroutine[Any, Any, Sequence[Prediction]]]
"""Maps all messages so far and the agent's tools to predictions, the likeliest first."""


class CallSoFar(msgspec.Struct, frozen=True):
    """A call of the model; the last one may be unfinished."""

    name: str
    arguments: str | dict[str, Any] = ""
    """JSON text, or an object."""


class TurnBegins(msgspec.Struct, frozen=True, tag="turn_begins"):
    """The model is asked for its next message."""

    turn: str
    messages: list[Any]
    """All messages so far, in the format of chat servers."""
    tools: list[Any] = []


class TextSoFar(msgspec.Struct, frozen=True, tag="text"):
    """The part of its message that the model has written."""

    turn: str
    text: str = ""
    """The text; complete calls in it are recognized."""
    calls: list[CallSoFar] = []
    """Native calls as streamed so far."""


class CallKnown(msgspec.Struct, frozen=True, tag="call"):
    """The model has made a call."""

    turn: str
    name: str
    arguments: str | dict[str, Any] = ""


class TurnEnds(msgspec.Struct, frozen=True, tag="turn_ends"):
    """The model's message is complete or was abandoned."""

    turn: str


class ServedPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction."""

    action: str
    tool: str | None
    arguments: dict[str, Any]
    confidence: float | None
    """Probability that it is right; 1 for a call that is already complete in the text."""
    effect: str
    """What the call would touch (`Effect`); `unknown` if only the type is predicted."""
    may_run_ahead: bool


class Predictions(msgspec.Struct, frozen=True, tag="predictions"):
    """Predictions of what comes next, the likeliest first."""

    turn: str
    predictions: list[ServedPrediction]


class CallChecked(msgspec.Struct, frozen=True, tag="call"):
    """Whether a call was predicted."""

    turn: str
    rank: int | None
    """Rank of the call among the predictions at the start of the turn, from 1; None if it was not predicted."""
    effect: str
    may_run_ahead: bool


class TurnEnded(msgspec.Struct, frozen=True, tag="turn_ends"):
    """The turn is closed."""

    turn: str


class Refused(msgspec.Struct, frozen=True, tag="error"):
    """A line that could not be served; the service continues."""

    error: str
    turn: str | None = None


class ServiceCounts(msgspec.Struct):
    """Totals of a service."""

    turns: int = 0
    calls: int = 0
    first: int = 0
    """Calls that were the first prediction of their turn."""
    predicted: int = 0
    """Calls that were any prediction of their turn."""
    errors: int = 0


class _Turn(NamedTuple):
    """One open turn. Its messages are read when it begins; only the tools and guesses are kept."""

    tools: tuple[ToolSpec, ...]
    guesses: Sequence[Prediction]


_decode = msgspec.json.Decoder(TurnBegins | TextSoFar | CallKnown | TurnEnds).decode


class PredictionService:
    """Serves one client.

    Args:
        ask: Makes the guesses.
        safe: Effects of calls that may run ahead.
        counts: Totals to add to.
    """

    def __init__(self, ask: AskGuesser, safe: Collection[Effect], counts: ServiceCounts) -> None:
        self._ask, self._safe, self._counts = ask, safe, counts
        self._turns: dict[str, _Turn] = {}
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        """One lock per turn, held while one of its lines is answered."""

    async def answer(self, line: bytes) -> bytes:
        """The reply to one line, without a newline: `Predictions`, `CallChecked`, `TurnEnded` or `Refused`.

        May be called before earlier lines are answered; the lines of one turn are answered in order.
        """
        turn: str | None = None
        try:
            request = _decode(line)
            turn = request.turn
            lock = self._locks.setdefault(request.turn, asyncio.Lock())
            async with lock:
                return msgspec.json.encode(await self._serve(request))
        except (msgspec.MsgspecError, UnicodeError) as error:
            refused = Refused(f"not understood: {find_first_line(error)}", turn)
        except RowError as error:
            refused = Refused(f"messages: {error.drop.detail or error.drop.reason}", turn)
        except Exception as error:  # a user's predictor may fail in any way; the service must survive it
            name = "" if isinstance(error, ForetraceError) else f"{type(error).__name__}: "
            refused = Refused(name + find_first_line(error), turn)
        self._counts.errors += 1
        return msgspec.json.encode(refused)

    async def _serve(self, request: TurnBegins | TextSoFar | CallKnown | TurnEnds) -> Any:
        turn = self._turns.get(request.turn)
        if isinstance(request, TurnBegins):
            if turn is not None:
                raise UsageError(f"turn {request.turn!r} is open already: end it, or use another name")
            return await self._begin(request)
        if turn is None:
            raise UsageError(f"turn {request.turn!r} is not open: send turn_begins first")
        if isinstance(request, TurnEnds):
            del self._turns[request.turn]
            return TurnEnded(request.turn)
        if isinstance(request, CallKnown):
            return self._check(turn, request)
        return Predictions(request.turn, self._narrow(turn, request))

    async def _begin(self, request: TurnBegins) -> Predictions:
        if len(self._turns) >= MAX_OPEN_TURNS:
            raise UsageError(f"{MAX_OPEN_TURNS:,} turns are open: end some of them (turn_ends)")
        tools = read_tool_specs(request.tools)
        names = {tool.name for tool in tools}
        guesses = [
            guess
            for guess in await self._ask(_read_messages(request.messages), tools)
            if guess.action is not None
            and all(_is_object(call.arguments) and (not names or call.tool in names) for call in guess.calls)
        ]
        turn = _Turn(tools, guesses)
        predictions = Predictions(request.turn, [self._describe(turn, each) for each in guesses])
        self._turns[request.turn] = turn
        self._counts.turns += 1
        return predictions

    def _check(self, turn: _Turn, request: CallKnown) -> CallChecked:
        call = ToolCall(name=request.name, arguments=_write_arguments(request.arguments))
        own = call.name, canonicalise_json(call.arguments)
        same = (
            rank
            for rank, guess in enumerate(turn.guesses, 1)
            if own in [(each.tool, canonicalise_json(each.arguments)) for each in guess.calls]
        )
        rank, effect = next(same, None), classify_lone_call(call, turn.tools).effect
        self._counts.calls += 1
        self._counts.first += rank == 1
        self._counts.predicted += rank is not None
        return CallChecked(request.turn, rank, effect.value, effect in self._safe)

    def _describe(self, turn: _Turn, guess: Prediction, *, is_known: bool = False) -> ServedPrediction:
        call = next(iter(guess.calls), None)
        effect = Effect.UNKNOWN
        if call is not None and (is_known or call.arguments != "{}"):  # with {} only the type may be predicted
            effect = classify_lone_call(ToolCall(name=call.tool, arguments=call.arguments), turn.tools).effect
        return ServedPrediction(
            action=str(guess.action),
            tool=None if call is None else call.tool,
            arguments={} if call is None else json.loads(call.arguments),
            confidence=guess.confidence,
            effect=effect.value,
            may_run_ahead=effect in self._safe and len(guess.calls) == 1,
        )

    def _narrow(self, turn: _Turn, so_far: TextSoFar) -> list[ServedPrediction]:
        """The complete calls so far, and the guesses that an unfinished call may still become."""
        known = [call for call in find_calls(so_far.text) if call.error is None]
        for each in so_far.calls:
            if _is_object(each.arguments):
                known.append(ToolCall(name=each.name, arguments=_write_arguments(each.arguments)))
        unfinished = next((each for each in so_far.calls[-1:] if not _is_object(each.arguments)), None)
        shown: list[ServedPrediction] = []
        for call in known:
            action = find_lone_action(classify_lone_call(call, turn.tools))
            calls = (PredictedCall(call.name, call.arguments),)
            whole = Prediction(key="", step=0, action=action, calls=calls, confidence=1.0)
            shown.append(self._describe(turn, whole, is_known=True))
        guesses = () if known else turn.guesses
        if unfinished is not None:
            guesses = [guess for guess in turn.guesses if guess.calls and _may_become(unfinished, guess.calls[0])]
        return [*shown, *(self._describe(turn, guess) for guess in guesses)]


def _read_messages(messages: list[Any]) -> tuple[Message, ...]:
    """Parse messages in the format of chat servers, including calls.

    Raises:
        RowError: a value is not such a message.
    """
    return make_messages(flatten_turns(enumerate(check_objects(messages, "messages")), (None, None)))


def _write_arguments(arguments: Any) -> str:
    return arguments or "{}" if isinstance(arguments, str) else json.dumps(dict(arguments))


def _is_object(arguments: str | dict[str, Any]) -> bool:
    """Whether arguments are a complete JSON object that can be encoded again."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        return isinstance(value, dict) and bool(msgspec.json.encode(value))
    except (ValueError, RecursionError):
        return False


def _may_become(call: CallSoFar, guess: PredictedCall) -> bool:
    """Whether the arguments of a call, as far as they are written, agree with a guess."""
    import json_repair

    written: Any = json_repair.loads(_write_arguments(call.arguments)[:_MAX_READ])
    guessed = json.loads(guess.arguments)
    if call.name != guess.tool:
        return False
    if not written or not isinstance(written, dict):
        return True
    *whole, (name, value) = written.items()
    agrees = all(name in guessed and guessed[name] == value for name, value in whole)
    return agrees and name in guessed and _write(guessed[name]).startswith(_write(value))


def _write(value: Any) -> str:
    """The text of a value, such that the text of an unfinished value is a prefix of the text of the finished one."""
    return value if isinstance(value, str) else json.dumps(value).rstrip("]}")
