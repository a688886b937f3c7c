"""The logprobs of a reply are aligned with its text, or left out: pieces that spell the text are found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretrace.models.completion_builder import find_pieces


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
