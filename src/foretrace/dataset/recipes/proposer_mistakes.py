"""The family `proposer`: where a proposer guessed the right action and a wrong one, the wrong one is rejected.

Both answers of such a pair are guesses of the proposer, so that neither its style nor having been guessed at all tells
them apart. Which of the candidates found here become pairs is decided over the whole dataset (`mistake_balance.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from foretrace.actions.label_steps import classify_calls
from foretrace.actions.taxonomy import ActionType, Effect
from foretrace.core.digest import digest
from foretrace.core.predictions import Prediction
from foretrace.core.trace import Message, ToolCall
from foretrace.dataset.likely_calls import find_program
from foretrace.dataset.recipes import rejection_rules as rules
from foretrace.dataset.recipes.attempts import ActionKey, Target, TaskAttempts, make_action_key
from foretrace.dataset.recipes.proposer import CONFIG
from foretrace.dataset.target_text import make_target_text

FAMILY = CONFIG.name
"""Named as the config whose rows were predicted."""


class Appearance(msgspec.Struct, frozen=True, array_like=True):
    """What can be seen of one answer without reading the prompt."""

    rank: int
    """Of the proposer's guess; 1 is the likeliest."""
    confidence: float | None
    text: str
    """Digest of the completion."""
    form: str
    """Action, tools, program, and the length of the completion in steps of half an octave."""


class MistakeCandidate(msgspec.Struct, frozen=True, array_like=True):
    """A wrong guess at a step at which another guess was right."""

    place: str
    """A hash that orders the candidates of a dataset."""
    key: str
    step: int
    split: str
    group: str
    prompt: bytes
    """Digest of the prompt."""
    right: Appearance
    wrong: Appearance


class MistakeSearch(msgspec.Struct, kw_only=True):
    """What the guesses of a proposer hold, in one shard job or in all of them."""

    candidates: list[MistakeCandidate] = []
    steps: int = 0
    """Steps with guesses."""
    drops: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Steps and guesses that give no candidate, by why."""

    def search(self, task: TaskAttempts, predictions: Mapping[str, Mapping[int, Sequence[Prediction]]]) -> None:
        """Add the candidates of one task, each wrong answer once at a prompt.

        Args:
            task: With targets that were selected, and `drops` of this object.
            predictions: The guesses by key and step, best first.
        """
        wanted = [attempt for attempt in task.attempts if attempt.wanted]
        accepted = rules.AcceptedActions(a for a in wanted if a.trace.outcome.success is not False)
        done: set[tuple[bytes, str]] = set()
        for attempt in wanted:
            guesses = predictions.get(attempt.trace.key, {})
            for target in attempt.targets:
                if target.index in guesses:
                    self.steps += 1
                    self.candidates += _find_mistakes_at(target, guesses[target.index], task, accepted, done)

    def add(self, other: MistakeSearch) -> None:
        """Add what a further job found."""
        self.candidates += other.candidates
        self.steps += other.steps
        self.drops.update(other.drops)

    def explain_lack(self) -> str:
        """Why there is no pair, for a user who can change what is predicted."""
        missed = self.drops["proposer_right_not_guessed"]
        refused = sum(self.drops.values()) - missed
        alone = len(self.candidates)
        reasons = [f"{self.steps:,} predicted steps are rows"]
        if missed:
            reasons.append(f"at {missed:,} no guess was right (predict more guesses a row, or with a better predictor)")
        if refused:
            reasons.append(f"{refused:,} guesses cannot be read or may be no mistakes")
        if alone:
            reasons.append(
                f"{alone:,} wrong guesses beside a right one have no twin, which is such a step with right and wrong "
                "exchanged (predict the rows of more traces: some hundreds)"
            )
        elif self.steps > missed:
            reasons.append("beside a right guess there was no wrong one (predict more guesses a row)")
        return "; ".join(reasons)


def _find_mistakes_at(
    target: Target,
    guesses: Sequence[Prediction],
    task: TaskAttempts,
    accepted: rules.AcceptedActions,
    done: set[tuple[bytes, str]],
) -> Iterator[MistakeCandidate]:
    messages = [read_guess_message(guess) for guess in guesses]
    keys = [None if message is None else make_action_key(message) for message in messages]
    task.drops["proposer_unreadable"] += keys.count(None)
    places = [place for place, key in enumerate(keys) if key is not None and _is_right(target, guesses[place], key)]
    if not places:
        task.drops["proposer_right_not_guessed"] += 1
        return
    right = guesses[places[0]]
    at, prompt = target.attempt.trace, target.prompt_digest
    shown = _describe(target.text, str(target.label.action), target.message, right)
    for place, (guess, message, key) in enumerate(zip(guesses, messages, keys, strict=True)):
        if message is None or key is None or place in places:
            continue
        text = make_guess_text(guess, message)
        if why := _find_refusal(target, message, key, accepted):
            task.drops[f"proposer_{why}"] += 1
        elif (prompt, text) not in done:
            done.add((prompt, text))
            yield MistakeCandidate(
                place=digest("mistakes", str(task.settings.seed), at.key, str(target.index), str(guess.rank)),
                key=at.key,
                step=target.index,
                split=task.split,
                group=at.task.group,
                prompt=prompt,
                right=shown,
                wrong=_describe(text, str(guess.action), message, guess),
            )


def read_guess_message(guess: Prediction) -> Message | None:
    """The message in which an agent would do what was guessed; None for a guess that names none of the nine actions, or
    whose arguments are no JSON object."""
    if guess.action not in set(ActionType):
        return None
    try:
        readable = all(isinstance(msgspec.json.decode(call.arguments), dict) for call in guess.calls)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    calls = tuple(ToolCall(name=call.tool, arguments=call.arguments) for call in guess.calls)
    return Message(role="assistant", author="model", tool_calls=calls) if readable else None


def make_guess_text(guess: Prediction, message: Message) -> str:
    """The guess as the dataset writes targets."""
    return make_target_text(message, ActionType(str(guess.action)), "call")


def _is_right(target: Target, guess: Prediction, key: ActionKey) -> bool:
    """Whether the guess is what the agent did: the same calls, however they are written; without calls, the action."""
    if not target.message.tool_calls and not guess.calls:
        return guess.action == target.label.action
    return key == target.action_key


def _find_refusal(target: Target, message: Message, key: ActionKey, accepted: rules.AcceptedActions) -> str | None:
    """Why a guess that is not what the agent did is no fair wrong answer either."""
    if message.tool_calls and {*key} & {*target.action_key}:
        return "partly_right"
    if not message.tool_calls and not target.message.tool_calls:
        return "without_call"  # two actions without a call differ in their label alone
    if accepted.accepts_key(target, key):
        return "accepted"
    return "interchangeable" if _is_interchangeable(target, message, key) else None


def _is_interchangeable(target: Target, message: Message, key: ActionKey) -> bool:
    """Whether both are reads, and the agent made the guessed one later, with only reads between: their order may not
    matter."""
    attempt = target.attempt
    facts = classify_calls(attempt.trace, message.tool_calls)
    if facts is None or facts.effect is not Effect.PURE_READ or target.label.effect is not Effect.PURE_READ:
        return False
    for label in attempt.labels:
        if label.index > target.index:
            if label.effect is not Effect.PURE_READ:
                return False
            if attempt.find_action_key(label.index) == key:
                return True
    return False


def _describe(text: str, action: str, message: Message, guess: Prediction) -> Appearance:
    tools = ",".join(call.name for call in message.tool_calls)
    size = (len(text) ** 2).bit_length()
    form = f"{action} {tools} {find_program(message)} {size}"
    return Appearance(rank=guess.rank, confidence=guess.confidence, text=digest(text), form=form)
