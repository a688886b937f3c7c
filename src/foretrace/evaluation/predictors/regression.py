"""`regression`: a logistic regression on the past actions and on the words of the last result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from foretrace.core.digest import hash_fraction
from foretrace.core.message_columns import ChatText
from foretrace.evaluation.dataset_rows import DatasetRow
from foretrace.evaluation.predictors.base import ActionAndTool, Guess, list_tools, name_target, name_turn, rank_actions
from foretrace.evaluation.prompt_reading import PastTurn, PromptView, clip, read_prompt

_WORD_BUCKETS = 1 << 14
_HISTORY_BUCKETS = 1 << 13
_WORD = re.compile(r"[A-Za-z_]{2,24}")
_READ_CHARS = 1200
"""Characters read at the beginning and at the end of the last result."""
_PENALTY_C = 0.1
"""Inverse of the regularization strength, as in scikit-learn."""
_LAST_TURNS_VALUE = 3.0
"""Value of the features of the last two turns. Their weights are penalized less, by its square, so the model is close
to a Markov chain of order 2 if there are few rows or little other information."""
_MAX_ITERATIONS = 150
_FOLDS = 4
"""Folds of the groups; each is held out once to calibrate the probabilities, or only one if rows are many."""
_MANY_ROWS = 3000
_NEVER = -6.0
"""Score of a class that was not among the train rows."""
_TEMPERATURES = np.geomspace(0.5, 4.0, 25)


class Regression:
    """Predicts one of nine classes, the action types, with the tool most often called for the type after the last tool.

    Features: the last three actions and tools, alone and combined; whether the last two failed; the length of the
    attempt and how often each action was taken; TF-IDF of the words at both ends of the last result. The probabilities
    are calibrated by one temperature on held-out groups.
    """

    target = "type"

    def __init__(self) -> None:
        self._known_tools = frozenset[str]()
        self._idf = np.ones(_WORD_BUCKETS)
        self._classes: list[str] = []
        self._weights = np.zeros((0, 0))
        """(features, classes), so that the weights of one feature are contiguous."""
        self._bias = np.zeros(0)
        self._tools: dict[tuple[str, str], Counter[str]] = {}
        self.held_out: dict[int, dict[str, float]] = {}
        """Probabilities at rows of the last fit, by index, from a model that had not learned from their group."""

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        self._known_tools = frozenset(list_tools(rows))
        views = [read_prompt(row.prompt, self._known_tools) for row in rows]
        self._tools = _count_tools(rows, views)
        words = [Counter(_hash_words(view)) for view in views]
        self._idf = _measure_idf(words)
        features = _stack([self._join(word, view) for word, view in zip(words, views, strict=True)])
        actions = [row.action for row in rows]
        self._classes = sorted({*actions})
        labels = np.array([self._classes.index(action) for action in actions])
        weights, bias = _fit_model(features, labels, len(self._classes))
        held, scores = _hold_out(features, labels, [row.group for row in rows])
        temperature = _find_temperature(scores, labels[held]) if len(held) else 1.0
        self.held_out = {at: self._name_shares(row) for at, row in zip(held, scores / temperature, strict=True)}
        self._weights, self._bias = np.ascontiguousarray(weights.T) / temperature, bias / temperature

    def predict(self, prompt: Sequence[ChatText], k: int) -> list[Guess]:
        view = read_prompt(prompt, self._known_tools)
        return rank_actions(self._spread_over_tools(self.measure_types(view), view), k)

    def measure_types(self, view: PromptView) -> dict[str, float]:
        indices, values = self._join(Counter(_hash_words(view)), view)
        return self._name_shares(values @ self._weights[indices] + self._bias)

    def _name_shares(self, scores: np.ndarray) -> dict[str, float]:
        return dict(zip(self._classes, _softmax(scores[None])[0].tolist(), strict=True))

    def _join(self, words: Counter[int], view: PromptView) -> tuple[np.ndarray, np.ndarray]:
        """Sparse features of one prompt: ascending indices, and values."""
        history = dict.fromkeys(map(_hash_feature, _name_history(view)), 1.0)
        history.update(dict.fromkeys(map(_hash_feature, _name_last_turns(view)), _LAST_TURNS_VALUE))
        places = sorted(history)
        found = sorted(words)
        weights = np.log1p([float(words[index]) for index in found]) * self._idf[found]
        norm = float(np.sqrt((weights**2).sum())) or 1.0
        values = np.concatenate([weights / norm, [history[place] for place in places]])
        return np.array([*found, *places], np.int64), values

    def _spread_over_tools(self, shares: dict[str, float], view: PromptView) -> dict[ActionAndTool, float]:
        """Probability of each type and tool, by the tools called after the last one, if possible in this prompt."""
        last = name_turn(view.turns[-1])[1] if view.turns else ""
        shown = {call.name for turn in view.turns for call in turn.calls} | {""}
        spread: dict[ActionAndTool, float] = {}
        for action, share in shares.items():
            counts = self._tools.get((action, last)) or self._tools[action, "*"]
            known = {tool: count for tool, count in self._tools[action, "*"].items() if tool in shown}
            counts = {tool: count for tool, count in counts.items() if tool in shown} or known or counts
            for tool, count in counts.items():
                spread[action, tool] = share * count / sum(counts.values())
        return spread


def _count_tools(rows: Sequence[DatasetRow], views: Sequence[PromptView]) -> dict[tuple[str, str], Counter[str]]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row, view in zip(rows, views, strict=True):
        action, tool = name_target(row)
        for last in (name_turn(view.turns[-1])[1] if view.turns else "", "*"):
            counts.setdefault((action, last), Counter())[tool] += 1
    return counts


def _hash_words(view: PromptView) -> Iterable[int]:
    text = clip(view.last_result, _READ_CHARS)
    return (crc32(word.encode()) % _WORD_BUCKETS for word in _WORD.findall(text.lower()))


def _measure_idf(words: Sequence[Counter[int]]) -> np.ndarray:
    held = np.zeros(_WORD_BUCKETS)
    for each in words:
        held[[*each]] += 1
    return np.log((1 + len(words)) / (1 + held)) + 1


def _hash_feature(name: str) -> int:
    return _WORD_BUCKETS + crc32(name.encode()) % _HISTORY_BUCKETS


def _name_last_turns(view: PromptView) -> Iterable[str]:
    last = ["start"] * 2 + ["/".join(name_turn(turn)) for turn in view.turns[-2:]]
    yield f"1 {last[-1]}"
    yield f"2 {last[-2]}"
    yield f"12 {last[-1]} {last[-2]}"
    if view.turns:
        yield _name_success(1, view.turns[-1])


def _name_success(back: int, turn: PastTurn) -> str:
    return f"failed {back} {turn.label.failed} {turn.label.action}"


def _name_history(view: PromptView) -> Iterable[str]:
    names = ["/".join(name_turn(turn)) for turn in view.turns]
    last = ["start"] * 3 + names
    yield f"3 {last[-3]}"
    yield f"123 {last[-1]} {last[-2]} {last[-3]}"
    yield f"length {min(len(names), 3) if len(names) < 6 else min(len(names) // 6 + 3, 10)}"
    for name, count in Counter(names).items():
        yield f"count {name} {min(count, 4)}"
    for back, turn in enumerate(reversed(view.turns[-2:]), 1):
        yield _name_success(back, turn)


def _stack(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> Any:
    from scipy.sparse import csr_matrix

    ends = np.cumsum([0, *(len(indices) for indices, _ in rows)])
    indices = np.concatenate([indices for indices, _ in rows])
    values = np.concatenate([values for _, values in rows])
    return csr_matrix((values, indices, ends), shape=(len(rows), _WORD_BUCKETS + _HISTORY_BUCKETS))


def _fit_model(features: Any, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (classes, features) and bias (classes,)."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    if len({*labels.tolist()}) < 2:
        bias = np.full(classes, _NEVER)
        bias[labels[0]] = 0.0
        return np.zeros((classes, features.shape[1])), bias
    with threadpool_limits(1):
        model = LogisticRegression(C=_PENALTY_C, max_iter=_MAX_ITERATIONS, tol=1e-3).fit(features, labels)
    known, bias, weights = model.classes_, np.full(classes, _NEVER), np.zeros((classes, features.shape[1]))
    if len(known) == 2:  # only the second class has weights
        bias[known], weights[known[1]] = (0.0, model.intercept_[0]), model.coef_[0]
    else:
        bias[known], weights[known] = model.intercept_, model.coef_
    return weights, bias


def _hold_out(features: Any, labels: np.ndarray, groups: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Indexes of rows, and their scores (rows, classes) from a model that did not learn from their group; empty if
    there is only one group."""
    classes = int(labels.max()) + 1
    folds = np.array([int(_FOLDS * hash_fraction("regression", group)) for group in groups])
    scores = [np.zeros((0, classes))]
    held: list[int] = []
    for fold in range(_FOLDS):
        inside = folds == fold
        if inside.any() and not inside.all() and (not held or len(labels) < _MANY_ROWS):
            weights, bias = _fit_model(features[~inside], labels[~inside], classes)
            scores.append(features[inside] @ weights.T + bias)
            held.extend(np.flatnonzero(inside).tolist())
    return held, np.concatenate(scores)


def _find_temperature(scores: np.ndarray, labels: np.ndarray) -> float:
    """The divisor of scores that makes the right classes most likely on held-out rows."""
    rows = np.arange(len(labels))
    losses = [-np.log(_softmax(scores / each)[rows, labels] + 1e-12).mean() for each in _TEMPERATURES]
    return float(_TEMPERATURES[int(np.argmin(losses))])


def _softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


PLUGIN = Regression
