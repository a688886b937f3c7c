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
from foretrace.actions.same_action import canonicalize_json
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
    """Serves one client with the guesses that `ask` makes; calls with the `safe` effects may run ahead."""

    def __init__(self, ask: AskGuesser, safe: Collection[Effect], counts: ServiceCounts) -> None:
        self._ask, self._safe, self._counts = ask, safe, counts
        self._turns: dict[str, _Turn] = {}
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        """One lock per turn, held while one of its lines is answered."""

    async def answer(self, line: bytes) -> bytes:
        """The reply to one line, without a newline: an object of the `type` `predictions`, `call`, `turn_ends` or
        `error`. May be called before earlier lines are answered; the lines of one turn are answered in order."""
        turn: str | None = None
        try:
            request = _decode(line)
            turn = request.turn
            lock = self._locks.setdefault(request.turn, asyncio.Lock())
            async with lock:
                return msgspec.json.encode(await self._serve(request))
        except (msgspec.MsgspecError, UnicodeError) as error:
            why = f"not understood: {find_first_line(error)}"
        except RowError as error:
            why = f"messages: {error.drop.detail or error.drop.reason}"
        except Exception as error:  # a user's predictor may fail in any way; the service must survive it
            why = ("" if isinstance(error, ForetraceError) else f"{type(error).__name__}: ") + find_first_line(error)
        self._counts.errors += 1
        return msgspec.json.encode({"type": "error", "turn": turn, "error": why})

    async def _serve(self, request: TurnBegins | TextSoFar | CallKnown | TurnEnds) -> dict[str, Any]:
        name, turn = request.turn, self._turns.get(request.turn)
        if isinstance(request, TurnBegins):
            if turn is not None:
                raise UsageError(f"turn {name!r} is open already: end it, or use another name")
            return await self._begin(request)
        if turn is None:
            raise UsageError(f"turn {name!r} is not open: send turn_begins first")
        if isinstance(request, TurnEnds):
            del self._turns[name]
            return {"type": "turn_ends", "turn": name}
        if isinstance(request, CallKnown):
            return {"type": "call", "turn": name, **self._check(turn, request)}
        return {"type": "predictions", "turn": name, "predictions": self._narrow(turn, request)}

    async def _begin(self, request: TurnBegins) -> dict[str, Any]:
        if len(self._turns) >= MAX_OPEN_TURNS:
            raise UsageError(f"{MAX_OPEN_TURNS:,} turns are open: end some of them (turn_ends)")
        tools = read_tool_specs(request.tools)
        names = {tool.name for tool in tools}
        messages = make_messages(flatten_turns(enumerate(check_objects(request.messages, "messages")), (None, None)))
        guesses = [
            guess
            for guess in await self._ask(messages, tools)
            if guess.action is not None
            and all(_is_object(call.arguments) and (not names or call.tool in names) for call in guess.calls)
        ]
        turn = self._turns[request.turn] = _Turn(tools, guesses)
        self._counts.turns += 1
        predictions = [self._describe(turn, guess) for guess in guesses]
        return {"type": "predictions", "turn": request.turn, "predictions": predictions}

    def _check(self, turn: _Turn, request: CallKnown) -> dict[str, Any]:
        """The rank of a call among the predictions at the start of the turn, from 1, and whether it may run ahead."""
        call = ToolCall(name=request.name, arguments=_write_arguments(request.arguments))
        own = call.name, canonicalize_json(call.arguments)
        same = (
            rank
            for rank, guess in enumerate(turn.guesses, 1)
            if own in [(each.tool, canonicalize_json(each.arguments)) for each in guess.calls]
        )
        rank, effect = next(same, None), classify_lone_call(call, turn.tools).effect
        self._counts.calls += 1
        self._counts.first += rank == 1
        self._counts.predicted += rank is not None
        return {"rank": rank, "effect": effect.value, "may_run_ahead": effect in self._safe}

    def _describe(self, turn: _Turn, guess: Prediction, *, is_known: bool = False) -> dict[str, Any]:
        """A prediction as it is served: confidence 1 for a call that is already complete in the text; the effect
        `unknown` if only the type is predicted."""
        call, effect = next(iter(guess.calls), None), Effect.UNKNOWN
        if call is not None and (is_known or call.arguments != "{}"):  # with {} only the type may be predicted
            effect = classify_lone_call(ToolCall(name=call.tool, arguments=call.arguments), turn.tools).effect
        return {
            "action": str(guess.action),
            "tool": None if call is None else call.tool,
            "arguments": {} if call is None else json.loads(call.arguments),
            "confidence": guess.confidence,
            "effect": effect.value,
            "may_run_ahead": effect in self._safe and len(guess.calls) == 1,
        }

    def _narrow(self, turn: _Turn, so_far: TextSoFar) -> list[dict[str, Any]]:
        known = [call for call in find_calls(so_far.text) if call.error is None]
        for each in so_far.calls:
            if _is_object(each.arguments):
                known.append(ToolCall(name=each.name, arguments=_write_arguments(each.arguments)))
        shown: list[dict[str, Any]] = []
        for call in known:
            action = find_lone_action(classify_lone_call(call, turn.tools))
            calls = (PredictedCall(call.name, call.arguments),)
            whole = Prediction(key="", step=0, action=action, calls=calls, confidence=1.0)
            shown.append(self._describe(turn, whole, is_known=True))
        guesses = () if known else turn.guesses
        if so_far.calls and not _is_object(so_far.calls[-1].arguments):
            unfinished = so_far.calls[-1]
            guesses = [guess for guess in turn.guesses if guess.calls and _may_become(unfinished, guess.calls[0])]
        return [*shown, *(self._describe(turn, guess) for guess in guesses)]


def _write_arguments(arguments: str | dict[str, Any]) -> str:
    return arguments or "{}" if isinstance(arguments, str) else json.dumps(arguments)


def _is_object(arguments: str | dict[str, Any]) -> bool:
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        return isinstance(value, dict) and bool(msgspec.json.encode(value))
    except (ValueError, RecursionError):
        return False


def _may_become(call: CallSoFar, guess: PredictedCall) -> bool:
    """Whether the arguments of a call, as far as they are written, agree with a guess."""
    import json_repair

    if call.name != guess.tool:
        return False
    written: Any = json_repair.loads(_write_arguments(call.arguments)[:_MAX_READ])
    if not written or not isinstance(written, dict):
        return True
    guessed = json.loads(guess.arguments)
    *whole, (last, value) = written.items()
    agrees = all(name in guessed and guessed[name] == value for name, value in whole)
    return agrees and last in guessed and _write(guessed[last]).startswith(_write(value))


def _write(value: Any) -> str:
    """The text of a value, such that the text of an unfinished value is a prefix of the text of the finished one."""
    return value if isinstance(value, str) else json.dumps(value).rstrip("]}")
