"""Mistakes of a proposer become pairs only with a twin: no rule that goes by looks, rank or confidence wins."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import msgspec

from foretrace.dataset.recipes.proposer_mistakes import (
    Appearance,
    MistakeCandidate,
    choose_mistakes,
    find_confidence_class,
)

TEXTS = ["submit", "pytest", "ls", "cat a.py", "edit"]


def look(text: str, rank: int, confidence: float | None) -> Appearance:
    return Appearance(rank, confidence, text, text.split()[0])


def plant(count: int = 3000) -> list[MistakeCandidate]:
    """Candidates with every shortcut at once: `submit` is mostly wrong, the sure and the first guess mostly right."""
    found: list[MistakeCandidate] = []
    rng = random.Random(5)
    for number in range(count):
        one, two = rng.sample(TEXTS, 2)
        first = look(one, 1, rng.choice([0.9, 0.5, 0.3]))
        second = look(two, rng.choice([2, 3]), rng.choice([0.05, 0.2]))
        right_is_first = rng.random() < (0.2 if one == "submit" else 0.9 if first.confidence == 0.9 else 0.6)
        right, wrong = (first, second) if right_is_first else (second, first)
        split = ("train", "validation")[number // 12 % 5 == 0]
        prompt, place = number.to_bytes(8, "big"), f"{rng.random():.12f}"
        key, group = f"trace-{number // 12}", f"g{number // 50}"
        found.append(MistakeCandidate(place, key, number, split, group, prompt, right, wrong))
    return found


RULES: dict[str, Callable[[Appearance], object]] = {
    "rank": lambda answer: -answer.rank,
    "confidence": lambda answer: find_confidence_class(answer.confidence) or 0,
    "not submit": lambda answer: answer.text != "submit",
    "length": lambda answer: len(answer.text),
}


def measure(rule: Callable[[Appearance], object], pairs: list[MistakeCandidate]) -> float:
    scores = [(rule(each.right), rule(each.wrong)) for each in pairs]
    return sum(0.5 if right == wrong else float(right > wrong) for right, wrong in scores) / len(scores)  # type: ignore[operator]


def test_no_rule_without_the_prompt_wins() -> None:
    planted = plant()
    chosen = choose_mistakes(planted, {}, pairs=4)
    assert len(chosen) > 300
    for name, rule in RULES.items():
        assert abs(measure(rule, planted) - 0.5) > 0.02, name  # the shortcut was there
        for split in ("train", "validation"):
            of_split = [each for each in chosen if each.split == split]
            assert of_split and measure(rule, of_split) == 0.5, (name, split)


def test_a_trace_gives_few_pairs_and_a_step_one_whatever_the_order() -> None:
    planted = plant(600)
    chosen = choose_mistakes(planted, {}, pairs=3)
    assert chosen == choose_mistakes(planted[::-1], {}, pairs=3)
    assert max(Counter(each.key for each in chosen).values()) == 3
    assert len({(each.key, each.step) for each in chosen}) == len(chosen)
    again = [msgspec.structs.replace(each, step=0) for each in planted]
    assert max(Counter(each.key for each in choose_mistakes(again, {}, pairs=4)).values()) == 1
    assert choose_mistakes(planted, {}, pairs=0) == []


def test_prompts_that_another_split_keeps_give_none() -> None:
    planted = plant(600)
    gone = {each.prompt: "test" for each in planted if each.split == "train"}
    assert {each.split for each in choose_mistakes(planted, gone, pairs=4)} == {"validation"}


def test_a_common_text_needs_a_twin_of_the_same_text() -> None:
    def candidate(number: int, right: str, wrong: str, first: str) -> MistakeCandidate:
        answers = [Appearance(1 if text == first else 2, None, text, "read bash cat 9") for text in (right, wrong)]
        return MistakeCandidate(str(number), f"k{number}", 0, "train", f"g{number}", b"", *answers)

    rare = [candidate(0, "cat a", "cat b", "cat a"), candidate(1, "cat c", "cat d", "cat d")]
    assert len(choose_mistakes(rare, {}, pairs=4)) == 2
    common = [candidate(n, "cat a", "cat b", ("cat a", "cat b")[n % 2]) for n in range(4)]
    assert choose_mistakes(common, {}, pairs=4) == []  # `cat a` is always right
