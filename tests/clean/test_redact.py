"""The transform: placeholders, spans, JSON, tokens, and what happens when it cannot do its work."""

from __future__ import annotations

import base64
import json
import pickle
import random
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clean.planted import ALNUM, KINDS, shape
from foretrace.clean import redact
from foretrace.clean.redact import TIMEOUT, Numbering, Redactor, RedactSettings
from foretrace.clean.values import Found
from foretrace.core.internal_errors import INTERNAL_ERROR
from foretrace.core.redactions import read_redactions
from foretrace.core.store import encode_row
from foretrace.core.trace import (
    Message,
    Outcome,
    Parent,
    Provenance,
    Sampled,
    Task,
    ToolCall,
    Trace,
    add_trace_id,
    encode_trace,
)
from foretrace.rows.base import Drop

RNG = random.Random(1)
GITHUB, OTHER, STRIPE = KINDS["github_classic"].make(RNG), KINDS["github_classic"].make(RNG), KINDS["stripe"].make(RNG)


def make_trace(*messages: Message, **fields: object) -> Trace:
    given: dict[str, object] = {"key": "k", "task": Task(id="t", group="g"), **fields}
    return Trace(messages=messages, provenance=Provenance(origin="imported", source="x"), **given)  # type: ignore[arg-type]


def say(content: str, **fields: object) -> Message:
    return Message(role="assistant", author="model", content=content, **fields)  # type: ignore[arg-type]


def clean(trace: Trace, **settings: object) -> Trace:
    result = Redactor(RedactSettings(**settings)).apply([trace])[0]  # type: ignore[arg-type]
    assert isinstance(result, Trace), result
    return result


def test_the_same_secret_has_the_same_placeholder_in_a_trace() -> None:
    found = clean(make_trace(say(f"a {GITHUB}"), say(f"b {OTHER} {GITHUB}"), say(f"c {STRIPE}")))
    contents = [message.content for message in found.messages]
    assert contents == [
        "a <SECRET:github_token:1>",
        "b <SECRET:github_token:2> <SECRET:github_token:1>",
        "c <SECRET:stripe_key:1>",
    ]
    assert read_redactions(found) == {"github_token": 3, "stripe_key": 1}
    assert found.provenance.transforms == (redact.TRANSFORM,)


def test_a_trace_without_secrets_is_as_it_was_but_for_the_transform() -> None:
    trace = make_trace(say("nothing here"), extra={"a": 1})
    assert msgspec.structs.replace(clean(trace), provenance=trace.provenance) == trace


def test_what_is_known_of_texts_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_MAX_KNOWN", 8)
    redactor = Redactor()
    for number in range(100):
        redactor.apply([make_trace(say(f"{number} {GITHUB}"), say("x" * 5000 + GITHUB))])
    assert len(redactor._known) < 40


def make_generated(outcome: Outcome, **facts: object) -> Trace:
    origin = Provenance(origin="generated", source="x", **facts)  # type: ignore[arg-type]
    return Trace(
        key="k", task=Task(id="t", group="g"), messages=(say(f"a {GITHUB}"),), outcome=outcome, provenance=origin
    )


def test_secrets_in_what_is_ours_are_taken_out_all_the_same() -> None:
    metrics = {"turns": 4.0, f"at {GITHUB}": 2400.0, "a": 1.5}
    facts = {"reasons": {"logprobs": f"refused {GITHUB}"}, "context_length": 7}
    clean = Redactor().redact_attempt(make_generated(Outcome(metrics=metrics), capabilities=facts))
    assert clean.outcome.metrics == {"turns": 4.0, "at <SECRET:github_token:1>": 2400.0, "a": 1.5}
    assert clean.provenance.capabilities == {
        "reasons": {"logprobs": "refused <SECRET:github_token:1>"},
        "context_length": 7,
    }


def test_every_text_of_a_trace_is_looked_through() -> None:
    message = say(
        f"c {GITHUB}",
        reasoning=f"r {GITHUB}",
        prefix=f"p {GITHUB}",
        extra={"deep": [{GITHUB: GITHUB}]},
        tool_calls=(
            ToolCall(id=GITHUB, name=GITHUB, arguments=json.dumps({"x": GITHUB}), error=GITHUB, extra={"e": GITHUB}),
        ),
        tool_call_ids=(GITHUB,),
    )
    trace = msgspec.convert(
        {
            "key": f"k/{GITHUB}",
            "task": {"id": GITHUB, "group": GITHUB, "statement": GITHUB, "extra": {"s": GITHUB}},
            "tools": [{"name": "t", "description": GITHUB, "parameters": json.dumps({"default": GITHUB})}],
            "messages": [msgspec.to_builtins(message)],
            "outcome": {"exit_reason": GITHUB, "error": {"kind": "x", "message": GITHUB}},
            "provenance": {"origin": "imported", "source": "x", "raw_id": GITHUB, "raw_file": GITHUB, "model": GITHUB},
            "parent": {"key": GITHUB, "call_id": GITHUB},
            "extra": {"cwd": GITHUB},
        },
        Trace,
    )
    found = clean(trace)
    assert GITHUB.encode() not in encode_trace(found)
    assert found.messages[0].tool_calls[0].id == found.messages[0].tool_call_ids[0], "a result still finds its call"
    assert found.task.id == found.parent.key if isinstance(found.parent, Parent) else False


def test_arguments_stay_json_and_spans_stay_on_their_calls() -> None:
    block = f"<bash>export T={GITHUB}\ncat C:\\Users\\bobby\\x</bash>"
    content = f"Use {STRIPE} first. {block} Then {GITHUB}."
    start = content.index("<bash>")
    call = ToolCall(
        name="bash",
        arguments=json.dumps({"command": f"export T={GITHUB}\ncat C:\\Users\\bobby\\x"}),
        span=(start, start + len(block)),
    )
    message = clean(make_trace(say(content, tool_calls=(call,)))).messages[0]
    new = message.tool_calls[0]
    assert new.span is not None
    assert (
        message.content[slice(*new.span)]
        == "<bash>export T=<SECRET:github_token:1>\ncat C:\\Users\\redacted-user-1\\x</bash>"
    )
    assert json.loads(new.arguments) == {
        "command": "export T=<SECRET:github_token:1>\ncat C:\\Users\\redacted-user-1\\x"
    }


def test_arguments_that_would_be_no_json_any_more_are_a_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"command": f"echo {GITHUB}"})
    cut = [Found(text.index("echo"), len(text) - 1, "token", "x")]
    monkeypatch.setattr(redact, "find_secrets", lambda *_, **__: cut)
    result = Redactor().apply([make_trace(say("x", tool_calls=(ToolCall(name="bash", arguments=text),)))])[0]
    assert isinstance(result, Drop) and result.reason == INTERNAL_ERROR


def test_tokens_of_a_message_with_a_secret_are_dropped() -> None:
    sampled = Sampled(
        token_ids=(1, 2), logprobs=(-0.1, -0.2), prompt_token_ids=(7, 8), finish_reason="stop", exact="token"
    )
    found = clean(make_trace(say(f"a {GITHUB}", sampled=sampled), say("b", sampled=sampled)))
    first, second = found.messages
    assert first.sampled == Sampled(finish_reason="stop") and first.extra["redacted"] == {"github_token": 1}
    assert second.sampled is not None and second.sampled.token_ids == (1, 2)
    assert second.sampled.prompt_token_ids is None, "the prompt spells what stood before"


def test_cleaning_again_changes_nothing() -> None:
    once = clean(
        make_trace(say(f"{GITHUB} {STRIPE} /home/bobby/x API_KEY=<SECRET:api_key:3>"), extra={"password": "Xy7!kkq2p"})
    )
    assert clean(once) == once


def test_a_secret_that_its_name_gives_away_is_gone_everywhere() -> None:
    secret = shape((ALNUM, 30))(random.Random(4)) + "7"
    found = clean(make_trace(say(f"I see {secret} there"), say(f"API_TOKEN={secret}")))
    assert [m.content for m in found.messages] == ["I see <SECRET:token:1> there", "API_TOKEN=<SECRET:token:1>"]


def test_addresses_are_taken_out_by_option() -> None:
    text = "write to ann.lee@corp.io from 10.1.2.3, not to x@example.com or 127.0.0.1; version 1.2.3"
    assert clean(make_trace(say(text))).messages[0].content == text
    assert clean(make_trace(say(text)), emails=True, addresses=True).messages[0].content == (
        "write to <SECRET:email:1> from <SECRET:ip_address:1>, not to x@example.com or 127.0.0.1; version 1.2.3"
    )


def test_the_same_trace_gives_the_same_bytes() -> None:
    trace = make_trace(say(f"{GITHUB} /home/bobby/x"), say(f"{STRIPE}"))
    together = Redactor().apply([make_trace(say(OTHER)), trace])[1]
    assert isinstance(together, Trace)
    assert encode_row(add_trace_id(together)) == encode_row(add_trace_id(clean(trace)))


def test_a_text_that_takes_too_long_is_a_drop() -> None:
    result = Redactor(RedactSettings(text_seconds=-1)).apply([make_trace(say(GITHUB))])[0]
    assert isinstance(result, Drop) and result.reason == TIMEOUT and GITHUB not in result.detail


def test_names_that_take_too_long_are_a_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "find_secrets", lambda *_, **__: [])
    result = Redactor(RedactSettings(text_seconds=-1)).apply([make_trace(say("cd /home/annabel/x"))])[0]
    assert isinstance(result, Drop) and result.reason == TIMEOUT


def test_a_scanner_that_crashes_is_a_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError(GITHUB)

    monkeypatch.setattr(redact, "find_secrets", crash)
    result = Redactor().apply([make_trace(say(GITHUB))])[0]
    assert isinstance(result, Drop) and result.reason == INTERNAL_ERROR and GITHUB not in result.detail


def test_it_goes_to_workers() -> None:
    copy = pickle.loads(pickle.dumps(Redactor(RedactSettings(emails=True))))
    assert copy.settings.emails and copy.redact_text(f"no {GITHUB}") == "no <SECRET:github_token:1>"


@pytest.mark.parametrize("at", [(1 << 18) - 20, (1 << 18) - 8, (1 << 18) + 3, (1 << 19) - 1, 700_000])
def test_a_secret_at_the_border_of_two_parts_is_found(at: int) -> None:
    text = "word " * 200_000
    for secret, mark in (
        (GITHUB, "<SECRET:github_token:1>"),
        ("PGPASSWORD=Tr0ub4dor&3", "PGPASSWORD=<SECRET:password:1>"),
    ):
        content = f"{text[:at]} {secret} {text[at:]}"
        assert clean(make_trace(say(content))).messages[0].content == content.replace(secret, mark)


def test_neighboring_parts_are_searched_for_what_each_may_hold() -> None:
    named, token = "PGPASSWORD=Tr0ub4dor&3", GITHUB
    for first, second in ((named, token), (token, named)):
        content = f"{first} {'word ' * 400}{second} {'word ' * 800}"
        found = clean(make_trace(say(content))).messages[0].content
        assert found.count("<SECRET:") == 2 and token not in found and named not in found


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "password ",
        "a=",
        "token: ",
        "\\",
        "eyJ",
        "A" * 64,
        "://a:b",
        "\x00\xff\ufffd",
        "key='",
        "\n",
        "-----BEGIN PRIVATE KEY-----",
        "🙂 ",
        base64.encodebytes(b"for line in lines:\n    total += int(line.split()[1])\n" * 800).decode(),
        base64.b64encode(b"for line in lines:\n    total += int(line.split()[1])\n" * 800 + GITHUB.encode()).decode()
        + " ",
    ],
)
def test_no_text_takes_long(unit: str) -> None:
    content = unit * (2_000_000 // len(unit))
    begin = time.process_time()
    clean(make_trace(say(content)))
    assert time.process_time() - begin < 30


def test_lines_of_base64_take_time_in_proportion_to_them() -> None:
    lines = base64.encodebytes(b"for line in lines:\n    total += int(line.split()[1])\n" * 600).decode()
    begin = time.process_time()
    assert clean(make_trace(say(f"{lines}\n{GITHUB}"))).messages[0].content == f"{lines}\n<SECRET:github_token:1>"
    assert time.process_time() - begin < 2  # 44 kB; to read all the rest from each line took 5 s


@pytest.mark.parametrize("width", [28, 32, 36, 38])
def test_base64_of_narrow_lines_is_joined(width: int) -> None:
    encoded = base64.b64encode(f"name: shop\nurl: https://shop.internal\nkey: {GITHUB}\nport: 1\n".encode()).decode()
    lines = "\n".join(encoded[at : at + width] for at in range(0, len(encoded), width))
    assert clean(make_trace(say(lines))).messages[0].content == "<SECRET:base64_secret:1>"


@pytest.mark.slow
def test_a_message_of_50_mb_takes_seconds() -> None:
    line = "for name in names: total += count[name]  # a line of the program that the agent reads\n"
    begin = time.process_time()
    content = clean(make_trace(say(line * (50_000_000 // len(line)) + GITHUB))).messages[0].content
    assert content.endswith("\n<SECRET:github_token:1>")
    assert time.process_time() - begin < 10


_VALUES = st.lists(st.sampled_from("abcdefgh") | st.integers(1, 9).map(lambda n: f"<SECRET:token:{n}>"), max_size=12)


@given(_VALUES)
def test_each_has_one_placeholder_and_no_two_share_one(values: list[str]) -> None:
    numbering = Numbering()
    given_to: dict[str, str] = {}
    taken: set[str] = set()
    for value in values:
        mark = numbering.replace("token", value)
        if value in given_to:
            assert mark == given_to[value]
            continue
        free = next(n for n in range(1, 30) if f"<SECRET:token:{n}>" not in taken)
        assert mark == (value if value.startswith("<") and value not in taken else f"<SECRET:token:{free}>")
        given_to[value] = mark
        taken.add(mark)
