"""Holes in memory are filled: what is made afterwards lies together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from foretrace.sandbox.inside.server import filled_memory

MAKERS: dict[str, Callable[[int], Any]] = {
    "16": lambda n: object(),
    "32": lambda n: n + 0.5,
    "48": lambda n: b"%15d" % n,
    "512": lambda n: b"%479d" % n,
}


@pytest.fixture(autouse=True)
def _given_back() -> Iterator[None]:
    yield
    filled_memory._taken.clear()


def count_pages(objects: list[Any]) -> int:
    return len({id(one) >> 12 for one in objects})


@pytest.mark.parametrize("size", MAKERS)
def test_what_is_made_next_lies_together(size: str) -> None:
    make, count = MAKERS[size], (1 << 20) // int(size)
    strewn = [make(n) for n in range(count)]
    del strewn[::8]
    filled_memory.fill_holes()
    made = [make(n) for n in range(100)]
    assert count_pages(made) <= 100 * int(size) // 4096 + 8
    assert count_pages(strewn) > 100
