"""How sure a label is: how often its rule agreed with hand labels, drawn towards what is known of rules like it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from foretrace.actions.rule_agreement import PRIOR_STRENGTH, SAMPLES, SOURCES
from foretrace.actions.taxonomy import ActionType

BLIND_AGREEMENT = 0.94
"""Agreement on rows of sources that nobody had seen when the rules were written. Every estimate begins here, since the
rules were written with the hand labels that are counted in view."""
NO_STEP = "no_step"
"""What stands for the action where a message is not a step."""

AgreementTable = Mapping[tuple[str, str], tuple[int, int]]
"""(rule, action) -> (hand-labelled steps that agreed, all that were seen)."""


class Agreement(NamedTuple):
    """Hand-labelled steps to which one rule gave one action."""

    agreed: int
    """Those of them whose hand label is the same."""
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
    """The rules by which a rule is judged while little is known of itself: `shell` of `shell.read`."""
    return rule.partition(".")[0] if "." in rule else "tool"


class ConfidenceModel:
    """Estimates how often the action of a rule is what a careful reader says.

    Two beta distributions, one within the other: the agreement of a family of rules is drawn towards
    `BLIND_AGREEMENT`, that of a rule towards the one of its family. The estimate is the mean after what was counted.
    """

    def __init__(self, table: AgreementTable, strength: float) -> None:
        """
        Args:
            table: What was counted.
            strength: How many steps each of the two wider levels weighs as much as.
        """
        self._table = table
        self._strength = strength
        agreed, seen = Counter[str](), Counter[str]()
        for (rule, _), counts in table.items():
            agreed[find_family(rule)] += counts[0]
            seen[find_family(rule)] += counts[1]
        self._agreed, self._seen = agreed, seen

    def estimate_family(self, family: str) -> float:
        """The agreement to be expected of a rule of this family of which nothing is known."""
        return (self._agreed[family] + BLIND_AGREEMENT * self._strength) / (self._seen[family] + self._strength)

    def estimate(self, rule: str, action: str | None) -> float:
        """The agreement to be expected where this rule gives this action (`None`: the message is not a step)."""
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
    """How likely a careful reader gives a step the action that this rule gave it, from 0 to 1, to three digits."""
    return round(_MODEL.estimate(rule, action), 3)
