"""Small parts: pieces that spell a text, waits that are asked for, lines of events, open think blocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.errors import ModelError
from foretrace.models.adapter import drop_repeated_think
from foretrace.models.completion_builder import find_pieces
from foretrace.models.http import parse_sse_line
from foretrace.models.retry import RetryPolicy
from foretrace.models.server_errors import ServerErrors

PLACE = ServerErrors("http://h", "m", "ollama", None, "")


@given(st.lists(st.text("ab\n ", min_size=1, max_size=3)), st.lists(st.text("ab\n ", min_size=1, max_size=3)))
def test_the_text_is_found_behind_the_thinking(thought: list[str], said: list[str]) -> None:
    text = "".join(said)
    tokens = [piece.encode() for piece in [*thought, "</think>", *said]]
    found = find_pieces(text, tokens)
    assert found is not None and "".join(found[1]) == text
    assert not text or b"".join(tokens[found[0] :]).decode() == text


@given(st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1), st.integers(0, 30))
def test_a_text_that_a_stop_cut_is_covered_by_whole_tokens(said: list[str], cut: int) -> None:
    text = "".join(said)[:cut]
    found = find_pieces("|" + text, [b"|", *(piece.encode() for piece in said)])
    assert found is not None
    first, pieces = found
    joined = "".join(pieces)
    assert first == 0 and joined.startswith("|" + text) and len(joined) - len(text) - 1 < len(pieces[-1])


PARTS = [b"a", b"\xf0", b"\x9f\x8e", b"\x89", b"\xc3\xa9", b"\xff", b""]


@given(st.lists(st.sampled_from(PARTS)), st.lists(st.sampled_from(PARTS), min_size=1))
def test_bytes_that_are_no_character_have_their_logprobs_too(thought: list[bytes], said: list[bytes]) -> None:
    """A model may sample half a character: servers write U+FFFD, and only the tokens know more."""
    text = b"".join(said).decode("utf-8", "replace")
    found = find_pieces(text, [*thought, b"</think>", *said])
    assert found is not None and "".join(found[1]) == text
    assert found[1] == () or not any(said[: found[0] - len(thought) - 1])


def test_pieces_that_do_not_spell_the_text_are_not_guessed() -> None:
    assert find_pieces("café", [b"caf", b"\xef\xbf\xbd", b"\xef\xbf\xbd"]) is None
    assert find_pieces("lo", [b"hello"]) is None
    assert find_pieces("\x89", [b"\xf0\x9f\x8e", b"\x89"]) is None


def test_a_wait_is_seconds_or_a_date() -> None:
    def asked(value: str | None) -> float | None:
        return PLACE.from_status(503, b"", retry_after=value).retry_after_s

    later = asked(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))
    assert later is not None and 95 < later <= 100
    assert [asked(v) for v in ("2.5", "-3", None, "soon", "")] == [2.5, 0.0, None, None, None]


def test_pauses_grow_are_spread_and_end() -> None:
    patience = RetryPolicy(3, 1.0, Random(1))
    pauses = [patience.wait_s(ModelError("x", retryable=True), n) for n in range(4)]
    for n, pause in enumerate(pauses[:3]):
        assert pause is not None and 2**n <= pause <= 1.25 * 2**n
    assert pauses[3] is None and patience.wait_s(ModelError("x"), 0) is None


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b'data: {"a": 1}', b'{"a": 1}'),
        (b'data:{"a": 1}', b'{"a": 1}'),
        (b"data: [DONE]", None),
        (b": ping", None),
        (b"event: message", None),
        (b'error: {"code": 500}', b'{"error":{"code": 500}}'),
        (b"<html>", b"<html>"),
    ],
)
def test_lines_of_events(line: bytes, data: bytes | None) -> None:
    assert parse_sse_line(line) == data


@pytest.mark.parametrize(
    ("prompt", "prefill", "sent"),
    [
        ("assistant\n<think>\n", "<think>\nso", "so"),
        ("assistant\n<think>", "<think>\nso", "\nso"),
        ("assistant\n", "<think>\nso", "<think>\nso"),
        ("assistant\n<think>\n", "so", "so"),
    ],
)
def test_a_think_block_is_opened_once(prompt: str, prefill: str, sent: str) -> None:
    assert drop_repeated_think(prompt, prefill) == sent
