"""Limits of wall-clock time, for a machine that has much else to do.

What takes CPU time is held to that. What must not wait for something long has `AT_ONCE_S`. Where the claim is that it
is quick, it is tried up to three times: a busy machine is late now and then, wrong code always.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

AT_ONCE_S = 10.0
"""What is done at once is done by then; what it would wait for otherwise takes longer than this."""

_P = ParamSpec("_P")


class LateError(AssertionError):
    """Something was not quick, which may be the machine's fault."""


def assert_quick(took_s: float, limit_s: float) -> None:
    """Fail where it took longer than that."""
    if took_s >= limit_s:
        raise LateError(f"it took {took_s:.2f} s, of {limit_s:g} s")


def thrice_if_late(test: Callable[_P, None]) -> Callable[_P, None]:
    """Run a test again that was late, twice at most; any other failure is one at once."""

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        for _ in range(2):
            try:
                return test(*args, **kwargs)
            except LateError:
                continue
        return test(*args, **kwargs)

    return run
