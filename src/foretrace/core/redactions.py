"""What a trace records about the secrets that were removed from it."""

from __future__ import annotations

from typing import Any

from foretrace.core.trace import Trace

NAME = "redact"
"""Start of the transform's name in `Provenance.transforms`: `redact@1`."""
FIELD = "redacted"
"""Where `extra` of the trace and of each message holds the counts."""


def is_redacted(trace: Trace) -> bool:
    """Whether the trace was searched for secrets, and any found were removed."""
    return any(name.partition("@")[0] == NAME for name in trace.provenance.transforms)


def read_redactions(trace: Trace) -> dict[str, int]:
    """How many secrets were removed from a trace, by type."""
    counts: Any = trace.extra.get(FIELD) if is_redacted(trace) else None
    if not isinstance(counts, dict):
        return {}
    return {str(name): count for name, count in counts.items() if isinstance(count, int)}
