"""A test of very many cases: a part of them in `make test`, all of them in `make test-integrations`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

_Case = TypeVar("_Case")

in_portions = pytest.mark.parametrize(
    "portion", [pytest.param(10, id="a tenth"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
"""Marks a test that takes `portion` for `take`."""


def take(cases: Sequence[_Case], portion: int) -> list[_Case]:
    """Every `portion`-th case, from all over the list."""
    return list(cases[::portion])
