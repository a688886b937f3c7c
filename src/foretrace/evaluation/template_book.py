"""How often the templates of calls, and the ways to choose the lines that are shown, were seen in train rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from foretrace.core.digest import digest
from foretrace.evaluation.call_templates import CallTemplate, ShownLines, find_shown_lines
from foretrace.evaluation.predictors.base import ActionAndTool, name_turn
from foretrace.evaluation.prompt_reading import PromptView
from foretrace.evaluation.prompt_values import FILE, NamedLines

_NAME = re.compile(r"\w+")
_START: ActionAndTool = ("start", "")
_PRIOR_WEIGHT = 2.0
_MAX_TEMPLATES = 30
_MANY_GROUPS = 4
_ONE_GROUP = 0.2
"""Weight of a template that one group alone has."""
_USUAL_LENGTHS = (20, 50, 100)
"""Lines that are shown, as long as nothing was learnt."""
_MAX_LENGTHS = 6
_LONGEST = 200


class TemplateContext(NamedTuple):
    """What the next call is likely to depend on."""

    turns: tuple[ActionAndTool, ...]
    """The last two."""
    agent: str
    """What tells agents apart: the tools that the system text names, else the text itself."""


class LineRule(NamedTuple):
    """Where the lines that are shown begin, as seen from the line that the prompt points at."""

    tens: bool
    """From that line rounded down to tens."""
    offset: int

    def apply(self, line: int) -> int:
        """The first line that is shown."""
        return (line // 10 * 10 if self.tens else line) + self.offset


_RULES = [LineRule(False, offset) for offset in (0, -1, -2, -5, -10, -20)] + [LineRule(True, 0), LineRule(True, -10)]


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
        """Less for what one group alone has; nothing for it if it names a file, which others will not have."""
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


class LineBook:
    """How the lines that calls showed lay to the lines that their prompts pointed at.

    Args:
        counted: (lines that the prompt points at, arguments of the call).
    """

    def __init__(self, counted: Iterable[tuple[Sequence[NamedLines], str]]) -> None:
        self._rules: Counter[LineRule] = Counter(_RULES)
        self._lengths: Counter[int] = Counter([*_USUAL_LENGTHS])
        for lines, arguments in counted:
            shown = find_shown_lines(arguments)
            if shown is None:
                continue
            fitting = {rule for each in lines for rule in _RULES if rule.apply(each.first) == shown.first}
            self._rules.update(fitting)
            if 0 < shown.last - shown.first <= _LONGEST:
                self._lengths[shown.last - shown.first] += 1

    def list_shown(self, lines: NamedLines, own_lengths: Sequence[int]) -> list[tuple[ShownLines, float, bool]]:
        """What a call may show of a line that the prompt points at: lines, share of the rule that says where they
        begin, and whether they end as others of this prompt did, or with what begins there."""
        total = sum(self._rules.values())
        lengths = dict.fromkeys(own_lengths, True)
        for length, _ in sorted(self._lengths.items(), key=lambda each: (-each[1], each[0]))[:_MAX_LENGTHS]:
            lengths.setdefault(length, False)
        shown: dict[ShownLines, tuple[float, bool]] = {}
        if lines.last > lines.first:
            share = self._rules[LineRule(False, 0)] / total
            shown[ShownLines(lines.first, lines.last)] = share, True
        for rule, count in sorted(self._rules.items(), key=lambda each: -each[1]):
            first = max(1, rule.apply(lines.first))
            for length, own in lengths.items():
                shown.setdefault(ShownLines(first, first + length), (count / total, own))
        return [(each, *facts) for each, facts in shown.items()]
