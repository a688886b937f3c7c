"""`verifier` (prompt, chosen, rejected) and `verifier_unpaired` (prompt, completion, label): pairs of real actions.

Pairs of the families argument, type_swap and redundancy come with their mirror, see `mirrored_pairs.py`. A pair of the
family sibling is what a successful and a failed attempt did at one prompt; what makes an action a fair wrong answer
stands in `rejection_rules.py`. The family proposer has the wrong guesses of a proposer, see `proposer_mistakes.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from foretrace.core.digest import digest, hash_fraction
from foretrace.core.trace import Message
from foretrace.dataset.recipes import rejection_rules as rules
from foretrace.dataset.recipes.attempts import Attempt, Mistake, Target, TaskAttempts
from foretrace.dataset.recipes.base import IDENTITY, Config, Row
from foretrace.dataset.recipes.mirrored_pairs import MIRRORED, find_mirrored_pairs
from foretrace.dataset.recipes.pair_checks import BalanceCheck, RepeatsCheck
from foretrace.dataset.recipes.proposer_mistakes import FAMILY, make_guess_text, read_guess_message


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
        **IDENTITY,
    },
    about="Pairs of a right and a wrong next action of the same prompt, for preference training.",
    repository="verifier-pref",
    salt=_make_salt,
    checks=(BalanceCheck, RepeatsCheck),
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
        **IDENTITY,
    },
    about="The same pairs as single rows with a label.",
    repository="verifier-pref",
    salt=_make_salt,
    rows_of=("verifier", 2),
)


class Verifier:
    """`strong`: provably useless there (an answered call repeated with nothing changed, a finish before the last
    change). `weak`: not what the agent did, which does not prove it wrong."""

    configs = (PAIRED, UNPAIRED)

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """Rows of all families, each mirrored pair as two neighbours."""
        if task.settings.target == "type":
            task.drops["no_pairs_of_types"] += 1
            return
        wanted = [attempt for attempt in task.attempts if attempt.wanted]
        accepted = rules.AcceptedActions(a for a in wanted if a.trace.outcome.success is not False)
        for family, first, second, strengths in find_mirrored_pairs(wanted, task, accepted):
            pair = digest(first.attempt.trace.key, family, str(first.index), str(second.index))
            yield from _make_rows(first, _read_wrong(second), family, strengths[0], pair)
            yield from _make_rows(second, _read_wrong(first), family, strengths[1], pair)
        for chosen, rejected in _find_sibling_pairs(task, accepted):
            pair = digest(chosen.attempt.trace.key, "sibling", str(chosen.index), rejected.attempt.trace.key)
            yield from _make_rows(chosen, _read_wrong(rejected), "sibling", "weak", pair)
        for chosen, mistake, message in _find_proposer_pairs(wanted):
            wrong = _WrongAnswer(make_guess_text(mistake.guess, message), str(mistake.guess.action))
            yield from _make_rows(chosen, wrong, FAMILY, "weak", mistake.pair)


class _WrongAnswer(NamedTuple):
    """The rejected answer of a pair."""

    text: str
    action: str | None


def _read_wrong(target: Target) -> _WrongAnswer:
    return _WrongAnswer(target.text, target.label.action)


def _find_proposer_pairs(wanted: Iterable[Attempt]) -> Iterator[tuple[Target, Mistake, Message]]:
    """The steps at which a proposer's mistake becomes a pair, and the mistake."""
    for attempt in wanted:
        for target in attempt.targets:
            mistake = attempt.mistakes.get(target.index)
            if mistake is not None and (message := read_guess_message(mistake.guess)) is not None:
                yield target, mistake, message


def _find_sibling_pairs(task: TaskAttempts, accepted: rules.AcceptedActions) -> Iterator[tuple[Target, Target]]:
    """Pairs of what a successful and a failed attempt did at the same prompt; each wrong action stands once at a
    prompt."""
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
            shuffled = _shuffle(failed_by_prompt.get(prompt, ()), task.settings.seed)
            for wrong in sorted(shuffled, key=lambda wrong, at=target: -task.measure_likelihood(at, wrong)):
                same = rules.are_same_targets(target, wrong)
                if (prompt, wrong.text) in done or same or accepted.accepts(target, wrong):
                    continue
                if pairs_of[key] >= task.settings.pairs:
                    break
                pairs_of[key] += 1
                done.add((prompt, wrong.text))
                yield target, wrong


def _shuffle(targets: Iterable[Target], seed: int) -> list[Target]:
    return sorted(targets, key=lambda target: hash_fraction(str(seed), target.attempt.trace.key, str(target.index)))


def _make_rows(target: Target, wrong: _WrongAnswer, family: str, strength: str, pair: str) -> Iterator[Row]:
    """The paired row, and the two unpaired ones."""
    chosen, rejected = [("assistant", target.text)], [("assistant", wrong.text)]
    shared: dict[str, Any] = {
        "prompt": target.prompt,
        "family": family,
        "strength": strength,
        "pair": pair,
        "action": target.label.action,
        **target.attempt.make_identity(target.index),
    }
    yield PAIRED.make_row(shared | {"chosen": chosen, "rejected": rejected, "rejected_action": wrong.action})
    yield UNPAIRED.make_row(shared | {"completion": chosen, "label": True})
    yield UNPAIRED.make_row(shared | {"completion": rejected, "label": False, "action": wrong.action})


PLUGIN = Verifier()
