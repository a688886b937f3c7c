"""The record: canonical JSON, ids, steps."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from core.any_traces import traces
from foretrace.core import token_arrays
from foretrace.core.digest import digest, hash_fraction
from foretrace.core.trace import (
    Message,
    Outcome,
    Provenance,
    Sampled,
    Task,
    ToolCall,
    Trace,
    compute_trace_id,
    decode_trace,
    encode_trace,
)

replace = msgspec.structs.replace


@given(traces)
def test_canonical_json_comes_back_and_is_one_form(trace: Trace) -> None:
    bare, _ = token_arrays.pack(trace)
    data = encode_trace(bare)
    assert decode_trace(data) == bare
    assert encode_trace(decode_trace(data)) == data


@given(traces)
def test_token_arrays_come_back_from_bytes(trace: Trace) -> None:
    bare, packed = token_arrays.pack(trace)
    assert (packed is None) == all(m.sampled is None for m in trace.messages)
    assert (token_arrays.unpack(bare, packed) if packed else bare) == trace
    assert all(not m.sampled.token_ids and not m.sampled.logprobs for m in bare.messages if m.sampled)


def a_trace() -> Trace:
    messages = (
        Message(role="user", author="user", content="do"),
        Message(role="assistant", author="model", content="ok", sampled=Sampled(token_ids=(1, 2), logprobs=(-0.5, -1))),
    )
    return Trace(
        key="k",
        task=Task(id="t", group="g"),
        messages=messages,
        provenance=Provenance(origin="imported", source="s"),
        outcome=Outcome(success=True, metrics={"steps": 1.0, "wall_s": 3.0}),
    )


def with_message(trace: Trace, index: int, **changes: object) -> Trace:
    messages = list(trace.messages)
    messages[index] = replace(messages[index], **changes)
    return replace(trace, messages=tuple(messages))


def with_provenance(trace: Trace, **changes: object) -> Trace:
    return replace(trace, provenance=replace(trace.provenance, **changes))


@pytest.mark.parametrize(
    "other",
    [
        with_message(a_trace(), 1, sampled=Sampled(token_ids=(1, 2), logprobs=(-9.0, -9.0))),
        with_message(a_trace(), 1, model_s=2.0),
        with_message(a_trace(), 0, tool_s=2.0, started="2020-01-01T00:00:00Z"),
        with_provenance(a_trace(), created_at="2020-01-01", tool_versions={"foretrace": "9"}, run="r7"),
        with_provenance(a_trace(), raw_file="elsewhere.jsonl", raw_row=17),
        with_provenance(a_trace(), capabilities={"reasons": {"token_ids": "not offered"}}),
        replace(a_trace(), outcome=Outcome(success=True, metrics={"steps": 1.0, "wall_s": 99.0})),
        replace(a_trace(), id="stale"),
    ],
)
def test_id_does_not_see_clocks_logprobs_or_where_it_was_read(other: Trace) -> None:
    assert compute_trace_id(other) == compute_trace_id(a_trace())


@pytest.mark.parametrize(
    "other",
    [
        with_message(a_trace(), 0, content="do it"),
        with_message(a_trace(), 1, sampled=Sampled(token_ids=(1, 3), logprobs=(-0.5, -1))),
        with_message(a_trace(), 1, train=False),
        with_message(a_trace(), 1, tool_calls=(ToolCall(name="x"),)),
        with_message(a_trace(), 0, extra={"a": 1}),
        replace(a_trace(), key="k2"),
        replace(a_trace(), task=Task(id="t2", group="g")),
        replace(a_trace(), outcome=Outcome(success=None, metrics={"steps": 1.0})),
        replace(a_trace(), outcome=Outcome(success=True, metrics={"steps": 2.0})),
        replace(a_trace(), extra={"patch": ""}),
        with_provenance(a_trace(), model="m"),
    ],
)
def test_id_changes_with_content(other: Trace) -> None:
    assert compute_trace_id(other) != compute_trace_id(a_trace())


def test_digests_are_stable_and_unambiguous() -> None:
    assert digest("a", "bc") != digest("ab", "c") != digest("abc")
    assert digest("\ud800")  # half a character is no reason to fall over
    assert 0 <= hash_fraction("seed", "key", "3") < 1
    assert hash_fraction("seed", "key") == hash_fraction("seed", "key")


def steps_of(*spec: tuple[str, str]) -> list[tuple[str, list[str]]]:
    """From (role, ids), what each step's observations answer, by content."""
    messages = []
    for number, (role, ids) in enumerate(spec):
        names = tuple(ids.split())
        if role == "assistant":
            calls = tuple(ToolCall(id=i, name="f") for i in names)
            messages.append(Message(role="assistant", author="model", content=str(number), tool_calls=calls))
        else:
            messages.append(Message(role=role, author="environment", content=str(number), tool_call_ids=names))
    trace = replace(a_trace(), messages=tuple(messages))
    return [(step.message.content, [m.content for m in step.observations]) for step in trace.steps()]


def test_steps_find_their_observations() -> None:
    plain = steps_of(("user", ""), ("assistant", ""), ("tool", ""), ("tool", ""), ("assistant", ""))
    assert plain == [("1", ["2", "3"]), ("4", [])]
    batched = steps_of(("assistant", "a"), ("assistant", "b"), ("tool", "a"), ("tool", "b"))
    assert batched == [("0", ["2"]), ("1", ["3"])]
    parallel = steps_of(("assistant", "a b"), ("tool", "b"), ("tool", "a"), ("tool", "z"))
    assert parallel == [("0", ["1", "2"])]
    together = steps_of(("assistant", "a b"), ("tool", "a b"))
    assert together == [("0", ["1"])]
    again = steps_of(("assistant", "0"), ("user", ""), ("assistant", "0"), ("tool", "0"))
    assert again == [("0", []), ("2", ["3"])], "an id that is used again does not answer an earlier call"


def test_steps_of_many_unanswered_calls_take_no_quadratic_time() -> None:
    assert len(steps_of(*[("assistant", f"c{n}") for n in range(20_000)])) == 20_000


OLD = (
    b'{"key":"k","id":"79e0d04a2dc7696024147f52a652ee5e","task":{"id":"t","group":"g"},"messages":[{"role":"user",'
    b'"author":"user","content":"a \\"licence\\": b"},{"role":"assistant","author":"model","content":"hi","turn":1}],'
    b'"provenance":{"origin":"imported","source":"s","raw_id":"has \\"license\\": in it","licence":"MIT","agent":"a",'
    b'"sampling":{"license":1}},"extra":{"licence":2,"license":3}}'
)
"""What foretrace wrote when the field was called `licence`."""


def test_traces_with_the_old_name_of_the_license_are_read_and_keep_their_id() -> None:
    trace = decode_trace(OLD)
    assert trace.provenance.license == "MIT" and trace.extra == {"licence": 2, "license": 3}
    assert compute_trace_id(trace) == trace.id
    assert b'"license":"MIT"' in encode_trace(trace) and decode_trace(encode_trace(trace)) == trace
    with pytest.raises(msgspec.ValidationError):
        decode_trace(OLD.replace(b'"agent":', b'"agents":'))
