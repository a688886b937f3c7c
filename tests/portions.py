"""A test of very many cases: a part of them in `make test`, all of them in `make test-integrations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

_Case = TypeVar("_Case")


def in_portions_of(number: int) -> pytest.MarkDecorator:
    """Marks a test that takes `portion` for `take`: every case of that number in `make test`."""
    small = pytest.param(number, id=f"1 in {number}")
    return pytest.mark.parametrize("portion", [small, pytest.param(1, id="all", marks=pytest.mark.slow)])


in_portions = in_portions_of(10)


def take(cases: Sequence[_Case], portion: int) -> list[_Case]:
    """Every `portion`-th case, from all over the list."""
    return list(cases[::portion])
