"""Proposers, which guess a model's next calls while it writes, and how a guess is read as an act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from foretrace.core.entry_points import read_entry_point
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.core.python_source import try_parse
from foretrace.core.trace import Message, ToolSpec
from foretrace.episodes.transcript import TOOL_NAMES
from foretrace.problems.base import find_definitions
from foretrace.protocols.base import Act, Handling, Result


class Situation(NamedTuple):
    """An attempt before a reply of the model, as a proposer sees it."""

    key: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    handlings: frozenset[Handling] = frozenset()
    entry_point: str | None = None
    """What the answer must define."""
    code: str = ""
    """The answer so far."""
    last: Result | None = None


class Proposer(Protocol):
    """Guesses the next calls of a model."""

    name: str
    max_tokens: int = 0
    """Most tokens that one guess may take."""

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        """At most `k` guesses, the likeliest first; cancelled when the reply arrives."""
        ...

    async def start(self) -> None:
        """Make sure that it can answer."""

    async def close(self) -> None:
        """End everything that it started."""


class NextTests(Proposer):
    """Guesses that the model tests its answer as soon as it is complete, and submits it once it passes."""

    name = "tests"

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        """The tests and the final judging, if the protocol can ask for them (see `Proposer.propose`)."""
        last, calls = situation.last, list[tuple[str, str]]()
        if last is None or last.broken or not _is_whole(situation.code, situation.entry_point):
            return ()
        if "check" in situation.handlings and last.act.handling in ("block", "append"):
            calls = [("verifier", "run_tests"), ("final_answer", "submit")]
        elif last.act.handling == "test" and not last.failed:
            calls = [("final_answer", "submit")]
        step = len(situation.messages)
        return [
            Prediction(key=situation.key, step=step, rank=rank, action=action, calls=(PredictedCall(tool),))
            for rank, (action, tool) in enumerate(calls[:k], 1)
        ]


def _is_whole(code: str, entry_point: str | None) -> bool:
    """Whether code parses and defines what an answer must define."""
    wanted = None if entry_point is None else read_entry_point(entry_point)
    return wanted.name in find_definitions(code) if wanted else try_parse(code) is not None


class RecordedGuesses(Proposer):
    """Guesses from a file of predictions: `rows` by key of the attempt and index of the message, the best first."""

    def __init__(self, name: str, rows: Mapping[tuple[str, int], Sequence[Prediction]]) -> None:
        self.name, self._rows = name, rows

    async def propose(self, situation: Situation, k: int) -> Sequence[Prediction]:
        return self._rows.get((situation.key, len(situation.messages)), ())[:k]


def read_call(call: PredictedCall, handlings: frozenset[Handling]) -> Act | None:
    """The act that a guessed call stands for; `None` if the protocol has no such act."""
    handling: Handling | None = next(
        (one for one in TOOL_NAMES if one in handlings and TOOL_NAMES[one] == call.tool), None
    )
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    code = arguments.get("checks" if handling == "check" else "code", "")
    if handling is None or not isinstance(code, str):
        return None
    return Act(kind="code", span=(0, 0), code=code, handling=handling)
