"""`verifier` (prompt, chosen, rejected) and `verifier_unpaired` (prompt, completion, label): pairs of real actions.

Pairs of the families argument, type_swap and redundancy come with their mirror (`mirrored_pairs.py`); a pair of the
family sibling is what a successful and a failed attempt did at one prompt; the family proposer has the wrong guesses of
a proposer (`proposer_mistakes.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from foretrace.core.digest import digest, hash_fraction
from foretrace.core.predictions import write_target
from foretrace.core.trace import Message, Outcome, ToolCall, Trace
from foretrace.dataset.recipes.attempts import ActionKey, Target, TaskAttempts, make_action_key, make_outcome_values
from foretrace.dataset.recipes.base import COMMON_COLUMNS, Config, Gate, Row, RowCheck, RowGroup, make_gate
from foretrace.dataset.recipes.mirrored_pairs import (
    MIRRORED,
    REPEAT_BALANCED,
    AcceptedActions,
    are_same_targets,
    find_mirrored_pairs,
)
from foretrace.dataset.recipes.proposer_mistakes import FAMILY
from foretrace.dataset.settings import BuildSettings


class MirrorCheck(RowCheck):
    """In each mirrored family, every pair is as frequent as its reverse in each group and split."""

    columns = ("family", "chosen", "rejected")

    def __init__(self, settings: BuildSettings) -> None:
        super().__init__(settings)
        self.pairs: Counter[str] = Counter()
        """By family."""
        self.unmirrored: dict[str, Counter[tuple[str, ...]]] = {}
        """By family: the frequency of a pair minus that of its reverse, by split, group, first and second text."""

    def add_rows(self, split: str, rows: RowGroup) -> None:
        """Count the pairs; the two rows of a mirrored pair are in the same shard job."""
        columns = map(rows.read, ("family", "group", "chosen", "rejected"))
        for family, group, chosen, rejected in zip(*columns, strict=True):
            if family in MIRRORED:
                self.pairs[family] += 1
                first, second = sorted((chosen[0].content, rejected[0].content))
                counts = self.unmirrored.setdefault(family, Counter())
                counts[split, group, first, second] += 1 if first == chosen[0].content else -1

    def finish(self) -> None:
        """Keep only pairs without a mirror."""
        for family, pairs in self.unmirrored.items():
            self.unmirrored[family] = Counter({pair: abs(count) for pair, count in pairs.items() if count})

    @classmethod
    def make_gates(cls, checks: Sequence[MirrorCheck]) -> list[Gate]:
        """`shortcut/FAMILY` for each mirrored family that has pairs. If each pair has its reverse, any guesser that
        sees only the two completions, or even the group, is right in one of the two."""
        gates: list[Gate] = []
        for family, count in sorted(sum((check.pairs for check in checks), Counter[str]()).items()):
            unmirrored = sum((check.unmirrored.get(family, Counter()) for check in checks), Counter[tuple[str, ...]]())
            alone = unmirrored.total()
            proof = f".500 exactly, n={count}, each in both orders"
            figure = {"accuracy": None if alone else 0.5, "pairs": count, "without_mirror": alone}
            detail = f"{family}: {f'{alone} pairs have no mirror' if alone else proof}"
            named = (f"{split} {group} {first[:100]}" for split, group, first, _ in unmirrored)
            gates.append(make_gate(f"shortcut/{family}", figure, named, detail=detail))
        return gates


class RepeatsCheck(RowCheck):
    """In `argument` and `type_swap`, the rule "reject what the prompt shows as done" is right in half of the pairs."""

    columns = ("family", "rejected")

    def __init__(self, settings: BuildSettings) -> None:
        super().__init__(settings)
        self.points: Counter[tuple[str, float]] = Counter()
        """Pairs by family, and by whether the rule is right; a tie counts one half."""
        self._rejected: dict[tuple[str, int], list[tuple[str, str]]] = {}
        """Family and rejected completion of each pair, by key and step."""

    def add_rows(self, split: str, rows: RowGroup) -> None:
        """Store the pairs until their prompts arrive."""
        if self.settings.target != "call":
            return
        columns = map(rows.read, ("key", "step", "family", "rejected"))
        for key, step, family, rejected in zip(*columns, strict=True):
            self._rejected.setdefault((key, step), []).append((family, rejected[0].content))

    def add_prompt(self, trace: Trace, step: int, shown: range) -> None:
        """Apply the rule to the pairs of this prompt."""
        pairs = self._rejected.get((trace.key, step))
        if pairs is None:
            return
        history = trace.messages[shown.start : shown.stop]
        done = {make_action_key(message) for message in history if message.role == "assistant"}
        chosen = make_action_key(trace.messages[step])
        for family, rejected in pairs:
            sign = (_read_action_key(rejected) in done) - (chosen in done)
            self.points[family, (1 + sign) / 2] += 1

    def finish(self) -> None:
        self._rejected.clear()

    @classmethod
    def make_gates(cls, checks: Sequence[RepeatsCheck]) -> list[Gate]:
        """Fail unless the rule is right in exactly half of the pairs of each family in `REPEAT_BALANCED`. No gates if
        there are no pairs of calls, since nothing was measured."""
        points = sum((check.points for check in checks), Counter[tuple[str, float]]())
        if not points:
            return []
        figure: dict[str, Any] = {}
        for family in sorted({family for family, _ in points}):
            found = [(point, pairs) for (name, point), pairs in points.items() if name == family]
            figure[family] = round(sum(point * n for point, n in found) / sum(n for _, n in found), 4)
        wrong = [family for family in REPEAT_BALANCED if figure.get(family, 0.5) != 0.5]
        detail = "share that is right by rejecting what the prompt shows as done; argument and type_swap: .5"
        return [make_gate("repeats", figure, failed=bool(wrong), detail=detail)]


def _read_action_key(target_text: str) -> ActionKey:
    value = msgspec.json.decode(target_text)
    calls = [value, *value.get("more", ())] if value["tool"] else []
    made = (ToolCall(name=c["tool"], arguments=msgspec.json.encode(c["arguments"]).decode()) for c in calls)
    return make_action_key(Message(role="assistant", author="model", tool_calls=tuple(made)))


def _make_salt(values: Mapping[str, Any]) -> str:
    return f"{values['family']}:{values['pair']}" + {True: "+", False: "-", None: ""}[values.get("label")]


PAIRED = Config(
    name="verifier",
    columns={
        "prompt": "messages",
        "chosen": "messages",
        "rejected": "messages",
        "family": "string",
        "strength": "string",
        "pair": "string",
        "action": "action",
        "rejected_action": "action",
        **COMMON_COLUMNS,
    },
    about="Pairs of a right and a wrong next action of the same prompt, for preference training.",
    repository="verifier-pref",
    salt=_make_salt,
    checks=(MirrorCheck, RepeatsCheck),
    pair_families=True,
    mirrored=MIRRORED,
)
UNPAIRED = Config(
    name="verifier_unpaired",
    columns={
        "prompt": "messages",
        "completion": "messages",
        "label": "bool",
        "family": "string",
        "strength": "string",
        "pair": "string",
        "action": "action",
        **COMMON_COLUMNS,
    },
    about="The same pairs as single rows with a label.",
    repository="verifier-pref",
    salt=_make_salt,
    rows_of=("verifier", 2),
)


class Verifier:
    """Pairs of a right and a wrong action. `strong`: the wrong one is provably useless there (an answered call repeated
    with nothing changed, a finish before a file change). `weak`: it is not what the agent did, which does not prove
    it wrong."""

    configs = (PAIRED, UNPAIRED)

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """Rows of all families, with the two rows of a mirrored pair next to each other."""
        wanted = [attempt for attempt in task.attempts if attempt.wanted]
        accepted = AcceptedActions(a for a in wanted if a.trace.outcome.success is not False)
        for family, first, second, strengths in find_mirrored_pairs(wanted, task, accepted):
            pair = digest(first.attempt.trace.key, family, str(first.index), str(second.index))
            yield from _make_rows(first, _read_wrong(second), family, strengths[0], pair, task.settings)
            yield from _make_rows(second, _read_wrong(first), family, strengths[1], pair, task.settings)
        for chosen, rejected in _find_sibling_pairs(task, accepted):
            pair = digest(chosen.attempt.trace.key, "sibling", str(chosen.index), rejected.attempt.trace.key)
            yield from _make_rows(chosen, _read_wrong(rejected), "sibling", "weak", pair, task.settings)
        for chosen in (target for attempt in wanted for target in attempt.targets):
            mistake = chosen.attempt.mistakes.get(chosen.index)
            if mistake is not None:
                wrong = _WrongAnswer(write_target(mistake.guess), str(mistake.guess.action), Outcome())
                yield from _make_rows(chosen, wrong, FAMILY, "weak", mistake.pair, task.settings)


class _WrongAnswer(NamedTuple):
    text: str
    action: str | None
    outcome: Outcome
    """The outcome of the attempt that gave it; unknown for a guess."""


def _read_wrong(target: Target) -> _WrongAnswer:
    return _WrongAnswer(target.text, target.label.action, target.attempt.trace.outcome)


def _find_sibling_pairs(task: TaskAttempts, accepted: AcceptedActions) -> Iterator[tuple[Target, Target]]:
    """Pairs of what a successful and a failed attempt did at the same prompt; each wrong action once per prompt."""
    failed_by_prompt: dict[bytes, list[Target]] = {}
    for attempt in task.attempts:
        if attempt.trace.outcome.success is False:
            for target in attempt.targets:
                failed_by_prompt.setdefault(target.prompt_digest, []).append(target)
    pairs_of: Counter[str] = Counter()
    done: set[tuple[bytes, str]] = set()
    for attempt in task.attempts:
        if attempt.trace.outcome.success is not True or not attempt.wanted:
            continue
        key = attempt.trace.key
        for target in attempt.targets:
            prompt = target.prompt_digest
            for wrong in sorted(failed_by_prompt.get(prompt, ()), key=partial(_find_place, task.settings.seed)):
                same = are_same_targets(target, wrong)
                if (prompt, wrong.text) in done or same or accepted.accepts(target, wrong):
                    continue
                if pairs_of[key] >= task.settings.pairs:
                    break
                pairs_of[key] += 1
                done.add((prompt, wrong.text))
                yield target, wrong


def _find_place(seed: int, target: Target) -> float:
    return hash_fraction(str(seed), target.attempt.trace.key, str(target.index))


def _make_rows(
    target: Target, wrong: _WrongAnswer, family: str, strength: str, pair: str, settings: BuildSettings
) -> Iterator[Row]:
    """The paired row and the two unpaired ones, each with the outcome of the attempt that gave its answer."""
    chosen, rejected = [("assistant", target.text)], [("assistant", wrong.text)]
    shared: dict[str, Any] = {
        "prompt": target.prompt,
        "family": family,
        "strength": strength,
        "pair": pair,
        "action": target.label.action,
        **target.attempt.make_common_values(target.index),
    }
    yield PAIRED.make_row(shared | {"chosen": chosen, "rejected": rejected, "rejected_action": wrong.action})
    yield UNPAIRED.make_row(shared | {"completion": chosen, "label": True})
    rest = {"label": False, "action": wrong.action, **make_outcome_values(wrong.outcome, settings)}
    yield UNPAIRED.make_row(shared | {"completion": rejected} | rest)


PLUGIN = Verifier()
