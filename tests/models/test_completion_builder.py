"""The logprobs of a reply are aligned with its text, or left out: pieces that spell the text are found, also where a
server decodes every token by itself, wherever the characters were cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from foretrace.models.completion_builder import align_token_texts, find_pieces


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


def test_pieces_that_do_not_spell_the_text_are_not_guessed() -> None:
    assert find_pieces("café", [b"caf", b"\xef\xbf\xbd", b"\xef\xbf\xbd"]) is None
    assert find_pieces("lo", [b"hello"]) is None
    assert find_pieces("\x89", [b"\xf0\x9f\x8e", b"\x89"]) is None
    assert align_token_texts("café", ["tea", "\ufffd", "\ufffd"]) is None
    assert align_token_texts("✅" * 4000, ["\ufffd"] * 12000) is None, "far too many ways to read it"


ANY_TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("aé✅\u0301\U0001f469\u200d"), max_size=30
)
CUTS = st.lists(st.integers(0, 120), max_size=60)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes cut at some places, none of them empty."""
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(marks)]


@given(ANY_TEXT, ANY_TEXT, CUTS)
def test_a_tag_in_ascii_is_cut_out_by_whole_tokens(before: str, behind: str, places: list[int]) -> None:
    """Spans of calls are bounded by such tags, so that their tokens are known whatever stands around them."""
    first, tag, last = cut(before.encode(), places), [b"<co", b"de>"], cut(behind.encode(), places)
    tokens = [token.decode("utf-8", "replace") for token in (*first, *tag, *last)]
    pieces = align_token_texts(f"{before}<code>{behind}", tokens)
    assert pieces is not None
    assert [*pieces[len(first) : len(first) + 2]] == ["<co", "de>"] or "<co" in before + behind
    assert "".join(pieces[: len(first)]) == before or "<co" in before + behind


@given(ANY_TEXT.map(str.encode) | st.binary(max_size=40), CUTS)
@example("fine ✅".encode(), list(range(9)))
def test_a_text_that_is_cut_anywhere_is_spelled_also_where_bytes_are_no_character(
    data: bytes, places: list[int]
) -> None:
    text, tokens = data.decode("utf-8", "replace"), cut(data, places)
    pieces = align_token_texts(text, [token.decode("utf-8", "replace") for token in tokens])
    assert pieces is not None and len(pieces) == len(tokens) and "".join(pieces) == text


def test_a_character_is_in_the_last_of_its_tokens() -> None:
    assert align_token_texts("a✅b", ["a", "\ufffd", "\ufffd", "b"]) == ("a", "", "✅", "b")
    assert align_token_texts("a✅b", ["a", "", "✅", "b"]) == ("a", "", "✅", "b")
    assert align_token_texts("✅é", ["\ufffd"] * 5) == ("", "", "", "✅", "é")
    assert align_token_texts("it’s", ["it", "\ufffd", "\ufffd\ufffds"]) == ("it", "", "’s")
    assert align_token_texts("it’s", ["it", "", "\ufffd\ufffds"]) == ("it", "", "’s"), "corrected in part"


def test_what_stands_behind_the_text_is_kept_as_it_is_shown() -> None:
    assert align_token_texts("né", ["n", "\ufffd", "\ufffd", "<|end|>"]) == ("n", "", "é", "<|end|>")
    assert align_token_texts("né</c", ["n", "é", "</", "c>\n"]) == ("n", "é", "</", "c>\n")
    assert align_token_texts("n", ["n", "\ufffd"]) == ("n", "\ufffd"), "half a character that the limit cut off"
