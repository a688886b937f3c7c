"""A line about generated traces that a reader of the folder does not see yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli.output import Output

if TYPE_CHECKING:
    from foretrace.core.store import TraceStore


def check_sealed(say: Output, store: TraceStore, out: Path) -> None:
    """Refuse to write a file of a folder that an interrupted run left without a sealed trace; warn of the others.

    Raises:
        StoreError: nothing is sealed, and a run was begun.
    """
    from foretrace.core.errors import StoreError
    from foretrace.core.journal import find_journals

    waiting = warn_unsealed(say, store.folder)
    if not store.manifest.segments and (waiting or find_journals(store.folder)):
        why = "none of its traces is sealed" if waiting else "holds no finished trace of its interrupted generate"
        raise StoreError(f"{store.folder}: {why}; {out} was not written")


def warn_unsealed(say: Output, folder: Path) -> bool:
    """Warn of finished traces that stand in a journal only; another line says where one cannot be read.

    Returns:
        Whether it warned.
    """
    from foretrace.core.errors import StoreError
    from foretrace.core.journal import count_unsealed

    try:
        count = count_unsealed(folder)
    except (StoreError, OSError) as error:
        say.warn(f"warning: {error}", "yellow")
        return True
    if count:
        traces, are = ("trace", "is") if count == 1 else ("traces", "are")
        say.warn(
            f"warning: {folder}: {count:,} finished {traces} of an interrupted generate (or of one that still runs) "
            f"{are} not sealed yet and not read; run the same generate command again",
            "yellow",
        )
    return count > 0
