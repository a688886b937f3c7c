"""No part of a key comes back out of what a server says, wherever it stands there and wherever the text is cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretrace.core.errors import ModelError
from foretrace.models.address import ApiKey, parse_address
from foretrace.models.http import HttpClient
from foretrace.models.server_errors import ServerErrors, public_cause, public_message

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_+/=.~"
KEYS = st.text(LETTERS, min_size=20, max_size=60)
TEXTS = st.text(max_size=80) | st.integers(0, 1200).map(lambda n: "z" * n)
FORMS: tuple[Callable[[str], str], ...] = (
    lambda key: key,
    lambda key: f"Bearer {key}",
    lambda key: quote(key),
    lambda key: quote(key, safe=""),
    lambda key: f"https://user:{quote(key, safe='')}@host/?key={key}",
)
WRAPS: tuple[Callable[[str], bytes], ...] = (
    lambda said: said.encode("utf-8", "replace"),
    lambda said: json.dumps({"error": said}).encode(),
    lambda said: json.dumps({"error": {"message": "no", "code": said}}).encode(),
    lambda said: json.dumps([{"error": {"message": said}}]).encode(),
    lambda said: json.dumps({"detail": [{"msg": said}]}).encode(),
    lambda said: f"<html>{said}</html>".encode("utf-8", "replace"),
)


def errors_with(key: str) -> ServerErrors:
    return ServerErrors("https://host.example", "m", "openai", ApiKey(key), "")


def failures(at: ServerErrors, body: bytes, said: str) -> list[ModelError]:
    """Every way in which what a server sent becomes a message."""
    http = HttpClient(parse_address(at.origin), at, 1.0)
    found = [
        at.from_status(status, body, location=said) for status in (302, 400, 401, 402, 403, 404, 408, 429, 500, 503)
    ]
    found += [
        at.from_stream(said),
        at.from_stream({"message": said, "code": said}),
        at.make("stream", said),
        at.make("bad_reply", said),
    ]
    with pytest.raises(ModelError) as caught:
        http.decode(body, list[int])
    return [*found, caught.value]


@given(KEYS, TEXTS, TEXTS, st.sampled_from(FORMS), st.sampled_from(WRAPS))
@example("sk-K-1234567890-and-more", "z" * 285, "", FORMS[0], WRAPS[1])
@example("sk-K-1234567890-and-more", "z" * 50, "", FORMS[0], WRAPS[0])
@example("a+b/c=d+e/f=g+h/i=j+k/l", "z" * 290, "", FORMS[3], WRAPS[1])
def test_no_eight_characters_of_a_key_are_shown(
    key: str, before: str, behind: str, form: Callable[[str], str], wrap: Callable[[str], bytes]
) -> None:
    said = f"{before}{form(key)}{behind}"
    fixed = str(errors_with("another-secret-entirely").from_status(400, b""))
    for error in failures(errors_with(key), wrap(said), said):
        for text in (str(error), public_cause(error), public_message(error)):
            parts = {key[at : at + 8] for at in range(len(key) - 7)}
            assert not [part for part in parts if part in text and part not in fixed], text


def test_a_key_that_was_cut_in_two_leaves_nothing_and_nothing_else_is_hidden() -> None:
    key = "sk-decoy-0123456789abcdef"
    for cut in range(8, len(key)):
        assert ApiKey(key).hide(f"no: {key[:cut]}") == "no: ***" == ApiKey(key).hide(f"no: {key[cut - 8 :]}")
    assert ApiKey(key).hide(f"{key} and Bearer {key}, not sk-deco") == "*** and Bearer ***, not sk-deco"
    assert ApiKey(key).hide("model 0123 not found") == "model 0123 not found"


@pytest.mark.parametrize("key", ["x", "none", "12345", "a/b", "-"])
def test_a_short_key_is_hidden_as_a_whole_word_only(key: str) -> None:
    said = "max_tokens is none0 nonesuch 123456 of axb"
    assert ApiKey(key).hide(said) == said
    assert ApiKey(key).hide(f"no: {key}, Bearer {key}") == "no: ***, Bearer ***"
