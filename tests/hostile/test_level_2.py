"""The same at level 2, without a scratch folder: no namespaces, but Landlock and the system call filter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile.harness import Host, Snippet
from hostile.settings import LINUX, check, runs

pytestmark = LINUX


@pytest.mark.parametrize(("snippet", "form"), runs("L2"))
def test_no_violation(host: Callable[[str], Host], snippet: Snippet, form: str) -> None:
    check(host("L2"), snippet, form)
