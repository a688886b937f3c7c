"""Session traces: what the Hub's page on the format asks for."""

from __future__ import annotations

import json

import msgspec

from exports.any_traces import SAID
from exports.reading import export
from exports.test_row_formats import CALLING, RESULT, SYSTEM, USER, make
from foretrace.exports.base import Family


def test_a_session_has_a_title_and_results_that_name_their_calls() -> None:
    asked = msgspec.structs.replace(USER, content="\n  Count the files.\nThen stop.")
    head, *lines = map(
        json.loads, export("hub_session", Family(make(SYSTEM, asked, CALLING, RESULT, SAID))).splitlines()
    )
    assert (head["type"], head["harness"], head["id"], head["name"]) == (
        "session",
        "foretrace",
        "k",
        "Count the files.",
    )
    assert {line["type"] for line in lines} == {"message"}
    messages = [line["message"] for line in lines]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "assistant"]
    (call,) = messages[2]["toolCalls"]
    assert call["function"] == {"name": "run", "arguments": '{"x": 1}'} and messages[2]["model"] == "m"
    assert messages[3]["toolCallId"] == call["id"] and messages[2]["reasoningContent"] == "Hm."
    assert "name" not in json.loads(export("hub_session", Family(make(SAID))).splitlines()[0])
