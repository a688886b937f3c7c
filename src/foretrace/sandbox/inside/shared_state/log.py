"""Log records: what one side logs reaches the handlers of the other."""

from __future__ import annotations

import builtins
import contextlib
import re
from typing import Any

from foretrace.sandbox.inside.remote.exceptions import make_exception, text_of
from foretrace.sandbox.inside.wire.values import decode, encode

_MAX_RECORDS = 1000
_MAX_TEXT = 10_000
_ALL = 1
"""The level of the root logger, so that all records are seen."""
_MAX_EXTRA = 100
_NAMED_FIELDS = """
    name msg args levelname levelno pathname filename module exc_info exc_text stack_info lineno funcName created msecs
    relativeCreated thread threadName processName process taskName message asctime
"""
_FIELDS = frozenset(_NAMED_FIELDS.split())
"""What every record has."""
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
            root.setLevel(_ALL)

    def _keep(self, record: Any) -> None:
        if not self._applies and len(self._records) < _MAX_RECORDS:
            text = record.getMessage()[:_MAX_TEXT]
            error = self._handler.format(record) if record.exc_info else ""
            shown = error[len(text) :].strip()[:_MAX_TEXT]
            logger = self._logging.getLogger(record.name)
            facts: dict[str, Any] = {
                "function": record.funcName,
                "extra": _describe_extra(record),
                "raised": _name_error(record),
            }
            facts["enabled"] = _find_level(logger) is not None
            self._records.append([record.name, record.levelno, text, shown, facts, *_describe_message(record, text)])

    def find_change(self) -> list[list[Any]]:
        """The records since the last time."""
        records, self._records = self._records, []
        return records

    def apply(self, change: Any) -> None:
        """Log what the other side has logged."""
        self._applies = True
        try:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                for name, level, text, error, facts, *message in change[:_MAX_RECORDS]:
                    logger = self._logging.getLogger(str(name)[:200])
                    if self._is_enabled(logger, int(level), facts.get("enabled") is True):
                        parts = _read_message(str(text), message)
                        function, raised = facts.get("function"), _read_error(facts.get("raised"))
                        record = logger.makeRecord(
                            *(logger.name, int(level), "solution.py", 0, *parts, raised),
                            func=function if type(function) is str else None,
                        )
                        record.exc_text = str(error) or None
                        vars(record).update(_read_extra(facts.get("extra"), record))
                        logger.handle(record)
        finally:
            self._applies = False

    def _is_enabled(self, logger: Any, level: int, elsewhere: bool) -> bool:
        """Whether a record of the other side is logged here, which set a level for it or not."""
        own = _find_level(logger)
        if own is None:
            return logger.manager.disable < level and (elsewhere or level >= self._logging.WARNING)
        return bool(logger.isEnabledFor(level))


def _find_level(logger: Any) -> int | None:
    """The level that somebody has set for a logger; None for the one that all have that nobody has set one for."""
    while logger is not None and not logger.level:
        logger = logger.parent
    return None if logger is None or (logger.level == _ALL and logger.parent is None) else logger.level


def _describe_extra(record: Any) -> dict[str, Any]:
    """What the caller has given a record beside its message, as far as it is plain data."""
    own = vars(record).keys() - _FIELDS
    told = {key: encode(vars(record)[key], _MAX_TEXT) for key in sorted(own)[:_MAX_EXTRA] if type(key) is str}
    return {key: value for key, value in told.items() if not isinstance(value, list) or value[0] != "o"}


def _read_extra(described: Any, record: Any) -> dict[str, Any]:
    """What the other side's record has beside its message; it takes the place of nothing."""
    if type(described) is not dict or len(described) > _MAX_EXTRA:
        return {}
    return {key: decode(value, _MAX_TEXT) for key, value in described.items() if not hasattr(record, key)}


def _name_error(record: Any) -> list[Any] | None:
    """The exception of a record: the builtin class that its class is or extends, and its text."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return None
    return [next(base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"), text_of(error)]


def _read_error(described: Any) -> tuple[Any, ...] | None:
    """`exc_info` of the exception that the other side has named."""
    if type(described) is not list or len(described) != 2:
        return None
    kind = vars(builtins).get(str(described[0]))
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return None
    with contextlib.suppress(TypeError):  # a group has more than a text
        return kind, make_exception(kind, (str(described[1]),)), None
    return None


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
