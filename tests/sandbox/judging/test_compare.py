"""The rules for printed output."""

from __future__ import annotations

import tracemalloc

import pytest

from foretrace.sandbox.judging.compare import same_output


@pytest.mark.parametrize(
    ("printed", "expected", "tolerance", "same"),
    [
        ("1\n2\n", "1\n2", None, True),
        ("1 \r\n2\t\n\n\n", "1\n2", None, True),
        ("", "\n", None, True),
        (" 1", "1", None, False),
        ("1  2", "1 2", None, False),
        ("1\n\n2", "1\n2", None, False),
        ("a", "A", None, False),
        ("0.3000001", "0.3", None, False),
        ("x = 0.3000001", "x = 0.3", 1e-6, True),
        ("x =  0.3000001", "x = 0.3", 1e-6, True),
        ("0.31", "0.3", 1e-6, False),
        ("1e3", "1000.0", 1e-6, True),
        ("nan", "nan", 1e-6, True),
        ("nan", "1", 1e9, False),
        ("inf", "1", 1e9, False),
        ("1 2 3", "1 2", 1e-6, False),
        ("1\n2", "1 2", 1e-6, False),
        ("0x10", "16", 1e-6, False),
        ("1_0", "10", 1e-6, False),
        ("9" * 500, "9" * 499 + "8", 1e-6, False),
    ],
)
def test_printed_output(printed: str, expected: str, tolerance: float | None, same: bool) -> None:
    assert same_output(printed, expected, tolerance) is same


def test_a_long_output_is_compared_line_after_line() -> None:
    printed, expected, other = "x 1 \n" * 40_000, "x 1\n" * 40_000, "x 1\n" * 40_000 + "x"
    tracemalloc.start()
    try:
        assert same_output(printed, expected) and not same_output(printed, other)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
