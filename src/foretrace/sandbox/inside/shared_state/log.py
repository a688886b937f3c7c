"""Log records: what one side logs reaches the handlers of the other."""

from __future__ import annotations

import contextlib
import re
from typing import Any

_MAX_RECORDS = 1000
_MAX_TEXT = 10_000
_PLAIN = (int, float, str, bool, type(None))
_SIMPLE_FORMAT = re.compile(r"(?:[^%]|%[-+ #0]?\d{0,2}(?:\.\d{1,2})?[a-zA-Z%])*")
"""What gives no text that is much longer than its arguments."""


class SharedLog:
    """Collects what this process logs, of any level, for the other one."""

    def __init__(self) -> None:
        import logging  # after the fork server has seen to what it does at forks (see `server.preload`)

        self._logging = logging
        self._records: list[list[Any]] = []
        self._applies = False
        self._handler: Any = logging.Handler(0)
        self._handler.emit = self._keep
        root = logging.getLogger()
        root.addHandler(self._handler)
        if not root.level or root.level == logging.WARNING:
            root.setLevel(1)

    def _keep(self, record: Any) -> None:
        if not self._applies and len(self._records) < _MAX_RECORDS:
            text = record.getMessage()[:_MAX_TEXT]
            error = self._handler.format(record) if record.exc_info else ""
            shown = error[len(text) :].strip()[:_MAX_TEXT]
            self._records.append([record.name, record.levelno, text, shown, *_describe_message(record, text)])

    def find_change(self) -> list[list[Any]]:
        """The records since the last time."""
        records, self._records = self._records, []
        return records

    def apply(self, change: Any) -> None:
        """Log what the other side has logged."""
        self._applies = True
        try:
            with contextlib.suppress(ValueError, TypeError):
                for name, level, text, error, *message in change[:_MAX_RECORDS]:
                    logger = self._logging.getLogger(str(name)[:200])
                    if logger.isEnabledFor(int(level)):
                        parts = _read_message(str(text), message)
                        record = logger.makeRecord(logger.name, int(level), "solution.py", 0, *parts, None)
                        record.exc_text = str(error) or None
                        logger.handle(record)
        finally:
            self._applies = False


def _describe_message(record: Any, text: str) -> list[Any]:
    """The format of a record's message and its arguments, where those are plain: behind them is the text itself."""
    args = record.args
    plain = type(record.msg) is str and type(args) is tuple and all(type(arg) in _PLAIN for arg in args)
    return [record.msg, *args] if plain and args and len(text) < _MAX_TEXT else []


def _read_message(text: str, described: list[Any]) -> tuple[str, tuple[Any, ...]]:
    """Format and arguments of a message; the text alone where they do not give it."""
    if described and all(type(part) in _PLAIN for part in described):
        format, *args = described
        if type(format) is str and len(format) < _MAX_TEXT and _SIMPLE_FORMAT.fullmatch(format):
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                if format % tuple(args) == text:
                    return format, tuple(args)
    return text, ()
