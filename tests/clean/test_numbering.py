"""Placeholders of one trace: the lowest free number each, and that of a placeholder that was there already."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretrace.clean.numbering import Numbering

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
