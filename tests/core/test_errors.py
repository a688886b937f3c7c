"""Errors: settings that each front end writes in its own style, and other people's errors in one line."""

from __future__ import annotations

import pytest

from foretrace.core.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("\n  no such key \n  in line 3\n"), "no such key"),
        (KeyError(), "KeyError"),
        (OSError("x" * 400), "x" * 300),
    ],
)
def test_the_first_line_of_an_error(error: Exception, line: str) -> None:
    assert first_line(error) == line
