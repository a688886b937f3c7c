"""From folders to a page: find out what they are, and write the page that shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from foretrace.core.errors import StoreError, UsageError
from foretrace.core.progress import ProgressFunc
from foretrace.core.store import TraceStore
from foretrace.report.page import Page
from foretrace.report.traces_page import name_folders, was_changed, write_traces_page

MAX_RUNS = 2
_TRIES = 3


class ViewReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `view` wrote."""

    page: str
    """The file to open in a browser."""
    traces: int
    left_out: int
    """Traces of which only the line in the list is there, for want of room in a single file."""


def write_view(inputs: Sequence[Path], make_page: Callable[[], Page], progress: ProgressFunc) -> ViewReport:
    """Write a page that shows the inputs; `make_page` gives an empty one.

    Raises:
        UsageError: no inputs, or too many.
        StoreError: they cannot be read, or the page cannot be written.
    """
    if not 1 <= len(inputs) <= MAX_RUNS:
        raise UsageError(f"view shows one traces folder, or {MAX_RUNS} side by side")
    if len({path.resolve() for path in inputs}) < len(inputs):
        raise UsageError(f"{inputs[0]}: is named twice")
    for tries_left in reversed(range(_TRIES)):
        stores = [TraceStore(path) for path in inputs]
        page = make_page()
        try:
            traces, left_out = write_traces_page(page, stores, progress)
            path = page.finish(" · ".join(name_folders(inputs)))
        except StoreError:
            page.discard()
            # A writer puts new segments in the place of old ones: what was listed may be gone.
            if not tries_left or not any(was_changed(store) for store in stores):
                raise
        except BaseException:
            page.discard()
            raise
        else:
            return ViewReport(page=str(path), traces=traces, left_out=left_out)
    raise AssertionError("the last try returns or raises")
