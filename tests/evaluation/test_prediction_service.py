"""The service: predictions of a turn, narrowed by what is written, checked calls, and lines that cannot be served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from foretrace.actions.taxonomy import Effect
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.core.trace import Message, ToolSpec
from foretrace.evaluation import prediction_service
from foretrace.evaluation.prediction_service import PredictionService, ServiceCounts


def guess(action: str, tool: str, arguments: dict[str, Any], confidence: float | None) -> Prediction:
    calls = (PredictedCall(tool, json.dumps(arguments)),)
    return Prediction(key="", step=0, action=action, calls=calls, confidence=confidence)


VIEW = guess("file_read", "view", {"path": "src/parser.py", "first": 1, "last": 20}, 0.5)
LS = guess("retrieval", "bash", {"command": "ls src"}, 0.3)
TEST = guess("verifier", "bash", {"command": "pytest -q"}, None)
TYPE = guess("file_write", "edit", {}, 0.1)
NOTHING = Prediction(key="", step=0, action=None, completion="Hm.")
MESSAGES = [{"role": "user", "content": "Fix the parser."}]


class Client:
    """Talks with a service whose predictor says the same of every prompt."""

    def __init__(self, *guesses: Prediction, wait: asyncio.Event | None = None) -> None:
        self.counts = ServiceCounts()
        self.asked: list[tuple[list[str], list[str]]] = []

        async def ask(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Sequence[Prediction]:
            self.asked.append(([message.content for message in messages], [tool.name for tool in tools]))
            if wait is not None:
                await wait.wait()
            if "explode" in messages[-1].content:
                raise KeyError("of a user's own predictor")
            return guesses

        self.service = PredictionService(ask, {Effect.PURE_READ}, self.counts)

    async def send(self, kind: str, turn: str = "a", **fields: Any) -> Any:
        return json.loads(await self.service.answer(json.dumps({"type": kind, "turn": turn, **fields}).encode()))

    def talk(self, *lines: tuple[str, dict[str, Any]]) -> list[Any]:
        async def run() -> list[Any]:
            return [await self.send(kind, **fields) for kind, fields in lines]

        return asyncio.run(run())


BEGIN = ("turn_begins", {"messages": MESSAGES})


def name_predicted(reply: Any) -> list[tuple[str | None, Any, float | None]]:
    assert reply["type"] == "predictions"
    return [(each["tool"], each["arguments"], each["confidence"]) for each in reply["predictions"]]


def test_a_turn() -> None:
    client = Client(VIEW, LS, TEST, TYPE, NOTHING)
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("view", "bash", "edit")]
    began, hit, missed, ended = client.talk(
        ("turn_begins", {"messages": MESSAGES, "tools": tools}),
        ("call", {"name": "bash", "arguments": {"command": "ls src"}}),
        ("call", {"name": "bash", "arguments": '{"command": "rm -rf src"}'}),
        ("turn_ends", {}),
    )
    assert client.asked == [(["Fix the parser."], ["view", "bash", "edit"])]
    assert [(each["action"], each["effect"], each["may_run_ahead"]) for each in began["predictions"]] == [
        ("file_read", "pure_read", True),
        ("retrieval", "pure_read", True),
        ("verifier", "sandbox_exec", False),
        ("file_write", "unknown", False),
    ]
    assert began["predictions"][0]["arguments"]["last"] == 20 and began["predictions"][2]["confidence"] is None
    assert hit == {"type": "call", "turn": "a", "rank": 2, "effect": "pure_read", "may_run_ahead": True}
    assert (missed["rank"], missed["may_run_ahead"]) == (None, False)
    assert ended == {"type": "turn_ends", "turn": "a"}
    assert client.counts == ServiceCounts(turns=1, calls=2, first=0, predicted=1)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ("", [VIEW]), ('{"pa', [VIEW]), ('{"path": "src/pa', [VIEW]), ('{"last": 2', [VIEW]),
        ('{"last": 20, "path": "src/parser.py", "fi', [VIEW]), ('{"path": "src/pb', []),
        ('{"last": 3, "path": "s', []), ('{"other": 1', []),
    ],
)  # fmt: skip
def test_an_unfinished_call_keeps_what_it_may_become(arguments: str, kept: list[Prediction]) -> None:
    _, reply = Client(VIEW, LS).talk(BEGIN, ("text", {"calls": [{"name": "view", "arguments": arguments}]}))
    assert [each[0] for each in name_predicted(reply)] == [each.calls[0].tool for each in kept]


def test_a_whole_call_is_known_before_the_reply_ends() -> None:
    written = 'So.\n<tool_call>\n{"name": "bash", "arguments": {"command": "cat a.py"}}\n</tool_call>\nAnd'
    streamed = [{"name": "view", "arguments": '{"path": "a"}'}, {"name": "bash", "arguments": '{"command": "ls'}]
    replies = Client(VIEW, LS).talk(
        BEGIN, ("text", {"text": "Let me"}), ("text", {"text": written}), ("text", {"calls": streamed})
    )
    assert [each[0] for each in name_predicted(replies[1])] == ["view", "bash"], "nothing is known yet"
    assert name_predicted(replies[2]) == [("bash", {"command": "cat a.py"}, 1.0)]
    assert name_predicted(replies[3]) == [("view", {"path": "a"}, 1.0), ("bash", {"command": "ls src"}, 0.3)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\xff", "not understood"),
        (b"[1]", "not understood"),
        (b'{"type": "other", "turn": "a"}', "not understood: Invalid value 'other'"),
        (b'{"type": "turn_begins", "turn": "a"}', "missing required field `messages`"),
        (b'{"type": "turn_begins", "turn": "a", "messages": []}', "messages is empty"),
        (b'{"type": "turn_begins", "turn": "a", "messages": [3]}', "messages[0] is a int"),
        (b'{"type": "turn_begins", "turn": "a", "messages": [{"role": "martian", "content": "x"}]}', "'martian'"),
        (b'{"type": "turn_begins", "turn": "a", "messages": [{"role": "user", "content": "explode"}]}', "KeyError"),
        (b'{"type": "text", "turn": "a"}', "'a' is not open: send turn_begins first"),
        (b'{"type": "text", "turn": "\\ud800"}', "not understood"),
        (b'{"type": "turn_ends", "turn": "a"}', "'a' is not open"),
    ],
)
def test_what_cannot_be_served_is_an_error_and_the_next_line_is_served(line: bytes, error: str) -> None:
    client = Client(LS)
    refused = json.loads(asyncio.run(client.service.answer(line)))
    assert refused["type"] == "error" and error in refused["error"] and "\n" not in refused["error"]
    assert client.talk(BEGIN)[0]["type"] == "predictions"
    assert client.counts.errors == 1


def test_guesses_at_tools_that_the_agent_lacks_or_that_are_not_calls_are_left_out() -> None:
    tools = [{"name": "view", "input_schema": {}}]
    listed = Prediction(key="", step=0, action="file_read", calls=(PredictedCall("view", "[1]"),))
    (reply,) = Client(LS, listed, VIEW).talk(("turn_begins", {"messages": MESSAGES, "tools": tools}))
    assert [each[0] for each in name_predicted(reply)] == ["view"]


def test_turns_are_bounded_and_a_name_is_used_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_service, "MAX_OPEN_TURNS", 1)
    replies = Client(LS).talk(
        BEGIN, BEGIN, ("turn_begins", {"turn": "b", "messages": MESSAGES}), ("turn_ends", {}), BEGIN
    )
    assert [each["type"] for each in replies] == ["predictions", "error", "error", "turn_ends", "predictions"]
    assert "is open already" in replies[1]["error"] and "1 turns are open" in replies[2]["error"]


def test_the_lines_of_a_turn_are_answered_in_their_order_and_others_do_not_wait() -> None:
    async def run() -> list[str]:
        slow = asyncio.Event()
        client, order = Client(LS, wait=slow), list[str]()

        async def note(kind: str, turn: str, **fields: Any) -> None:
            order.append(f"{turn} {(await client.send(kind, turn, **fields))['type']}")

        lines = [
            note("turn_begins", "a", messages=MESSAGES),
            note("text", "a"),
            note("turn_ends", "a"),
            note("text", "b"),
            note("turn_begins", "a", messages=MESSAGES),
        ]
        tasks = [asyncio.create_task(line) for line in lines]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        slow.set()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run()) == [
        "b error",
        *(f"a {kind}" for kind in ("predictions", "predictions", "turn_ends", "predictions")),
    ]
