"""Traces that hypothesis makes up, of conversations as agents have them: replies, calls, results in any order."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from core import any_traces as anything
from foretrace.core.trace import Message, Part, Provenance, Sampled, Task, ToolCall, ToolSpec, Trace, Usage
from foretrace.encodings.json_arguments import encode_json

WORDS = st.text(alphabet="ab <>{}[]\"'\n\u00e9\U0001f600\x00", max_size=8)
NAMES = st.text(alphabet="abc_", min_size=1, max_size=5)
OBJECTS = st.dictionaries(anything.text, anything.json_values, max_size=3).map(encode_json)
IDS = st.sampled_from(["", "a", "b", "c", "[1, 2]"])
STARTED = st.none() | st.sampled_from(
    ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01.500+00:00", "2025-12-31T23:00:00", "never", ""]
)
SECONDS = st.none() | st.floats(0, 1e5)
PARTS = st.lists(
    st.builds(
        Part,
        type=st.sampled_from(["image", "image_url", "file"]),
        media_type=st.sampled_from(["image/png", "", "text/csv"]),
        ref=st.none() | st.sampled_from(["images/1.png", "https://a/b", "data:x"]),
        at=st.integers(0, 9),
    ),
    max_size=2,
).map(tuple)
CALLS = st.builds(
    ToolCall,
    id=IDS,
    name=NAMES,
    arguments=OBJECTS | st.sampled_from(["{}", '{"a":  1}', "[1]", "not JSON", '{"a": NaN}', '{"n": 1e400}']),
    repairs=anything.tuples(NAMES, 1),
    error=st.none() | NAMES,
    extra=anything.extra,
)
NUMBERS = st.integers(0, 2**31 - 1)
SAMPLED = st.builds(
    Sampled,
    token_ids=anything.tuples(NUMBERS),
    logprobs=anything.tuples(st.floats(max_value=0, allow_nan=False)),
    prompt_token_ids=st.none() | anything.tuples(NUMBERS),
    finish_reason=st.none() | NAMES,
    usage=st.none() | st.builds(Usage, prompt_tokens=st.none() | NUMBERS, completion_tokens=st.none() | NUMBERS),
    exact=st.sampled_from(["token", "text", "none"]),
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any role, as odd as the record allows."""
    role = draw(st.sampled_from(["system", "user", "assistant", "assistant", "tool", "tool"]))
    authors = {"assistant": ["model", "model", "environment", "demo"], "tool": ["environment", "demo"]}
    content = draw(WORDS)
    calls = draw(st.lists(CALLS, max_size=2)) if role == "assistant" else []
    if calls and draw(st.booleans()):
        calls[0] = msgspec.structs.replace(calls[0], span=(0, len(content)))
    return Message(
        role=role,
        author=draw(st.sampled_from(authors.get(role, ["user", "environment", "demo"]))),
        content=content,
        parts=draw(PARTS),
        reasoning=draw(st.none() | WORDS) if role == "assistant" else None,
        tool_calls=tuple(calls),
        tool_call_ids=draw(anything.tuples(st.sampled_from(["a", "b", "c"]), 2)) if role == "tool" else (),
        is_error=draw(st.none() | st.booleans()) if role == "tool" else None,
        turn=draw(st.integers(0, 9)),
        continues=draw(st.booleans()),
        injected=role == "tool" and draw(st.booleans()),
        train=draw(st.none() | st.booleans()),
        train_weight=draw(st.none() | st.floats(0, 1)),
        prefix=draw(st.sampled_from(["", "", "OBSERVATION:\n"])) if role == "tool" else "",
        raw_role=draw(st.none() | NAMES),
        raw_index=draw(st.none() | st.integers(0, 9)),
        sampled=draw(st.none() | SAMPLED),
        model_s=draw(SECONDS) if role == "assistant" else None,
        tool_s=draw(SECONDS) if role == "tool" else None,
        started=draw(STARTED),
        model_s_source=draw(st.sampled_from([None, "runner", "span", "stamps"])) if role == "assistant" else None,
        extra=draw(anything.extra),
    )


SAID = Message(role="assistant", author="model", content="Done.")


@st.composite
def traces(draw: st.DrawFn, key: str | None = None, **more: Any) -> Trace:
    """A trace in which the model says something."""
    said = draw(st.lists(messages(), max_size=6))
    said.insert(draw(st.integers(0, len(said))), SAID)
    schemas = OBJECTS | st.sampled_from(['{"type":"object"}', '{"type": "object", "type": "x"}', "not JSON", ""])
    tools = st.builds(ToolSpec, name=NAMES, description=WORDS, parameters=schemas)
    whole = draw(anything.traces)
    return msgspec.structs.replace(
        whole,
        key=key or draw(st.text(alphabet="ab/@: ", min_size=1, max_size=9)),
        task=draw(st.builds(Task, id=NAMES, group=NAMES, statement=st.none() | WORDS, extra=anything.extra)),
        tools=tuple(draw(st.lists(tools, max_size=2))),
        messages=tuple(said),
        provenance=draw(
            st.builds(
                Provenance,
                origin=st.sampled_from(["imported", "generated"]),
                source=NAMES,
                agent=st.none() | NAMES,
                model=st.none() | NAMES,
                tool_versions=st.dictionaries(NAMES, NAMES, max_size=1),
            )
        ),
        **more,
    )
