"""The family `proposer`: if a proposer guessed both the right action and a wrong one, the wrong one is rejected.

Without the prompt, an answer shows only its rank, confidence, action, tool, program and length, or is a common text. A
candidate becomes a pair if there is a twin in the same split in which all of these are the same, but the right and the
wrong answer are exchanged. So each rule based on them is right in exactly half of the pairs."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from foretrace.actions.label_steps import classify_calls
from foretrace.actions.taxonomy import ActionType, Effect
from foretrace.core.digest import digest
from foretrace.core.predictions import Prediction, write_target
from foretrace.core.trace import Message, ToolCall
from foretrace.dataset.recipes.attempts import ActionKey, Mistake, Target, TaskAttempts, make_action_key
from foretrace.dataset.recipes.mirrored_pairs import AcceptedActions, Quota
from foretrace.dataset.recipes.proposer import CONFIG
from foretrace.encodings.json_arguments import try_decode

FAMILY = CONFIG.name
"""Same as the config whose rows were predicted."""


class Appearance(msgspec.Struct, frozen=True, array_like=True):
    """What can be seen of one answer without reading the prompt."""

    rank: int
    """The rank of the proposer's guess; 1 is the likeliest."""
    confidence: float | None
    text: str
    """Digest of the completion."""
    form: str
    """Action, tools, program, and the completion's length in steps of half an octave."""


class MistakeCandidate(msgspec.Struct, frozen=True, array_like=True):
    """A wrong guess at a step with another guess that was right."""

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
    """Findings in the guesses of a proposer, in one shard job or in all of them."""

    candidates: list[MistakeCandidate] = []
    steps: int = 0
    drops: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Steps and guesses that give no candidate, by reason."""

    def search(self, task: TaskAttempts, predictions: Mapping[str, Mapping[int, Sequence[Prediction]]]) -> None:
        """Add the candidates of one task, each wrong answer once per prompt, given the guesses by key and step."""
        wanted = [attempt for attempt in task.attempts if attempt.wanted]
        accepted = AcceptedActions(a for a in wanted if a.trace.outcome.success is not False)
        done: set[tuple[bytes, str]] = set()
        for attempt in wanted:
            guesses = predictions.get(attempt.trace.key, {})
            for target in attempt.targets:
                if target.index in guesses:
                    self.steps += 1
                    self.candidates += _find_mistakes_at(target, guesses[target.index], task, accepted, done)

    def add(self, other: MistakeSearch) -> None:
        self.candidates += other.candidates
        self.steps += other.steps
        self.drops.update(other.drops)


def _find_mistakes_at(
    target: Target,
    guesses: Sequence[Prediction],
    task: TaskAttempts,
    accepted: AcceptedActions,
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
        text = write_target(guess)
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
    """The message in which an agent would do what was guessed; None if the guess names none of the nine actions, or its
    arguments are not a JSON object."""
    if guess.action not in set(ActionType):
        return None
    readable = all(isinstance(try_decode(call.arguments), dict) for call in guess.calls)
    calls = tuple(ToolCall(name=call.tool, arguments=call.arguments) for call in guess.calls)
    return Message(role="assistant", author="model", tool_calls=calls) if readable else None


def _is_right(target: Target, guess: Prediction, key: ActionKey) -> bool:
    """Whether the guess is what the agent did: the same calls, however written, or without calls the same action."""
    if not target.message.tool_calls and not guess.calls:
        return guess.action == target.label.action
    return key == target.action_key


def _find_refusal(target: Target, message: Message, key: ActionKey, accepted: AcceptedActions) -> str | None:
    """Why a wrong guess is not a fair wrong answer either, if so."""
    if message.tool_calls and {*key} & {*target.action_key}:
        return "partly_right"
    if not message.tool_calls and not target.message.tool_calls:
        return "without_call"  # two actions without calls differ only in their label
    if any(other.action_key == key for other in accepted.find_at(target)):
        return "accepted"
    return "interchangeable" if _is_interchangeable(target, message, key) else None


def _is_interchangeable(target: Target, message: Message, key: ActionKey) -> bool:
    """Whether the order may not matter: both are reads, and the agent made the guessed one later, only reads
    between."""
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
    form = f"{action} {tools} {_find_program(message)} {size}"
    return Appearance(rank=guess.rank, confidence=guess.confidence, text=digest(text), form=form)


def _find_program(message: Message) -> str:
    arguments = try_decode(message.tool_calls[0].arguments) if message.tool_calls else None
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command.split()[0] if isinstance(command, str) and command.strip() else ""


COMMON_GROUPS = 3
"""A completion in candidates of this many groups must have twins with exactly the same text."""
_MOST_LOG_ODDS = 7

_View = tuple[str, int, int | None, str]
"""What a twin must share of one answer: split, rank, confidence as rounded log-odds, text or form."""


def choose_mistakes(
    candidates: Iterable[MistakeCandidate], excluded: Mapping[bytes, str], pairs: int
) -> list[MistakeCandidate]:
    """The candidates with a twin, each followed by it; the likeliest guesses first.

    `excluded` has prompts found in several splits, and the split that keeps each. One trace gives at most `pairs`.
    """
    able = [each for each in candidates if excluded.get(each.prompt, each.split) == each.split]
    able.sort(key=lambda each: (max(each.right.rank, each.wrong.rank), each.place))
    common = _find_common_texts(able)
    waiting: dict[tuple[_View, _View], deque[MistakeCandidate]] = {}
    room = Quota(pairs)
    chosen: list[MistakeCandidate] = []
    for candidate in able:
        own = (candidate.key, candidate.step)
        if not room.has_room(own):
            continue
        right, wrong = _find_views(candidate, common)
        twins = waiting.get((wrong, right), deque())
        while twins and not room.has_room(own, (twins[0].key, twins[0].step)):
            twins.popleft()  # if it has no room now, it will have none later
        if twins:
            twin = twins.popleft()
            room.take(own, (twin.key, twin.step))
            chosen += [candidate, twin]
        else:
            waiting.setdefault((right, wrong), deque()).append(candidate)
    return chosen


def _find_common_texts(candidates: Sequence[MistakeCandidate]) -> set[str]:
    groups: dict[str, set[str]] = {}
    for each in candidates:
        for answer in (each.right, each.wrong):
            groups.setdefault(answer.text, set()).add(each.group)
    return {text for text, found in groups.items() if len(found) >= COMMON_GROUPS}


def _find_views(candidate: MistakeCandidate, common: Collection[str]) -> tuple[_View, _View]:
    def view(answer: Appearance) -> _View:
        looks = answer.text if answer.text in common else answer.form
        return candidate.split, answer.rank, find_confidence_class(answer.confidence), looks

    return view(candidate.right), view(candidate.wrong)


def find_confidence_class(confidence: float | None) -> int | None:
    """Log-odds, rounded down and limited to -7 and 7; None without a confidence."""
    if confidence is None:
        return None
    odds = math.log((confidence + 1e-9) / (1 - confidence + 1e-9))
    return max(-_MOST_LOG_ODDS, min(_MOST_LOG_ODDS, math.floor(odds)))


def make_mistakes(
    chosen: Sequence[MistakeCandidate], guesses: Mapping[str, Mapping[int, Sequence[Prediction]]]
) -> dict[str, dict[int, Mistake]]:
    """The mistakes by key and step, from which the recipe makes pairs, of candidates that are followed by their
    twins."""
    found: dict[str, dict[int, Mistake]] = {}
    for place, candidate in enumerate(chosen):
        first, twin = chosen[place - place % 2 : place - place % 2 + 2]
        wrong = next(g for g in guesses[candidate.key][candidate.step] if g.rank == candidate.wrong.rank)
        found.setdefault(candidate.key, {})[candidate.step] = Mistake(
            pair=digest(FAMILY, first.place, twin.place), guess=wrong
        )
    return found
