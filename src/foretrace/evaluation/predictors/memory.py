"""`memory`: exact calls, copied from the prompt or known from other attempts, and ranked by a model.

What may come next is listed by rules (`call_candidates.py`): each earlier call again, the next page of what was viewed,
and the calls that other attempts made after the same actions, with the files and names of this prompt filled in. A
gradient-boosted model, fitted on the rows that it learns from, says how likely each one is: a test command after an
edit, the file that was just created, the path that was just named.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from foretrace.actions.same_action import canonicalise_json
from foretrace.actions.taxonomy import ActionType
from foretrace.core.digest import digest, hash_fraction
from foretrace.evaluation.call_candidates import (
    CallTemplate,
    NamedFile,
    PastCall,
    fill_template,
    find_root,
    is_write,
    list_created,
    list_files,
    list_past_calls,
    list_words,
    make_plain_template,
    make_template,
    turn_page,
)
from foretrace.evaluation.dataset_rows import DatasetRow
from foretrace.evaluation.predictors.base import ActionAndTool, Guess, list_tools, name_turn
from foretrace.evaluation.predictors.regression import Regression
from foretrace.evaluation.prompt_reading import ChatText, PromptReader, PromptView

_ACTIONS = [*map(str, ActionType)]
_START: ActionAndTool = ("start", "")
_Context = tuple[ActionAndTool, ...]
_FOLDS = 4
"""Parts of the groups: the ranker learns on each with the templates of the others, as it will meet new groups."""
_RANKED_ROWS = 3000
"""Rows that the ranker learns from at most, chosen by hash."""
_PRIOR_WEIGHT = 2.0
_MAX_TEMPLATES = 30
_MAX_FILES = 8
_MAX_WORDS = 4
_MAX_PAST = 12
_LONGEST_TEMPLATE = 1000
_TREES = 80
_TYPED_ROWS = 3000
"""Rows of the other groups from which the types of a part are learnt."""


class TemplateBook:
    """How often each template followed each context of up to two turns.

    Args:
        counted: (context of two turns, templates of the call).
    """

    def __init__(self, counted: Iterable[tuple[_Context, Sequence[CallTemplate]]]) -> None:
        self._counts: dict[_Context, Counter[CallTemplate]] = {(): Counter()}
        self._rows: Counter[_Context] = Counter()
        for context, templates in counted:
            for length in range(len(context) + 1):
                within = context[len(context) - length :]
                self._counts.setdefault(within, Counter()).update(templates)
                self._rows[within] += 1

    def measure_share(self, template: CallTemplate, context: _Context) -> float:
        """Probability of a template after a context, smoothed with the shorter ones; 0 for one that is unknown."""
        share = self._counts[()][template] / max(1, self._rows[()])
        for length in range(1, len(context) + 1):
            within = context[len(context) - length :]
            if within not in self._counts:
                break
            share = (self._counts[within][template] + _PRIOR_WEIGHT * share) / (self._rows[within] + _PRIOR_WEIGHT)
        return share

    def list_likeliest(self, context: _Context) -> list[tuple[CallTemplate, float]]:
        """The likeliest templates after a context, and their shares."""
        known: dict[CallTemplate, None] = {}
        for length in range(len(context), -1, -1):
            common = self._counts.get(context[len(context) - length :], Counter()).items()
            likeliest = sorted(common, key=lambda each: (-each[1], each[0]))[:_MAX_TEMPLATES]
            known.update(dict.fromkeys(template for template, _ in likeliest))
        shares = [(template, self.measure_share(template, context)) for template in known]
        return sorted(shares, key=lambda each: (-each[1], each[0]))[:_MAX_TEMPLATES]


class _Candidate(NamedTuple):
    """A call that may come next, and where it comes from."""

    action: str
    share: float
    """Probability of its template."""
    fills: int
    """In how many ways its template was filled."""
    past: PastCall | None
    file: NamedFile | None
    is_page: bool
    has_word: bool


_Candidates = dict[tuple[str, str], _Candidate]
"""By tool and arguments (canonical JSON)."""


class Memory:
    """The candidates of a prompt, the likeliest first. The confidence is that of the whole call."""

    def __init__(self) -> None:
        self._reader = PromptReader()
        self._book = TemplateBook(())
        self._types = Regression()
        self._ranker: Any = None

    def fit(self, rows: Sequence[DatasetRow]) -> None:
        """Learn the templates, and on parts of the rows the ranker."""
        self._reader = PromptReader(list_tools(rows))
        counted = [_count_row(row, self._reader.read(row.prompt)) for row in rows]
        folds = [int(_FOLDS * hash_fraction("memory", row.group)) for row in rows]
        by_hash = sorted(range(len(rows)), key=lambda at: digest("memory", rows[at].key, str(rows[at].step)))
        chosen = sorted(by_hash[:_RANKED_ROWS])
        features: list[list[float]] = []
        right: list[bool] = []
        for fold in sorted({*folds}):
            others = [each for each, at in zip(counted, folds, strict=True) if at != fold]
            book = TemplateBook(others or counted)
            types = Regression()
            types.fit([rows[at] for at in by_hash if folds[at] != fold][:_TYPED_ROWS] or rows)
            for at in (at for at in chosen if folds[at] == fold):
                view, target = self._reader.read(rows[at].prompt), _find_target(rows[at])
                for key, made in zip(*_describe(view, book, types), strict=True):
                    features.append(made)
                    right.append(key == target)
        self._book = TemplateBook(counted)
        self._types.fit(rows)
        self._ranker = _fit_ranker(features, right)

    def predict(self, prompt: Sequence[ChatText], k: int) -> list[Guess]:
        """The likeliest calls."""
        view = self._reader.read(prompt)
        candidates = _list_candidates(view, self._book)
        if not candidates:
            return []
        shares = self._ranker(np.array(_make_features(view, candidates, self._types.measure_types(view))))
        shares = shares / max(1.0, float(shares.sum()))
        ranked = sorted(zip(shares.tolist(), candidates.items(), strict=True), key=lambda each: (-each[0], each[1][0]))
        return [
            Guess(candidate.action, tool or None, arguments, share)
            for share, ((tool, arguments), candidate) in ranked[:k]
        ]


def _find_target(row: DatasetRow) -> tuple[str, str] | None:
    """Tool and arguments of a row; None where it makes several calls, of which none is a candidate."""
    if not row.calls:
        return "", "{}"
    return (row.calls[0].tool, canonicalise_json(row.calls[0].arguments)) if len(row.calls) == 1 else None


def _count_row(row: DatasetRow, view: PromptView) -> tuple[_Context, tuple[CallTemplate, ...]]:
    context, target = _find_context(view), _find_target(row)
    if target is None or len(target[1]) > _LONGEST_TEMPLATE:
        return context, ()
    root = find_root(view)
    both = (make_template(row.action, *target, root), make_plain_template(row.action, *target, root))
    return context, tuple(dict.fromkeys(both))


def _find_context(view: PromptView) -> _Context:
    names = [_START, _START, *map(name_turn, view.turns)]
    return names[-2], names[-1]


def _describe(
    view: PromptView, book: TemplateBook, types: Regression
) -> tuple[list[tuple[str, str]], list[list[float]]]:
    candidates = _list_candidates(view, book)
    return [*candidates], _make_features(view, candidates, types.measure_types(view))


def _list_candidates(view: PromptView, book: TemplateBook) -> _Candidates:
    context, root = _find_context(view), find_root(view)
    found: _Candidates = {}
    files, words = list_files(view, root, _MAX_FILES), list_words(view, _MAX_WORDS)
    created = list_created(view, root)[-4:]
    for template, share in book.list_likeliest(context):
        for file, arguments, fills in _fill(template, files, words, created, root):
            known = found.get((template.tool, arguments))
            if known is None or known.share < share:
                made = _Candidate(template.action, share, fills, None, file, False, template.has_word)
                found[template.tool, arguments] = made
    for past in list_past_calls(view, _MAX_PAST):
        known = found.get((past.tool, past.arguments))
        if known is None:
            template = make_template(past.action, past.tool, past.arguments, root)
            share = book.measure_share(template, context)
            known = _Candidate(past.action, share, 1, past, _find_file(past.arguments, files), False, False)
        found[past.tool, past.arguments] = known._replace(past=past)
        for page in turn_page(past) if past.turns_ago == 0 else ():
            known = _Candidate(past.action, 0.0, 1, None, _find_file(page, files), True, False)
            found.setdefault((past.tool, page), known)
    return found


def _fill(
    template: CallTemplate, files: Sequence[NamedFile], words: Sequence[str], created: Sequence[str], root: str
) -> list[tuple[NamedFile | None, str, int]]:
    """Each way to fill a template: its file, the arguments, and the number of ways."""
    choices: list[tuple[NamedFile | None, list[str]]] = [(None, [])]
    if template.files > 1:
        choices = [(None, [*created])] if created else []
    elif template.files:
        choices = [(file, [file.path]) for file in files]
    ways = [*product(choices, words if template.has_word else [""])]
    return [(file, fill_template(template, paths, root, word), len(ways)) for (file, paths), word in ways]


def _find_file(arguments: str, files: Sequence[NamedFile]) -> NamedFile | None:
    return next((file for file in files if file.path in arguments), None)


def _make_features(view: PromptView, candidates: _Candidates, types: Mapping[str, float]) -> list[list[float]]:
    """One row of numbers for each candidate."""
    turns = view.turns
    since_write = next((ago for ago, turn in enumerate(reversed(turns)) if is_write(turn)), 20)
    since_check = next((ago for ago, turn in enumerate(reversed(turns)) if turn.label.action == "verifier"), 20)
    last_action = str(turns[-1].label.action) if turns else ""
    last_calls = turns[-1].calls if turns else ()
    situation = [
        float(_ACTIONS.index(last_action)) if last_action in _ACTIONS else -1.0,
        float(bool(turns) and turns[-1].label.failed),
        float(since_write),
        float(since_check),
        float(min(len(turns), 40)),
    ]
    last_arguments = last_calls[0].arguments if last_calls else ""
    last_tool = last_calls[0].name if last_calls else ""
    return [
        [
            *situation,
            float(_ACTIONS.index(candidate.action)),
            math.log(types.get(candidate.action, 0.0) + 1e-4),
            math.log(candidate.share + 1e-6),
            math.log(candidate.fills),
            float(candidate.is_page),
            float(candidate.has_word),
            float(tool == last_tool),
            float(not tool),
            *_describe_past(candidate.past),
            *_describe_file(candidate.file, last_arguments),
        ]
        for (tool, _), candidate in candidates.items()
    ]


def _describe_past(past: PastCall | None) -> list[float]:
    if past is None:
        return [-1.0, 0.0, 0.0, 0.0]
    return [float(past.turns_ago), float(min(past.times, 5)), float(past.failed), float(min(past.writes_since, 5))]


def _describe_file(file: NamedFile | None, last_arguments: str) -> list[float]:
    if file is None:
        return [-2.0] + [0.0] * 9
    return [
        float(file.in_result),
        float(file.in_task),
        float(file.created),
        float(file.edited),
        float(file.viewed),
        float(file.in_traceback),
        float(min(file.calls, 5)),
        float(min(file.turns_ago, 20)),
        float(file.path in last_arguments),
        float("test" in file.path),
    ]


def _fit_ranker(features: list[list[float]], right: list[bool]) -> Any:
    """What gives the probability of each of several candidates: (candidates, features) -> (candidates,)."""
    if not any(right) or all(right):
        share = float(np.mean(right)) if right else 0.0
        return lambda rows: np.full(len(rows), share)
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingClassifier(
        max_iter=_TREES,
        learning_rate=0.08,
        max_leaf_nodes=15,
        min_samples_leaf=30,
        l2_regularization=1.0,
        early_stopping=False,  # pyright: ignore[reportArgumentType]
        random_state=0,
    )
    with threadpool_limits(1):
        model.fit(np.array(features), np.array(right))
    return lambda rows: model.predict_proba(rows)[:, 1]


PLUGIN = Memory
