"""How much of a pair family is easy: what a shallow model of prompt and completion gets right.

The model sees only counts, positions and overlaps of words, and the kind of action. It is logistic, on the
difference of these features between chosen and rejected, fitted on the split train and measured on test."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import count_things
from foretrace.dataset.statistical_gates import format_fraction, measure_accuracy, scale_columns, score_rows
from foretrace.encodings.json_arguments import try_decode

DIFFICULTY_SPLITS = ("train", "test")
"""The shallow model learns from the first, and is measured on the second."""
MAX_SHALLOW_PAIRS = 300
"""Pairs used of each family and split, chosen by hash; both rows of a mirrored pair together."""
_MAX_WORDS = 6
"""Words of a completion that are looked up, the first ones."""
_MIN_TRAIN_PAIRS = 20
_WORD = re.compile(r"[\w./-]{3,}")
_OMITTED = re.compile(r"\[(\d+) earlier messages? left out\]")
_ACTIONS = {str(action): place for place, action in enumerate(ActionType)}


class ShallowPair(NamedTuple):
    """A pair as the shallow model sees it."""

    place: str
    """A hash that orders the pairs of the family; the first ones form the sample."""
    group: str
    difference: tuple[float, ...]
    """Features of the chosen completion minus those of the rejected one."""


class UnreadPair(NamedTuple):
    """A pair before the shallow model sees it: most pairs leave the sample again."""

    place: str
    group: str
    prompt: Sequence[tuple[str, str]]
    chosen: str
    rejected: str

    def read(self) -> ShallowPair:
        return ShallowPair(self.place, self.group, compare_shallowly(self.prompt, self.chosen, self.rejected))


def measure_difficulty(
    pairs: Mapping[str, Sequence[ShallowPair]], families: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Fit and measure the shallow model on each of the families, given pairs by `split/family`: its share of correct
    test pairs with an interval (99%, by groups), and the numbers of training pairs, test pairs and test groups. The
    share is None if there were too few training pairs, or no test pairs."""
    found = sorted({name.partition("/")[2] for name in pairs} & {*families})
    return {
        family: _measure_family(*(pairs.get(f"{split}/{family}", ()) for split in DIFFICULTY_SPLITS))
        for family in found
    }


def describe_difficulty(figures: Mapping[str, Any]) -> str:
    """The manifest's figures in one line: `.702 [.65, .75] of 384 test pairs in 12 groups`."""
    groups = figures["groups"]
    seen = f"{count_things(figures['test'], 'test pair')} in {count_things(groups, 'group')}"
    if figures["accuracy"] is None:
        return f"not known: {count_things(figures['train'], 'train pair')}, {seen}"
    low, high = (format_fraction(figures[name], 2) for name in ("low", "high"))
    return f"{format_fraction(figures['accuracy'], 3)} [{low}, {high}] of {seen}"


def _measure_family(train: Sequence[ShallowPair], test: Sequence[ShallowPair]) -> dict[str, Any]:
    groups = [pair.group for pair in test]
    accuracy = low = high = None
    if len(train) >= _MIN_TRAIN_PAIRS and test:
        learned, measured = (np.array([pair.difference for pair in pairs]) for pairs in (train, test))
        accuracy, low, high, _ = measure_accuracy(score_rows(*scale_columns(learned, measured), 1.0), groups)
    counts = {"train": len(train), "test": len(test), "groups": len({*groups})}
    return {"accuracy": accuracy, "low": low, "high": high, **counts}


class _Context(NamedTuple):
    """A prompt as the shallow model sees it."""

    history: str
    agent: str
    """The agent's own turns."""
    last: str
    """The last turn."""
    task: str
    """The first turn."""
    last_own: str
    """The agent's latest turn."""
    turns: int
    """Number of the agent's turns, including omitted ones."""


def compare_shallowly(prompt: Sequence[tuple[str, str]], chosen: str, rejected: str) -> tuple[float, ...]:
    """Features of the chosen completion at this prompt minus those of the rejected one."""
    context = _read_prompt(prompt)
    pairs = zip(_list_features(context, chosen), _list_features(context, rejected), strict=True)
    return tuple([a - b and round(a - b, 6) for a, b in pairs])


def _read_prompt(prompt: Sequence[tuple[str, str]]) -> _Context:
    turns = prompt[1:]
    texts = [text for _, text in turns]
    own = [text for role, text in turns if role == "assistant"]
    omitted = next((int(mark[1]) for text in texts[:2] if (mark := _OMITTED.search(text[-99:]))), 0)
    return _Context(
        history="\n".join(texts),
        agent="\n".join(own),
        last=texts[-1] if texts else "",
        task=texts[0] if texts else "",
        last_own=own[-1] if own else "",
        turns=len(own) + omitted // 2,
    )


def _list_features(context: _Context, completion: str) -> list[float]:
    """The features; always the same number."""
    action, tool, values = _read_completion(completion)
    words = list(dict.fromkeys([word for value in values for word in _WORD.findall(value)]))[:_MAX_WORDS]
    share = 1 / max(1, len(words))
    features = [
        share * sum([word in text for word in words]) for text in (context.last, context.task, context.last_own)
    ]
    history = context.history
    places = [history.rfind(word) for word in words]
    recent = [(place + 1) / max(1, len(history)) for place in places]
    found = [word for word, place in zip(words, places, strict=True) if place >= 0]
    features += [
        share * len(found),
        share * sum(recent),
        max(recent, default=0.0),
        min(recent, default=0.0),
        share * sum([math.log1p(history.count(word)) for word in found]),
        *_list_repeats(context, values),
        float(bool(tool) and tool in context.last_own),
        math.log1p(context.agent.count(tool)) if tool else 0.0,
        math.log1p(len(completion)),
    ]
    of_actions = [0.0] * (2 * len(_ACTIONS))
    if (place := _ACTIONS.get(action)) is not None:
        of_actions[2 * place], of_actions[2 * place + 1] = 1.0, math.log1p(context.turns)
    return features + of_actions


def _list_repeats(context: _Context, values: Sequence[str]) -> Iterator[float]:
    """Whether the agent wrote all of these values before, how far back, and how often."""
    written = [(value, json.dumps(value, ensure_ascii=False)[1:-1]) for value in values]
    places = [max([context.agent.rfind(form) for form in {*forms}]) for forms in written]
    is_seen = bool(places) and min(places) >= 0
    yield float(is_seen)
    yield (min(places) + 1) / max(1, len(context.agent)) if is_seen else 0.0
    longest = max(values, key=len, default="")
    yield math.log1p(context.agent.count(longest)) if is_seen and longest else 0.0


@lru_cache(maxsize=256)
def _read_completion(completion: str) -> tuple[str, str, list[str]]:
    """Action, tool and argument values of a target. Any other text counts as one value."""
    target = try_decode(completion)
    if not isinstance(target, dict) or not isinstance(target.get("arguments", {}), dict):
        return "", "", [completion]
    values = [v if isinstance(v, str) else json.dumps(v) for v in target.get("arguments", {}).values()]
    return str(target.get("action")), str(target.get("tool") or ""), values
