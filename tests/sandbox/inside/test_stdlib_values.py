"""Values of the standard library's types over the wire: what is spelled is read back, what is hostile is refused."""

from __future__ import annotations

import datetime
from datetime import timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.problem import Test
from foretrace.sandbox.inside.wire.values import decode, encode
from sandbox.boxes import Box

LIMIT = 1 << 16
SPELLED = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**50), max_value=10**50),
    st.fractions(),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.timedeltas(),
    st.uuids(),
    st.datetimes(timezones=st.just(timezone(timedelta(hours=2)))),
    st.integers(-(10**6), 10**6).map(lambda n: Decimal(f"3e{n}")),
)


@given(SPELLED)
def test_a_spelled_value_comes_back(value: Any) -> None:
    back = decode(encode([value], LIMIT))[0]
    assert type(back) is type(value) and back == value


def test_a_time_of_a_named_zone_is_opaque() -> None:
    assert encode(datetime.datetime(2024, 10, 27, tzinfo=ZoneInfo("Europe/Berlin")), LIMIT)[0] == "o"


@pytest.mark.parametrize(
    "tagged",
    [
        ["x", "Decimal", "sNaN"],
        ["x", "Decimal", "1e999999999"],
        ["x", "Decimal", "1" * 5000],
        ["x", "Fraction", "1/0"],
        ["x", "Fraction", "x/y"],
        ["x", "date", "2020-13-01"],
        ["x", "timedelta", "1 2"],
        ["x", "timedelta", "99999999999999 0 0"],
        ["x", "Path", "/"],
        ["x", "datetime", "2024-01-01T00:00:00 x UTC"],
        ["x", "Decimal"],
        ["x", "Decimal", 1],
    ],
)
def test_no_spelling_of_ours_is_refused(tagged: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(tagged)


def test_a_class_of_the_same_name_is_not_spelled(box: Box) -> None:
    code = "class Decimal:\n    def __eq__(self, other): return True\ndef f(): return Decimal()"
    test = Test(code="from decimal import Decimal\nassert f() == Decimal('1.5')")
    assert not box.judge(code, [test], entry_point="f").passed
    right = "from decimal import Decimal\ndef f(): return Decimal('3') / 2"
    assert box.judge(right, [test], entry_point="f").passed
