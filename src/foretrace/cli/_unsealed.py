"""A line about generated traces that a reader of the folder does not see yet."""

from __future__ import annotations

from pathlib import Path

from foretrace.cli._output import Output


def warn_unsealed(say: Output, folder: Path) -> None:
    """Warn of finished traces that stand in a journal only; another line says where one cannot be read."""
    from foretrace.core.errors import StoreError
    from foretrace.core.journal import unsealed

    try:
        count = unsealed(folder)
    except (StoreError, OSError) as error:
        say.warn(f"warning: {error}", "yellow")
        return
    if count:
        traces, are = ("trace", "is") if count == 1 else ("traces", "are")
        say.warn(
            f"warning: {folder}: {count:,} finished {traces} of an interrupted generate (or of one that still runs) "
            f"{are} not sealed yet and not read; run the same generate command again",
            "yellow",
        )
