"""What a trace says of the secrets that were taken out of it."""

from __future__ import annotations

from typing import Any

from foretrace.core.trace import Trace

NAME = "redact"
"""What the name of the transform begins with, in `Provenance.transforms`: `redact@1`."""
FIELD = "redacted"
"""Where the counts stand in `extra`, of the trace and of each message."""


def is_redacted(trace: Trace) -> bool:
    """Whether secrets were looked for and taken out, if there were any."""
    return any(name.partition("@")[0] == NAME for name in trace.provenance.transforms)


def read_redactions(trace: Trace) -> dict[str, int]:
    """How many secrets were taken out of a trace, by type."""
    counts: Any = trace.extra.get(FIELD) if is_redacted(trace) else None
    if not isinstance(counts, dict):
        return {}
    return {str(name): count for name, count in counts.items() if isinstance(count, int)}
