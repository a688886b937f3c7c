"""Records with fields that this version does not know."""

from __future__ import annotations

import json

import msgspec
import pytest

from foretrace.core.trace import Message, Part, ToolCall, encode_trace
from foretrace.core.unknown_fields import decode_known
from report.hostile_traces import make_trace


def test_what_is_known_is_read_and_the_rest_is_named() -> None:
    call = ToolCall(name="bash", arguments='{"mood": 1}')
    trace = make_trace((Message(role="assistant", author="model", tool_calls=(call,), parts=(Part(type="image"),)),))
    assert decode_known(encode_trace(trace)) == (trace, ())
    record = json.loads(encode_trace(trace))
    record["mood"] = {"a": [1]}
    record["messages"][0]["tool_calls"][0]["cost"] = 2
    record["messages"][0]["parts"][0]["page"] = None
    record["provenance"]["sampling"] = {"any": 1}  # a mapping has any keys
    read, unknown = decode_known(json.dumps(record).encode())
    assert set(unknown) == {"mood", "messages.tool_calls.cost", "messages.parts.page"}
    assert read.messages == trace.messages and read.provenance.sampling == {"any": 1}


def test_what_is_no_trace_is_refused() -> None:
    record = json.loads(encode_trace(make_trace((Message(role="user", author="user"),))))
    record["messages"][0]["role"] = "critic"
    with pytest.raises(msgspec.ValidationError, match="critic"):
        decode_known(json.dumps(record).encode())
