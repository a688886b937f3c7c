"""How certain a label is: how often its rule agreed with hand labels, shrunk towards similar rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from foretrace.actions.rule_agreement import PRIOR_STRENGTH, SAMPLES, SOURCES
from foretrace.actions.taxonomy import ActionType

BLIND_AGREEMENT = 0.94
"""Agreement on rows of sources that were unseen when the rules were written. Every estimate starts here, because the
rules were written with the counted hand labels in view."""
NO_STEP = "no_step"
"""Written in place of the action if a message is not a step."""

AgreementTable = Mapping[tuple[str, str], tuple[int, int]]
"""(rule, action) -> (hand-labelled steps that agreed, all that were seen)."""


class Agreement(NamedTuple):
    """Hand-labelled steps to which one rule gave one action."""

    agreed: int
    """Those whose hand label is the same action."""
    seen: int


def add_tables(tables: Iterable[AgreementTable]) -> dict[tuple[str, str], tuple[int, int]]:
    """Add the counts of several tables."""
    total: dict[tuple[str, str], tuple[int, int]] = {}
    for table in tables:
        for key, (agreed, seen) in table.items():
            before = total.get(key, (0, 0))
            total[key] = before[0] + agreed, before[1] + seen
    return total


def find_family(rule: str) -> str:
    """The family whose counts stand in for a rule with few of its own: `shell` for `shell.read`."""
    return rule.partition(".")[0] if "." in rule else "tool"


class ConfidenceModel:
    """Estimates how often a careful reader would choose a rule's action.

    Two nested beta distributions: the agreement of a family of rules is shrunk towards `BLIND_AGREEMENT`, and that of
    a rule towards its family's. The estimate is the posterior mean.
    """

    def __init__(self, table: AgreementTable, strength: float) -> None:
        """
        Args:
            table: The counts.
            strength: The weight of each of the two wider levels, in steps.
        """
        self._table = table
        self._strength = strength
        agreed, seen = Counter[str](), Counter[str]()
        for (rule, _), counts in table.items():
            agreed[find_family(rule)] += counts[0]
            seen[find_family(rule)] += counts[1]
        self._agreed, self._seen = agreed, seen

    def estimate_family(self, family: str) -> float:
        """The expected agreement of a rule of this family without counts of its own."""
        return (self._agreed[family] + BLIND_AGREEMENT * self._strength) / (self._seen[family] + self._strength)

    def estimate(self, rule: str, action: str | None) -> float:
        """The expected agreement if this rule gives this action (`None`: the message is not a step)."""
        agreed, seen = self._table.get((rule, action or NO_STEP), (0, 0))
        expected = self.estimate_family(find_family(rule))
        return (agreed + expected * self._strength) / (seen + self._strength)


_AGREEMENT = add_tables([SAMPLES, SOURCES])
_MODEL = ConfidenceModel(_AGREEMENT, PRIOR_STRENGTH)


def find_agreement(rule: str, action: ActionType | None) -> Agreement:
    """How many hand-labelled steps this rule gave this action, and how many of them agreed."""
    return Agreement(*_AGREEMENT.get((rule, action or NO_STEP), (0, 0)))


@lru_cache(maxsize=1024)
def find_confidence(rule: str, action: ActionType | None) -> float:
    """How likely a careful reader chooses the action that this rule gave, from 0 to 1, to three digits."""
    return round(_MODEL.estimate(rule, action), 3)
