"""Verdicts at levels 1 and 0, which isolate little: still not one of them is forged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile.harness import Host, Snippet
from hostile.settings import LINUX, check, runs

pytestmark = LINUX


@pytest.mark.parametrize(("snippet", "form"), runs("L1"))
def test_no_forged_verdict_at_level_1(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
    check(host("L1"), snippet, form)


@pytest.mark.parametrize(("snippet", "form"), runs("L0"))
def test_no_forged_verdict_at_level_0(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
    check(host("L0"), snippet, form)
