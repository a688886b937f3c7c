"""How decimal numbers are computed: a precision or rounding that one side sets holds for the other."""

from __future__ import annotations

import contextlib
from typing import Any

_MAX_DIGITS = 10_000
"""That the tests take over: with more of them, they could compute for ever."""


class SharedDecimalContext:
    """The decimal context of this process, as the other one was told of it."""

    def __init__(self) -> None:
        import decimal  # only where tests speak of it

        self._decimal = decimal
        self._known = _describe(decimal.DefaultContext)  # so that what was set before is told

    def find_change(self) -> list[Any] | None:
        """The context's settings; None where the other side knows."""
        now = _describe(self._decimal.getcontext())
        if now == self._known:
            return None
        self._known = now
        return now

    def apply(self, change: Any) -> None:
        """Take over what the other side has set."""
        with contextlib.suppress(ValueError, TypeError, OverflowError, AttributeError):
            prec, rounding, emin, emax, capitals, clamp, traps = change
            signals = [signal for signal in self._decimal.getcontext().traps if signal.__name__ in traps]
            made = self._decimal.Context(prec, rounding, emin, emax, capitals, clamp, [], signals)
            now = self._decimal.getcontext()  # which stays the object that a `with` or a variable holds
            for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp"):
                setattr(now, name, getattr(made, name))
            for signal in now.traps:
                now.traps[signal] = signal in signals
        self._known = _describe(self._decimal.getcontext())


class FinerDecimalContext(SharedDecimalContext):
    """That of the tests, which takes nothing over but more digits: with fewer, with another rounding or without errors,
    what the tests compute from a wrong answer could come out right."""

    def apply(self, change: Any) -> None:
        """Take over the number of digits, if the other side has more."""
        now = self._decimal.getcontext()
        digits = change[0] if isinstance(change, list) and change else None
        if type(digits) is int and now.prec < digits <= _MAX_DIGITS:
            now.prec = digits
        self._known = _describe(now)


def _describe(context: Any) -> list[Any]:
    traps = [signal.__name__ for signal, is_on in context.traps.items() if is_on]
    return [context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps]
