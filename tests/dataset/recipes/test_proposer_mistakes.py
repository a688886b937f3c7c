"""Which guesses of a proposer are mistakes: not those that do the same, or would have done as well."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from dataset.little import runs, says, seen, system, trace, user
from foretrace.core.predictions import PredictedCall, Prediction
from foretrace.core.trace import Trace
from foretrace.dataset.inferred_tools import InferredTools
from foretrace.dataset.prompts import make_token_counter
from foretrace.dataset.recipes.attempts import Attempt, TaskAttempts, select_targets
from foretrace.dataset.recipes.proposer_mistakes import (
    Appearance,
    MistakeCandidate,
    MistakeSearch,
    choose_mistakes,
    find_confidence_class,
)
from foretrace.dataset.settings import BuildSettings

COMMANDS = {"cat a.py": "x = 1", "cat b.py": "y = 1", "sed -i s/1/2/ a.py": "", "cat c.py": "z = 1"}
STEPS = [message for command, result in COMMANDS.items() for message in (runs(command), seen(result))]
ONE = trace("one", system("You are an agent."), user("Fix a.py."), *STEPS, says("Done."))
"""The agent reads twice at steps 2 and 4, writes at 6, reads again at 8, and says that it is done at 10."""


def guess(rank: int, command: str | None, action: str = "file_read", arguments: str | None = None) -> Prediction:
    text = f'{{"command": "{command}"}}' if arguments is None else arguments
    calls = () if command is None else (PredictedCall("bash", text),)
    return Prediction(key="one", step=2, rank=rank, action=action, calls=calls, confidence=1 / (1 + rank))


def search(step: int, *guesses: Prediction, traces: tuple[Trace, ...] = (ONE,)) -> MistakeSearch:
    settings = BuildSettings(outcomes="not_failed")
    attempts = [Attempt(each, settings, make_token_counter(None), InferredTools(), None) for each in traces]
    select_targets(attempts)
    found = MistakeSearch()
    found.search(TaskAttempts(attempts, "train", settings, found.drops), {"one": {step: guesses}})
    return found


def test_a_wrong_guess_beside_a_right_one() -> None:
    found = search(2, guess(1, "ls"), guess(2, "cat  ./a.py"), guess(3, "make", "verifier"))
    assert [(each.wrong.rank, each.right.rank) for each in found.candidates] == [(1, 2), (3, 2)]
    assert found.candidates[0].right.confidence == pytest.approx(1 / 3)
    assert found.candidates[1].wrong.form.startswith("verifier bash make ")
    assert (found.steps, +found.drops) == (1, Counter())


def test_without_a_right_guess_there_is_none() -> None:
    """Else the answer that was never guessed would be the right one each time."""
    found = search(2, guess(1, "ls"), guess(2, "make"))
    assert (found.candidates, +found.drops) == ([], Counter(proposer_right_not_guessed=1))


def test_the_right_call_under_another_action_is_right() -> None:
    found = search(2, guess(1, "cat a.py", "retrieval"), guess(2, "'cat' a.py"))
    assert (found.candidates, +found.drops) == ([], Counter())


@pytest.mark.parametrize(
    ("step", "wrong", "why"),
    [
        (2, guess(2, "cat b.py"), "interchangeable"),  # read right after, with nothing in between
        (2, guess(2, "cat c.py"), None),  # read as well, but behind a write
        (2, guess(2, "sed -i s/1/2/ a.py", "file_write"), None),
        (2, guess(2, "", arguments="[1]"), "unreadable"),
        (2, guess(2, "", arguments="{no"), "unreadable"),
        (2, guess(2, "ls", "guessing"), "unreadable"),
        (10, guess(2, None, "ask_clarification"), "without_call"),
        (10, guess(2, "ls"), None),
    ],
)
def test_what_is_no_fair_wrong_answer(step: int, wrong: Prediction, why: str | None) -> None:
    right = guess(1, "cat a.py") if step == 2 else guess(1, None, "final_answer")
    found = search(step, right, wrong)
    assert +found.drops == ({} if why is None else {f"proposer_{why}": 1})
    assert len(found.candidates) == (why is None)


def test_a_part_of_several_calls_is_not_wrong() -> None:
    both = ONE.messages[2].tool_calls + ONE.messages[4].tool_calls
    together = trace("one", *ONE.messages[:2], says("", tool_calls=both), seen("x = 1"), seen("y = 1"), says("Done."))
    calls = tuple(PredictedCall(call.name, call.arguments) for call in both)
    whole = Prediction(key="one", step=2, rank=1, action="file_read", calls=calls)
    found = search(2, whole, guess(2, "cat b.py"), traces=(together,))
    assert (found.candidates, +found.drops) == ([], Counter(proposer_partly_right=1))


def test_what_another_attempt_did_at_the_prompt_is_not_wrong() -> None:
    other = trace("two", *ONE.messages[:2], runs("make"), seen("ok"), says("Done."))
    found = search(2, guess(1, "cat a.py"), guess(2, "make", "verifier"), traces=(ONE, other))
    assert (found.candidates, +found.drops) == ([], Counter(proposer_accepted=1))


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
    assert 950 <= len(chosen) <= 1000, "nearly four of each of the 250 traces"
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
