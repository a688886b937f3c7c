"""Traces that hypothesis makes up."""

from __future__ import annotations

from hypothesis import strategies as st

from foretrace.core.trace import (
    Failure,
    Message,
    Outcome,
    Parent,
    Part,
    Provenance,
    Sampled,
    Task,
    TestCounts,
    ToolCall,
    ToolSpec,
    Trace,
    Usage,
)

text = st.text(max_size=20)
maybe_text = st.none() | text
seconds = st.none() | st.floats(0, 1e6)
numbers = st.integers(0, 2**31 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
extra = st.dictionaries(text, json_values, max_size=2)


def tuples(of: st.SearchStrategy, most: int = 3) -> st.SearchStrategy:
    return st.lists(of, max_size=most).map(tuple)


calls = st.builds(
    ToolCall,
    id=text,
    name=text,
    span=st.none() | st.tuples(numbers, numbers),
    repairs=tuples(text),
    error=maybe_text,
    extra=extra,
)
sampled = st.builds(
    Sampled,
    token_ids=tuples(numbers),
    logprobs=tuples(st.floats(max_value=0, allow_nan=False)),
    prompt_token_ids=st.none() | tuples(numbers),
    finish_reason=maybe_text,
    usage=st.none() | st.builds(Usage, prompt_tokens=st.none() | numbers),
    exact=st.sampled_from(["token", "text", "none"]),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    author=st.sampled_from(["model", "environment", "user", "demo"]),
    content=text,
    parts=tuples(st.builds(Part, type=text, ref=maybe_text, at=numbers)),
    reasoning=maybe_text,
    tool_calls=tuples(calls),
    tool_call_ids=tuples(text),
    is_error=st.none() | st.booleans(),
    turn=numbers,
    train=st.none() | st.booleans(),
    prefix=text,
    sampled=st.none() | sampled,
    model_s=seconds,
    tool_s=seconds,
    started=maybe_text,
    extra=extra,
)
traces = st.builds(
    Trace,
    key=st.text(min_size=1, max_size=20),
    task=st.builds(Task, id=text, group=text, statement=maybe_text, extra=extra),
    tools=tuples(st.builds(ToolSpec, name=text, description=text)),
    messages=tuples(messages, 4),
    outcome=st.builds(
        Outcome,
        status=st.sampled_from(["done", "error", "limit", "cancelled"]),
        success=st.none() | st.booleans(),
        reward=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        tests=st.none() | st.builds(TestCounts, passed=numbers, total=numbers),
        error=st.none() | st.builds(Failure, kind=text, message=text),
        metrics=st.dictionaries(text, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
    ),
    provenance=st.builds(
        Provenance, origin=st.sampled_from(["imported", "generated"]), source=text, raw_row=st.none() | numbers
    ),
    parent=st.none() | st.builds(Parent, key=text, call_id=maybe_text),
    extra=extra,
)
