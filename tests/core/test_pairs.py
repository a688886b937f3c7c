"""Settings that are written as a list of `NAME=VALUE`."""

from __future__ import annotations

import pytest

from foretrace.core.errors import UsageError
from foretrace.core.pairs import parse_pairs


def test_a_value_may_hold_an_equals_sign() -> None:
    assert parse_pairs("options", ["a=1", "b=c=d"], example="think=false") == {"a": "1", "b": "c=d"}


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        (["a"], "options='a': write NAME=VALUE, e.g. options='think=false'"),
        (["=1"], "options='=1': write NAME=VALUE"),
        (["a="], "options='a=': write NAME=VALUE"),
        (["a=1", "a=2"], "options names 'a' twice"),
    ],
)
def test_what_is_no_pair_is_refused(pairs: list[str], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pairs("options", pairs, example="think=false")
    assert why in str(caught.value)
