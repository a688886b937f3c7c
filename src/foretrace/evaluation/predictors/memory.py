"""`memory`: exact calls, copied from the prompt or known from other attempts, and ranked by a model.

Rules (`call_candidates.py`) list the candidates: each earlier call again, and the calls that other attempts, or this
one earlier, made after the same actions, with the files of this prompt filled in. A gradient-boosted model fitted on
the train rows estimates how likely each candidate is: a test command after an edit, the file just created, the path
just named.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretrace.actions.same_action import canonicalize_json
from foretrace.core.digest import digest
from foretrace.core.message_columns import ChatText
from foretrace.evaluation.call_candidates import (
    CallTemplate,
    Candidate,
    Candidates,
    PastCall,
    TemplateBook,
    TemplateContext,
    find_context,
    is_write,
    list_candidates,
    make_templates,
)
from foretrace.evaluation.dataset_rows import ACTIONS, DatasetRow
from foretrace.evaluation.predictors.base import Guess, list_tools
from foretrace.evaluation.predictors.regression import Regression
from foretrace.evaluation.prompt_reading import NamedFile, PastTurn, PromptView, find_root, read_prompt

_FOLDS = (8, 4)
"""Number of folds of groups, with few rows and with many. The ranker learns on each fold with the templates of the
others, and with types predicted by a model that has not seen it, since in use it will meet new groups."""
_RANKED_ROWS = 3000
"""Most rows that the ranker learns from, chosen by hash."""
_LONGEST_TEMPLATE = 1000
_FEW_ROWS = 1000
"""With fewer rows than this the ranker has fewer and smaller trees, so as not to memorize single attempts."""
_TREES, _LEAVES = (50, 80), (7, 15)
"""Number of trees and of leaves per tree, each with few rows and with many."""


_Counted = tuple[str, TemplateContext, tuple[CallTemplate, ...]]
"""What the template book counts for one row: its group, the context, and the templates of its call."""


class Memory:
    """Guesses the most likely candidates of a prompt. The confidence is that of the whole call."""

    def __init__(self) -> None:
        self._tools: tuple[str, ...] = ()
        self._known_tools = frozenset[str]()
        self._book = TemplateBook(())
        self._types = Regression()
        self._ranker: Any = None

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        self._tools = tuple(list_tools(rows))
        self._known_tools = frozenset(self._tools)
        counted = [_count_row(row, read_prompt(row.prompt, self._known_tools), self._tools) for row in rows]
        folds = _assign_folds(rows)
        self._types = Regression()
        self._types.fit(rows)
        held_out = self._types.held_out or dict.fromkeys(range(len(rows)))  # empty with a single group
        by_hash = sorted(held_out, key=lambda at: digest("memory", rows[at].key, str(rows[at].step)))
        chosen = sorted(by_hash[:_RANKED_ROWS])
        features: list[np.ndarray] = []
        right: list[bool] = []
        for fold in sorted({*folds}):
            others = [each for each, at in zip(counted, folds, strict=True) if at != fold]
            self._book = TemplateBook(others or counted)
            for at in (at for at in chosen if folds[at] == fold):
                view, target = read_prompt(rows[at].prompt, self._known_tools), _find_target(rows[at])
                candidates, made = self._describe(view, held_out[at] or self._types.measure_types(view))
                if candidates:
                    features.append(made)
                right += [key == target for key in candidates]
        self._book = TemplateBook(counted)
        self._ranker = _fit_ranker(
            np.concatenate(features) if features else np.zeros((0, 1)), right, few=len(chosen) < _FEW_ROWS
        )

    def predict(self, prompt: Sequence[ChatText], k: int) -> list[Guess]:
        view = read_prompt(prompt, self._known_tools)
        candidates, features = self._describe(view, self._types.measure_types(view))
        if not candidates:
            return []
        shares = self._ranker(features)
        shares = shares / max(1.0, float(shares.sum()))
        ranked = sorted(zip(shares.tolist(), candidates.items(), strict=True), key=lambda each: (-each[0], each[1][0]))
        return [
            Guess(candidate.action, tool or None, arguments, share)
            for share, ((tool, arguments), candidate) in ranked[:k]
        ]

    def _describe(self, view: PromptView, types: Mapping[str, float]) -> tuple[Candidates, np.ndarray]:
        context = find_context(view, self._tools)
        candidates = list_candidates(view, context, self._book)
        return candidates, _make_features(view, candidates, types, context.agent.split())


def _assign_folds(rows: Sequence[DatasetRow]) -> list[int]:
    sizes = Counter(row.group for row in rows)
    filled = dict.fromkeys(range(_FOLDS[len(rows) >= _FEW_ROWS]), 0)
    fold_of: dict[str, int] = {}
    for group in sorted(sizes, key=lambda group: (-sizes[group], digest("memory", group))):
        fold_of[group] = min(filled, key=lambda fold: filled[fold])
        filled[fold_of[group]] += sizes[group]
    return [fold_of[row.group] for row in rows]


def _find_target(row: DatasetRow) -> tuple[str, str] | None:
    """Tool and arguments of a row; None if it makes several calls, which candidates never do."""
    if not row.calls:
        return "", "{}"
    return (row.calls[0].tool, canonicalize_json(row.calls[0].arguments)) if len(row.calls) == 1 else None


def _count_row(row: DatasetRow, view: PromptView, tools: tuple[str, ...]) -> _Counted:
    context, target = find_context(view, tools), _find_target(row)
    if target is None or len(target[1]) > _LONGEST_TEMPLATE:
        return row.group, context, ()
    return row.group, context, make_templates(row.action, *target, find_root(view))


def _make_features(
    view: PromptView, candidates: Candidates, types: Mapping[str, float], tools: Sequence[str]
) -> np.ndarray:
    turns = view.turns
    last_calls = turns[-1].calls if turns else ()
    last_tool = last_calls[0].name if last_calls else ""
    called = {call.name for turn in turns for call in turn.calls}
    situation = _describe_situation(turns)
    of_type = {action: [float(at), math.log(types.get(action, 0.0) + 1e-4)] for at, action in enumerate(ACTIONS)}

    def describe(tool: str, arguments: str, candidate: Candidate) -> list[float]:
        return [
            *situation,
            float(candidate.place),
            math.log(len(arguments)),
            *of_type[candidate.action],
            *(math.log(share + 1e-6) for share in candidate.shares),
            float(candidate.groups),
            math.log(candidate.fills),
            float(candidate.strange),
            *_describe_past(candidate.own),
            float(tool == last_tool),
            float(not tool),
            float(tool in called),
            float(tool in tools),
            *_describe_past(candidate.past),
            *_describe_file(candidate.file),
        ]

    return np.array([describe(*name, candidate) for name, candidate in candidates.items()])


def _describe_situation(turns: Sequence[PastTurn]) -> list[float]:
    since_write = next((ago for ago, turn in enumerate(reversed(turns)) if is_write(turn)), 20)
    since_check = next((ago for ago, turn in enumerate(reversed(turns)) if turn.label.action == "verifier"), 20)
    last_action = str(turns[-1].label.action) if turns else ""
    return [
        float(ACTIONS.index(last_action)) if last_action in ACTIONS else -1.0,
        float(bool(turns) and turns[-1].label.failed),
        float(since_write),
        float(since_check),
        float(min(len(turns), 40)),
    ]


def _describe_past(past: PastCall | None) -> list[float]:
    if past is None:
        return [-1.0, 0.0, 0.0, 0.0]
    return [float(past.turns_ago), float(min(past.times, 5)), float(past.failed), float(min(past.writes_since, 5))]


def _describe_file(file: NamedFile | None) -> list[float]:
    if file is None:
        return [-2.0, 0.0, 0.0]
    return [float(file.in_result), float(min(file.calls, 5)), float(min(file.turns_ago, 20))]


def _fit_ranker(features: np.ndarray, right: list[bool], *, few: bool) -> Any:
    """Fit a function that returns the probability of each candidate: (candidates, features) -> (candidates,)."""
    if not any(right) or all(right):
        share = float(np.mean(right)) if right else 0.0
        return lambda rows: np.full(len(rows), share)
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingClassifier(
        max_iter=_TREES[not few],
        learning_rate=0.08,
        max_leaf_nodes=_LEAVES[not few],
        min_samples_leaf=30,
        l2_regularization=1.0,
        early_stopping=False,  # pyright: ignore[reportArgumentType]
        random_state=0,
    )
    with threadpool_limits(1):
        model.fit(features, np.array(right))
    return lambda rows: model.predict_proba(rows)[:, 1]


PLUGIN = Memory
