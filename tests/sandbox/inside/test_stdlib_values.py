"""Values of the standard library's types over the wire: what is spelled is read back, what is hostile is refused."""

from __future__ import annotations

import datetime
import uuid
from collections import namedtuple
from datetime import timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.problem import Test
from foretrace.sandbox.inside.wire.values import decode, encode
from foretrace.sandbox.judging.compare import equal
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
    st.ip_addresses(),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
    st.integers(-(10**6), 10**6).map(lambda n: Decimal(f"3e{n}")),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]).map(ZoneInfo),
    st.text("ab./\\: ").flatmap(lambda text: st.sampled_from([PurePosixPath(text), PureWindowsPath(text)])),
)


@given(SPELLED)
def test_a_spelled_value_comes_back(value: Any) -> None:
    back = decode(encode([value], LIMIT))[0]
    assert type(back) is type(value) and back == value
    assert equal(back, value)


def test_a_time_keeps_its_zone() -> None:
    zone = ZoneInfo("Europe/Berlin")
    twice = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=1)  # half past two comes twice on that day
    back = decode(encode([twice], LIMIT))[0]
    assert (back.tzinfo, back.fold, back.utcoffset()) == (zone, 1, timedelta(hours=1))


def test_a_named_tuple_is_a_tuple() -> None:
    point = namedtuple("point", "x y")
    assert decode(encode(point(1, [2]), LIMIT)) == (1, [2])


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
        ["x", "timezone", "9 0 0"],
        ["x", "IPv4Address", "1.2.3"],
        ["x", "Path", "/"],
        ["x", "ZoneInfo", "../../etc/passwd"],
        ["x", "ZoneInfo", "No/Where"],
        ["x", "datetime", "2024-01-01T00:00:00 x UTC"],
        ["x", "Decimal"],
        ["x", "Decimal", 1],
    ],
)
def test_no_spelling_of_ours_is_refused(tagged: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(tagged)


def test_kinds_are_told_apart() -> None:
    assert not equal(Decimal("1.5"), "1.5")
    assert equal(Decimal("1.5"), 1.5) and equal(3, Fraction(3)) and not equal(Fraction(1, 3), 0.333)
    assert not equal(datetime.date(2020, 1, 1), "2020-01-01")
    assert not equal(uuid.UUID(int=1), 1)


def test_a_class_of_the_same_name_is_not_spelled(box: Box) -> None:
    code = "class Decimal:\n    def __eq__(self, other): return True\ndef f(): return Decimal()"
    test = Test(code="from decimal import Decimal\nassert f() == Decimal('1.5')")
    assert not box.judge(code, [test], entry_point="f").passed
    right = "from decimal import Decimal\ndef f(): return Decimal('3') / 2"
    assert box.judge(right, [test], entry_point="f").passed
