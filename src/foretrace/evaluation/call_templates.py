"""Calls without what belongs to one attempt, how usual they are, and such calls with the names of another prompt.

A call becomes a template by taking out the working directory (`<root>`) and the files (`<path>` where they are written
from the root of the file system, `<rel>` where relative to the working directory, `<name>` where without a folder;
`<paths>`, `<rels>`, `<names>` where there are several in a row).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from foretrace.actions.same_action import canonicalise_json
from foretrace.core.digest import digest
from foretrace.evaluation.predictors.base import ActionAndTool, name_turn
from foretrace.evaluation.prompt_reading import PromptView
from foretrace.evaluation.prompt_values import FILE

_FILE_SLOT = re.compile(r"<(path|rel|name)(s?)>")
_ROW_OF_FILES = re.compile(r"<(path|rel|name)>(?: <\1>)+")
_ONLY_ARGUMENT = re.compile(r'\{"(\w+)":"(?:[^"\\]|\\.)*"\}')
_NAME = re.compile(r"\w+")
_START: ActionAndTool = ("start", "")
_PRIOR_WEIGHT = 2.0
_MAX_TEMPLATES = 30
_MANY_GROUPS = 4
_ONE_GROUP = 0.2
"""Weight of a template that only one group has."""


class CallTemplate(NamedTuple):
    """A call without what belongs to one attempt."""

    action: str
    tool: str
    arguments: str
    """JSON text with slots."""

    @property
    def files(self) -> int:
        """How many files are to be filled in; a row of files counts as two."""
        return _count_files(self.arguments)

    @property
    def names(self) -> frozenset[str]:
        """Names, without folders, of the files that it does not leave open."""
        return _find_names(self.arguments)


@lru_cache(maxsize=16_384)
def _count_files(arguments: str) -> int:
    return sum(1 + bool(many) for _, many in _FILE_SLOT.findall(arguments))


@lru_cache(maxsize=16_384)
def _find_names(arguments: str) -> frozenset[str]:
    return frozenset(map(posixpath.basename, FILE.findall(arguments.replace("<root>", ""))))


@lru_cache(maxsize=16_384)
def make_templates(action: str, tool: str, arguments: str, root: str) -> tuple[CallTemplate, ...]:
    """The templates of a call: with all slots, and with only the working directory taken out."""
    text = canonicalise_json(arguments)
    texts = [_take_out_root(each, root) for each in (_take_out_files(text), text)]
    return tuple(CallTemplate(action, tool, each) for each in dict.fromkeys(texts))


def _take_out_files(text: str) -> str:
    """Arguments with slots for the files in their texts."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    if not isinstance(values, dict):
        return text
    found = {
        name: _ROW_OF_FILES.sub(r"<\1s>", FILE.sub(_find_slot, value)) if isinstance(value, str) else value
        for name, value in values.items()
    }
    return canonicalise_json(json.dumps(found))


def _find_slot(match: re.Match[str]) -> str:
    path = match[0]
    return "<path>" if path.startswith("/") else "<rel>" if "/" in path else "<name>"


@lru_cache(maxsize=16_384)
def find_only_argument(arguments: str) -> str | None:
    """The name of the argument of a call that has only one, and a text; agents' shells differ only in their name."""
    match = _ONLY_ARGUMENT.fullmatch(arguments)
    return match[1] if match else None


def _take_out_root(text: str, root: str) -> str:
    return re.sub(rf"(?<![\w.-]){re.escape(root)}(?![\w.-])", "<root>", text) if root else text


def fill_template(template: CallTemplate, paths: Sequence[str], root: str) -> str:
    """The arguments of a call as JSON text.

    Args:
        paths: Files, relative to the working directory where they lie in it, for the slots in their order; the last
            one for those that remain, all for a row of files.
    """
    left = [*paths]

    def fill(match: re.Match[str]) -> str:
        if match[2]:
            return " ".join(_write_path(match[1], path, root) for path in paths)
        return _write_path(match[1], left.pop(0) if len(left) > 1 else left[0], root)

    text = _FILE_SLOT.sub(fill, template.arguments) if left else template.arguments
    return text.replace("<root>", root)


def _write_path(slot: str, path: str, root: str) -> str:
    if slot == "path":
        return path if path.startswith("/") or not root else f"{root}/{path}"
    return posixpath.basename(path) if slot == "name" else path


class TemplateContext(NamedTuple):
    """What the next call is likely to depend on."""

    turns: tuple[ActionAndTool, ...]
    """The last two."""
    agent: str
    """What tells agents apart: the tools that the system text names, else the text itself."""


def find_context(view: PromptView, tools: tuple[str, ...]) -> TemplateContext:
    """The context of the next call.

    Args:
        tools: Names of all tools that are known.
    """
    names = [_START, _START, *map(name_turn, view.turns)]
    return TemplateContext((names[-2], names[-1]), _name_agent(view.system, tools))


@lru_cache(maxsize=4096)
def _name_agent(system: str, tools: tuple[str, ...]) -> str:
    return " ".join(sorted({*_NAME.findall(system)}.intersection(tools))) or digest(system)


class TemplateBook:
    """How often each template followed each context.

    Args:
        counted: (group, context, templates of the call).
    """

    def __init__(self, counted: Iterable[tuple[str, TemplateContext, Sequence[CallTemplate]]]) -> None:
        self._counts: dict[tuple[object, ...], Counter[CallTemplate]] = {(): Counter()}
        self._rows: Counter[tuple[object, ...]] = Counter()
        self._groups: dict[CallTemplate, set[str]] = {}
        self._ranked: dict[tuple[object, ...], Sequence[CallTemplate]] = {}
        self._likeliest: dict[TemplateContext, Sequence[tuple[CallTemplate, tuple[float, float]]]] = {}
        all_groups: set[str] = set()
        for group, context, templates in counted:
            all_groups.add(group)
            for template in templates:
                groups = self._groups.setdefault(template, set())
                if len(groups) < _MANY_GROUPS:
                    groups.add(group)
            for within in {*_list_contexts(context.turns), *_list_contexts(context.turns, context.agent)}:
                self._counts.setdefault(within, Counter()).update(templates)
                self._rows[within] += 1
        self._is_alone = len(all_groups) == 1

    def count_groups(self, template: CallTemplate) -> int:
        """In how many groups a template was seen, as far as it matters: what only one has is seldom in another."""
        return len(self._groups.get(template, ()))

    def measure_shares(self, template: CallTemplate, context: TemplateContext) -> tuple[float, float]:
        """Probability of a template after the last turns, smoothed with fewer of them; and the same for this agent,
        smoothed with that of all. 0 for a template that is unknown."""
        overall = self._smooth(template, 0.0, _list_contexts(context.turns))
        return overall, self._smooth(template, overall, _list_contexts(context.turns, context.agent))

    def _smooth(self, template: CallTemplate, share: float, contexts: Iterable[tuple[object, ...]]) -> float:
        for within in contexts:
            rows = self._rows.get(within, 0)
            if not rows:
                break
            weight = _PRIOR_WEIGHT if within else 0.0
            share = (self._counts[within][template] + weight * share) / (rows + weight)
        return share

    def list_likeliest(self, context: TemplateContext) -> Sequence[tuple[CallTemplate, tuple[float, float]]]:
        """The likeliest templates after a context, and their shares."""
        found = self._likeliest.get(context)
        if found is None:
            known: dict[CallTemplate, None] = {}
            for within in (*_list_contexts(context.turns, context.agent), *_list_contexts(context.turns)):
                known.update(dict.fromkeys(self._rank(within)))
            weighed = [
                (sum(shares) * self._weigh(each), each, shares)
                for each in known
                for shares in [self.measure_shares(each, context)]
            ]
            weighed.sort(key=lambda each: (-each[0], each[1]))
            found = self._likeliest[context] = [(each, shares) for _, each, shares in weighed[:_MAX_TEMPLATES]]
        return found

    def _rank(self, within: tuple[object, ...]) -> Sequence[CallTemplate]:
        """The most frequent templates of a context."""
        found = self._ranked.get(within)
        if found is None:
            weighed = [
                (-count * self._weigh(each), each) for each, count in self._counts.get(within, Counter()).items()
            ]
            found = self._ranked[within] = [each for weight, each in sorted(weighed)[:_MAX_TEMPLATES] if weight]
        return found

    def _weigh(self, template: CallTemplate) -> float:
        """Less for what only one group has; nothing for it if it names a file, which others will not have."""
        if self.count_groups(template) > 1 or self._is_alone:
            return 1.0
        return 0.0 if _names_file(template.arguments) else _ONE_GROUP


@lru_cache(maxsize=16_384)
def _names_file(arguments: str) -> bool:
    return FILE.search(arguments) is not None


def _list_contexts(turns: tuple[ActionAndTool, ...], agent: str | None = None) -> Sequence[tuple[object, ...]]:
    """Contexts, the widest first."""
    within = [turns[len(turns) - length :] for length in range(len(turns) + 1)]
    return within if agent is None else [(agent, *each) for each in within]
