"""How certain a label is: how often its rule agreed with hand labels, shrunk toward similar rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from foretrace.actions.taxonomy import ActionType

BLIND_AGREEMENT = 0.94
"""Agreement on rows of sources that were unseen when the rules were written. Every estimate starts here, because the
rules were written with the counted hand labels in view."""
NO_STEP = "no_step"
"""Written in place of the action if a message is not a step."""
TABLE = Path(__file__).with_name("rule_agreement.json")
"""Made by scripts/measure_rule_agreement.py: `samples` and `sources` (sets of hand-labeled steps), each with "rule
action" -> [steps that agree, all steps]; `prior_strength`, the weight of a rule's family in steps, fitted to them."""

AgreementTable = Mapping[str, tuple[int, int]]
"""Rule and action, with a space between them -> hand-labeled steps that agreed, all that were seen."""


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prior_strength: float
    samples: dict[str, tuple[int, int]]
    sources: dict[str, tuple[int, int]]


def add_tables(tables: Iterable[AgreementTable]) -> dict[str, tuple[int, int]]:
    total: dict[str, tuple[int, int]] = {}
    for key, (agreed, seen) in (item for table in tables for item in table.items()):
        before = total.get(key, (0, 0))
        total[key] = before[0] + agreed, before[1] + seen
    return total


def _find_family(rule: str) -> str:
    return rule.partition(".")[0] if "." in rule else "tool"


class ConfidenceModel:
    """Estimates how often a careful reader would choose a rule's action.

    Two nested beta distributions: the agreement of a family of rules is shrunk toward `BLIND_AGREEMENT`, and that of
    a rule toward its family's. The estimate is the posterior mean; `strength` weighs each wider level, in steps.
    """

    def __init__(self, table: AgreementTable, strength: float) -> None:
        self._table = table
        self._strength = strength
        self._agreed, self._seen = Counter[str](), Counter[str]()
        for key, (agreed, seen) in table.items():
            family = _find_family(key.split(" ")[0])
            self._agreed[family] += agreed
            self._seen[family] += seen

    def estimate_family(self, family: str) -> float:
        """The expected agreement of a rule of this family without counts of its own."""
        return (self._agreed[family] + BLIND_AGREEMENT * self._strength) / (self._seen[family] + self._strength)

    def estimate(self, rule: str, action: str | None) -> float:
        """The expected agreement if this rule gives this action (`None`: the message is not a step)."""
        agreed, seen = self._table.get(f"{rule} {action or NO_STEP}", (0, 0))
        expected = self.estimate_family(_find_family(rule))
        return (agreed + expected * self._strength) / (seen + self._strength)


COUNTS = msgspec.json.decode(TABLE.read_bytes(), type=Counts)
_AGREEMENT = add_tables([COUNTS.samples, COUNTS.sources])
_MODEL = ConfidenceModel(_AGREEMENT, COUNTS.prior_strength)


def find_agreement(rule: str, action: ActionType | None) -> tuple[int, int]:
    """How many of the hand-labeled steps to which this rule gave this action agreed, and how many there are."""
    return _AGREEMENT.get(f"{rule} {action or NO_STEP}", (0, 0))


@lru_cache(maxsize=1024)
def find_confidence(rule: str, action: ActionType | None) -> float:
    """How likely a careful reader chooses the action that this rule gave, from 0 to 1, to three digits."""
    return round(_MODEL.estimate(rule, action), 3)
