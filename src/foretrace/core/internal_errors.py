"""Errors inside a rule, a source or a reader on one record. They cost the result for that record, not the whole run."""

from __future__ import annotations

import contextlib
import itertools
import traceback
import warnings
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from foretrace.core.errors import ForetraceError, ForetraceWarning, find_first_line

INTERNAL_ERROR = "internal_error"
_SHOWN = 3


class InternalError(NamedTuple):
    """An error inside a rule, a source or a reader on one record."""

    where: str
    """The rule, source, recipe or format."""
    key: str
    """Key of the trace; for a row or file, its place."""
    error: str
    """Class and text of the exception, and where it was raised."""
    traceback: str

    def __str__(self) -> str:
        return f"{self.where} on {self.key}: {self.error}"


_Errors = dict[tuple[str, str], InternalError]
"""By `where` and `key`, so that a record that is read twice counts once."""
_collectors: list[_Errors] = []


class contain_errors:  # noqa: N801 - used as a statement
    """Record an unexpected exception of the block, and continue after the block: `with contain_errors(rule, key) as
    found`.

    Errors that foretrace raises on purpose, and `MemoryError`, are not caught.

    Args:
        where: The rule, source, recipe or format.
        key: Key of the trace, or the place of a row or file.
        quote: Whether the text of the exception may be shown.
    """

    def __init__(self, where: str, key: str, *, quote: bool = True) -> None:
        self._where, self._key, self._quote = where, key, quote
        self.text = ""

    def __enter__(self) -> contain_errors:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception) or isinstance(error, (ForetraceError, MemoryError)):
            return False
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno} {last.name}"
        said = f": {find_first_line(error)}" if self._quote else ""
        self.text = f"{type(error).__name__}{said} ({place})"
        lines = traceback.format_exception(error) if self._quote else traceback.format_tb(error.__traceback__)
        _note(InternalError(self._where, self._key, self.text, "".join(lines)))
        return True


def _note(error: InternalError) -> None:
    if _collectors:
        _collectors[-1].setdefault(error[:2], error)
    else:
        warnings.warn(f"{INTERNAL_ERROR}: {error}", ForetraceWarning, stacklevel=4)


@contextlib.contextmanager
def collect_errors() -> Generator[_Errors]:
    """Collect the errors contained in the block. Outside of such a block, each error is a warning."""
    errors: _Errors = {}
    _collectors.append(errors)
    try:
        yield errors
    finally:
        _collectors.remove(errors)


def run_in_worker(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[InternalError]]:
    """The result of a call made for another process, and the errors contained in it; pass both to `take_result`."""
    with collect_errors() as errors:
        return function(*args, **kwargs), list(errors.values())


def take_result(done: tuple[Any, list[InternalError]]) -> Any:
    """The result of a call in a worker. The errors contained there are recorded here."""
    for error in done[1]:
        _note(error)
    return done[0]


def describe_errors(errors: Collection[InternalError]) -> str:
    """How many errors there are, and the first of them."""
    shown = "; ".join(str(error) for error in itertools.islice(errors, _SHOWN))
    more = f"; and {len(errors) - _SHOWN:,} more" if len(errors) > _SHOWN else ""
    return f"{INTERNAL_ERROR} {len(errors):,}: {shown}{more}"
