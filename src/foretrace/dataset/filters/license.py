"""Leaves out traces by their license."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.core.trace import Trace
from foretrace.dataset.filters.base import Decision, ExaminedTrace
from foretrace.dataset.settings import BuildSettings

UNKNOWN = "unknown"
"""Stands for the license of traces that name none."""


class LicenseFilter:
    """Keeps what an allowed license is known of, and leaves out what is denied; case does not matter.

    A trace that names no license is left out where only some are allowed, unless `unknown` is one of them. Where some
    are denied and none is allowed by name, it is left out too: nobody can say that it is none of those.
    """

    name = "license"

    def __init__(self, settings: BuildSettings) -> None:
        self._allowed = {name.lower() for name in settings.license_allow}
        self._denied = {name.lower() for name in settings.license_deny}

    def examine(self, trace: Trace) -> str | None:
        """The license that the trace names."""
        return trace.provenance.license

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Leave out what is not allowed."""
        licenses = ((trace.key, trace.findings.get(self.name) or UNKNOWN) for trace in traces)
        left_out = {key: name for key, name in licenses if not self._is_allowed(name.lower())}
        return Decision(left_out=left_out, figures={"allowed": sorted(self._allowed), "denied": sorted(self._denied)})

    def _is_allowed(self, name: str) -> bool:
        if name in self._denied:
            return False
        if self._allowed:
            return name in self._allowed
        return name != UNKNOWN
