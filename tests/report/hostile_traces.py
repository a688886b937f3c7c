"""Traces that a page must survive: markup in every field, and texts that a browser or a terminal would act on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from foretrace.core.trace import (
    Failure,
    Message,
    Outcome,
    Parent,
    Provenance,
    Sampled,
    Task,
    ToolCall,
    ToolSpec,
    Trace,
    add_trace_id,
)

MARKUP = (
    "</script><script>window.hacked=1</script><img src=http://example.invalid/x onerror=window.hacked=1>"
    "<svg onload=window.hacked=1><a href='javascript:window.hacked=1'>x</a>${window.hacked=1}'\"\\\u2028\u2029<!--"
)
ANSI = "\x1b[31;1mred\x1b[0m plain \x1b]0;title\x07\x1b[2J\x1b[38;5;200mpink\x1b[m \x00 end\u202e gnp.exe"
RTL = "\u05e9\u05dc\u05d5\u05dd \u0639\u0627\u0644\u0645 abc"


def make_trace(messages: tuple[Message, ...], key: str = "k", **given: Any) -> Trace:
    return add_trace_id(
        Trace(
            key=key,
            task=given.pop("task", Task(id="t", group="t")),
            messages=messages,
            provenance=given.pop("provenance", Provenance(origin="imported", source="s")),
            **given,
        )
    )


def make_hostile_trace() -> Trace:
    """Markup, colors and directions of text in a turn, sampled tokens, and keys of objects that mean something to a
    script. Every field of a record: `hostile_fields.make_filled_trace`."""
    arguments = json.dumps({"command": MARKUP, "__proto__": {"polluted": 1}, "constructor": MARKUP, "path": MARKUP})
    said = Message(
        role="assistant",
        author="model",
        content=f"{MARKUP}\n{ANSI}\n{RTL}",
        reasoning=MARKUP,
        tool_calls=(ToolCall(id=MARKUP, name=MARKUP, arguments=arguments, error=MARKUP, repairs=(MARKUP,)),),
        sampled=Sampled(
            token_ids=(1, 2, 3), logprobs=(-0.1, -30.0, float("-inf")), prompt_token_ids=(7, 8), finish_reason=MARKUP
        ),
        extra={"__proto__": MARKUP},
    )
    result = Message(
        role="tool", author="environment", content=f"{MARKUP}\n{ANSI}", tool_call_ids=(MARKUP,), is_error=True
    )
    return make_trace(
        (Message(role="user", author="user", content=MARKUP), said, result),
        key=f"hostile/{MARKUP}/7",
        task=Task(id=MARKUP, group=MARKUP, statement=MARKUP),
        tools=(ToolSpec(name=MARKUP, description=MARKUP, parameters=MARKUP),),
        outcome=Outcome(success=False, exit_reason=MARKUP, error=Failure(kind=MARKUP, message=MARKUP)),
        provenance=Provenance(origin="generated", source=MARKUP),
        extra={MARKUP: MARKUP},
    )


def make_long_trace(steps: int, key: str = "long") -> Trace:
    """Steps with a call and its result each, timed."""

    def write() -> Iterator[Message]:
        yield Message(role="user", author="user", content="Do it, at length.")
        for n in range(steps):
            call = ToolCall(id=f"c{n}", name="bash", arguments=json.dumps({"command": f"cat file{n}.py"}))
            yield Message(role="assistant", author="model", content=f"Step {n}.", tool_calls=(call,), model_s=2.0)
            yield Message(
                role="tool", author="environment", content=f"line {n}\n" * 12, tool_call_ids=(call.id,), tool_s=1.0
            )

    return make_trace(tuple(write()), key=key)


def make_odd_traces() -> list[Trace]:
    """All of them, with one of 5 MB, one without a message, a child of the long one, and one of odd numbers."""
    wide = Message(role="assistant", author="model", content="x" * 5_000_000)
    child = make_trace(
        (Message(role="assistant", author="model", content="done <SECRET:key-1>"),),
        "child",
        parent=Parent(key="long", call_id="c20"),
    )
    return [
        make_hostile_trace(),
        make_long_trace(1000),
        make_trace((wide,), "wide"),
        make_trace((), "empty"),
        child,
        make_odd_numbers(),
    ]


def make_odd_numbers() -> Trace:
    """Numbers that JavaScript cannot hold, a reward of 309 digits, and a key that looks like a part of the page."""
    call = ToolCall(id="n", name="wait", arguments='{"id": 12345678901234567890, "seconds": 1e400, "share": 1.50}')
    messages = (
        Message(role="user", author="user", content="Count far."),
        Message(role="assistant", author="model", tool_calls=(call,), sampled=Sampled(token_ids=(40, 41))),
    )
    return make_trace(messages, "=runs", outcome=Outcome(reward=-1e308), extra={"seed": 2**63 + 1})
