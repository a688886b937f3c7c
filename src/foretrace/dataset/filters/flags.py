"""The filter of cheats: successes of which a step is flagged as a cheat teach nothing that should be learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from foretrace.actions.flag_meanings import CHEATS, FLAGS_VERSION
from foretrace.actions.flags import flag_trace
from foretrace.core.trace import Trace
from foretrace.dataset.filters.base import Decision, ExaminedTrace
from foretrace.dataset.settings import BuildSettings


class FlagFilter:
    """Leaves out successes with a cheat, unless they are to be kept; what is only marked stays."""

    name = "flags"

    def __init__(self, settings: BuildSettings) -> None:
        self._keep = settings.keep_flagged

    def examine(self, trace: Trace) -> list[str] | None:
        """The rules of a success's flags. A failure that cheated is a failure: it is not looked at."""
        if trace.outcome.success is not True:
            return None
        return list(dict.fromkeys(flag.rule for flag in flag_trace(trace))) or None

    def decide(self, traces: Sequence[ExaminedTrace]) -> Decision:
        """Leave out the successes with a cheat; the reason is the rule of the first one."""
        cheats: dict[str, str] = {}
        counts = Counter[str]()
        successes = 0
        for trace in traces:
            found = trace.findings.get(self.name, [])
            counts.update(found)
            successes += trace.success is True
            if rule := next((rule for rule in found if rule in CHEATS), None):
                cheats[trace.key] = rule
        figures = {
            "version": FLAGS_VERSION,
            "successes": successes,
            "flagged": len(cheats),
            "kept": self._keep,
            "rules": {rule: counts[rule] for rule in sorted(counts)},
        }
        notes: list[str] = []
        if cheats and self._keep:
            notes.append(f"{len(cheats):,} successes are kept although a step of theirs is flagged as a cheat.")
        return Decision(left_out={} if self._keep else cheats, figures=figures, notes=notes)
