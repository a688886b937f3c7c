"""Gates of the pairs, checked on the files that were written.

`balance`: in a mirrored family, each completion is chosen as often as it is rejected. `shortcut/FAMILY`: each pair of a
mirrored family stands in both orders, so whoever does not read the prompt is right in exactly half of the pairs.
`repeats`: in the families `argument` and `type_swap`, the rule "reject the action that the prompt already shows" is
right in exactly half of the pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.dataset.gate import MAX_NAMED_ROWS, Gate
from foretrace.dataset.recipes.attempts import ActionKey, make_action_key
from foretrace.dataset.recipes.base import RowCheck, RowGroup
from foretrace.dataset.recipes.mirrored_pairs import MIRRORED, REPEAT_BALANCED
from foretrace.dataset.settings import BuildSettings


class BalanceCheck(RowCheck):
    """In each mirrored family and split every completion is chosen as often as it is rejected, and in each group every
    pair stands as often as its reverse."""

    columns = ("family", "chosen", "rejected")

    def __init__(self, settings: BuildSettings) -> None:
        super().__init__(settings)
        self.rows: Counter[str] = Counter()
        """Rows of mirrored families, by `split/family`."""
        self.unbalanced: dict[str, Counter[str]] = {}
        """How much more often a completion is chosen than rejected, by `split/family`."""
        self.unmirrored: dict[str, Counter[tuple[str, ...]]] = {}
        """By family: how much more often a pair stands than its reverse, by split, group, first and second text."""

    def add_rows(self, split: str, rows: RowGroup) -> None:
        """Count completions and pairs; the two rows of a mirrored pair stand in one shard job."""
        plain, messages = rows.values, rows.messages
        columns = (plain["family"], plain["group"], messages["chosen"], messages["rejected"])
        for family, group, chosen, rejected in zip(*columns, strict=True):
            if family in MIRRORED:
                self.rows[f"{split}/{family}"] += 1
                texts = (chosen[0].content, rejected[0].content)
                counts = self.unbalanced.setdefault(f"{split}/{family}", Counter())
                counts[texts[0]] += 1
                counts[texts[1]] -= 1
                first, second = sorted(texts)
                pairs = self.unmirrored.setdefault(family, Counter())
                pairs[split, group, first, second] += 1 if first == texts[0] else -1

    def finish(self) -> None:
        """Keep what is out of balance."""
        for place, counts in self.unbalanced.items():
            self.unbalanced[place] = Counter({text[:200]: count for text, count in counts.items() if count})
        for family, pairs in self.unmirrored.items():
            self.unmirrored[family] = Counter({pair: abs(count) for pair, count in pairs.items() if count})

    @classmethod
    def make_gates(cls, checks: Sequence[BalanceCheck]) -> list[Gate]:
        """`balance`, and `shortcut/FAMILY` for each mirrored family that has pairs."""
        return [cls.make_gate(checks), *cls._make_mirror_gates(checks)]

    @classmethod
    def make_gate(cls, checks: Sequence[BalanceCheck]) -> Gate:
        """Fail with the completions that are out of balance."""
        rows: Counter[str] = Counter()
        wrong: dict[str, dict[str, int]] = {}
        for check in checks:
            rows.update(check.rows)
            for place, counts in check.unbalanced.items():
                if counts:
                    wrong.setdefault(place, {}).update(counts)
        detail = "; ".join(f"{place}: {len(texts)} completions" for place, texts in sorted(wrong.items()))
        texts = tuple(text for texts in wrong.values() for text in texts)[:MAX_NAMED_ROWS]
        figure = dict(sorted(rows.items()))
        return Gate(name="balance", verdict="fail" if wrong else "pass", figure=figure, detail=detail, rows=texts)

    @classmethod
    def _make_mirror_gates(cls, checks: Sequence[BalanceCheck]) -> Iterator[Gate]:
        """Where each pair has its reverse, any guesser that sees the two completions alone, and even the group, is
        right in one of the two: that is a proof, and nothing is fitted."""
        pairs: Counter[str] = Counter()
        wrong: dict[str, Counter[tuple[str, ...]]] = {}
        for check in checks:
            for place, count in check.rows.items():
                pairs[place.partition("/")[2]] += count
            for family, counts in check.unmirrored.items():
                wrong.setdefault(family, Counter()).update(counts)
        for family in sorted(pairs):
            alone = wrong[family].total()
            named = sorted(wrong[family])[:MAX_NAMED_ROWS]
            proof = f".500 exactly, n={pairs[family]}, each in both orders"
            yield Gate(
                name=f"shortcut/{family}",
                verdict="fail" if alone else "pass",
                figure={"accuracy": None if alone else 0.5, "pairs": pairs[family], "without_mirror": alone},
                detail=f"{family}: {f'{alone} pairs have no mirror' if alone else proof}",
                rows=tuple(f"{split} {group} {first[:100]}" for split, group, first, _ in named),
            )


class RepeatsCheck(RowCheck):
    """In `argument` and `type_swap`, the rule "reject what the prompt shows as done" is right for exactly half of
    the pairs."""

    columns = ("family", "rejected")

    def __init__(self, settings: BuildSettings) -> None:
        super().__init__(settings)
        self.right: dict[str, float] = {}
        """Pairs that the rule gets right, by family; a tie counts one half."""
        self.pairs: Counter[str] = Counter()
        """All pairs, by family."""
        self._rejected: dict[tuple[str, int], list[tuple[str, str]]] = {}
        """Family and rejected completion of each pair, by key and step."""

    def add_rows(self, split: str, rows: RowGroup) -> None:
        """Remember the pairs until their prompts come."""
        if self.settings.target != "call":
            return
        columns = (rows.values["key"], rows.values["step"], rows.values["family"], rows.messages["rejected"])
        for key, step, family, rejected in zip(*columns, strict=True):
            self._rejected.setdefault((key, step), []).append((family, rejected[0].content))

    def add_prompt(self, trace: Trace, step: int, first_shown: int) -> None:
        """Apply the rule to the pairs of this prompt."""
        pairs = self._rejected.get((trace.key, step))
        if pairs is None:
            return
        shown = {make_action_key(m) for m in trace.messages[first_shown:step] if m.role == "assistant"}
        chosen = make_action_key(trace.messages[step])
        for family, rejected in pairs:
            sign = (_read_action_key(rejected) in shown) - (chosen in shown)
            self.right[family] = self.right.get(family, 0.0) + (1 + sign) / 2
            self.pairs[family] += 1

    def finish(self) -> None:
        """Forget the completions."""
        self._rejected.clear()

    @classmethod
    def make_gate(cls, checks: Sequence[RepeatsCheck]) -> Gate:
        """Fail unless the rule is right in exactly half of the pairs of each family in `REPEAT_BALANCED`."""
        figure: dict[str, Any] = {}
        for family in sorted({family for check in checks for family in check.pairs}):
            right = sum(check.right.get(family, 0.0) for check in checks)
            figure[family] = round(right / sum(check.pairs[family] for check in checks), 4)
        wrong = [family for family in REPEAT_BALANCED if figure.get(family, 0.5) != 0.5]
        detail = "share that is right by rejecting what the prompt shows as done; argument and type_swap: .5"
        return Gate(name="repeats", verdict="fail" if wrong else "pass", figure=figure, detail=detail)


def _read_action_key(target_text: str) -> ActionKey:
    """The action key of a target text of the form `call`."""
    value = msgspec.json.decode(target_text)
    calls = [value, *value.get("more", ())] if value["tool"] else []
    made = (ToolCall(name=c["tool"], arguments=msgspec.json.encode(c["arguments"]).decode()) for c in calls)
    return make_action_key(Message(role="assistant", author="model", tool_calls=tuple(made)))
