"""Calls that may come next: earlier calls again, what follows the lines that were shown, and calls that are usual, in
other attempts or in this one, with the files of this prompt.

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
from typing import Any, NamedTuple

from foretrace.actions.same_action import canonicalise_json
from foretrace.core.digest import digest
from foretrace.evaluation.predictors.base import ActionAndTool, name_turn
from foretrace.evaluation.prompt_reading import PastTurn, PromptView
from foretrace.evaluation.prompt_values import FILE, NamedFile, find_root, list_created, list_files, list_names

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
_MAX_FILES = 3
_MAX_PAST = 12
_MAX_OWN = 8
"""Templates of this prompt's own calls."""
_MAX_CREATED = 4
_LONGEST_OWN = 400
"""Characters of a call that is made a template of."""


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


_ENTER_ROOT = "cd <root> && "


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
    if not root:  # not known: the command runs where the agent is
        text = text.replace(_ENTER_ROOT, "")
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


class PastCall(NamedTuple):
    """An earlier call of the prompt, as often as it was made."""

    action: str
    tool: str
    arguments: str
    """Canonical JSON text."""
    turns_ago: int
    times: int
    failed: bool
    """Whether it failed the last time."""
    writes_since: int
    """Turns since then that wrote."""


class Usage(NamedTuple):
    """How usual a template is: what all calls that are made of it have in common."""

    action: str
    shares: tuple[float, float] = (0.0, 0.0)
    """Probability of the template, after the last turns and with this agent."""
    groups: int = 0
    """In how many groups it was seen."""
    fills: int = 1
    """In how many ways it was filled."""
    strange: bool = False
    """Whether it names a file that the prompt does not."""
    own: PastCall | None = None
    """The last call of this prompt that has it."""


class Filling(NamedTuple):
    """What fills the slots of a template."""

    paths: tuple[str, ...] = ()
    file: NamedFile | None = None


NOTHING = Filling()


class Candidate(NamedTuple):
    """A call that may come next, and where it comes from."""

    usage: Usage
    filling: Filling = NOTHING
    place: int = 0
    """Which of the ways to fill the template this is."""
    past: PastCall | None = None
    """The same call, where it was made before."""
    is_page: bool = False


Candidates = dict[tuple[str, str], Candidate]
"""By tool and arguments (canonical JSON)."""


class _Values(NamedTuple):
    """What a prompt has to fill in."""

    root: str
    names: set[str]
    files: Sequence[NamedFile]
    created: tuple[str, ...]


def list_candidates(view: PromptView, context: TemplateContext, book: TemplateBook) -> Candidates:
    """The calls that may come next."""
    past_calls = list_past_calls(view, _MAX_PAST)
    root = find_root(view)
    values = _Values(
        root=root,
        names=list_names(view),
        files=list_files(view, root, _MAX_FILES),
        created=tuple(list_created(view, root)[-_MAX_CREATED:]),
    )
    own: dict[CallTemplate, PastCall] = {}
    for past in past_calls[:_MAX_OWN]:
        if len(past.arguments) <= _LONGEST_OWN:
            for template in make_templates(past.action, past.tool, past.arguments, values.root):
                own.setdefault(template, past)
    templates = dict(book.list_likeliest(context))
    for template in own:
        templates.setdefault(template, book.measure_shares(template, context))
    found: Candidates = {}
    list_fillings = lru_cache(lambda files: _list_fillings(files, values))
    for template, shares in templates.items():
        if not values.root and "<root>" in template.arguments.replace(_ENTER_ROOT, ""):
            continue
        fillings = list_fillings(template.files)
        usage = Usage(
            template.action,
            shares,
            groups=book.count_groups(template),
            fills=len(fillings),
            strange=not template.names <= values.names,
            own=own.get(template),
        )
        tool = _find_tool(template, past_calls)
        for place, filling in enumerate(fillings):
            arguments = fill_template(template, filling.paths, values.root)
            known = found.get((tool, arguments))
            if known is None or sum(known.usage.shares) < sum(shares):
                found[tool, arguments] = Candidate(usage, filling, place)
    for past in past_calls:
        _add_past(found, past, values)
    return found


def _find_tool(template: CallTemplate, past_calls: Sequence[PastCall]) -> str:
    """The tool of a template, or the one that this agent has called with the same single argument: a shell goes by
    another name with each agent."""
    argument = find_only_argument(template.arguments)
    if argument is None or any(past.tool == template.tool for past in past_calls):
        return template.tool
    same = (past.tool for past in past_calls if find_only_argument(past.arguments) == argument)
    return next(same, template.tool)


def _list_fillings(slots: int, values: _Values) -> Sequence[Filling]:
    """The ways to fill a template that has slots for so many files, the likeliest first."""
    if not slots:
        return [NOTHING]
    if slots == 1:
        return [Filling((file.path,), file) for file in values.files]
    return [Filling(values.created), Filling(values.created[::-1])] if len(values.created) > 1 else []


def _add_past(found: Candidates, past: PastCall, values: _Values) -> None:
    """Add an earlier call, and what follows the lines that it showed if it is the last one."""
    known = found.get((past.tool, past.arguments))
    filling = Filling(file=next((file for file in values.files if file.path in past.arguments), None))
    known = known or Candidate(Usage(past.action), filling)
    found[past.tool, past.arguments] = known._replace(past=past)
    for page in turn_page(past) if past.turns_ago == 0 else ():
        found.setdefault((past.tool, page), Candidate(Usage(past.action, own=past), filling, is_page=True))


def list_past_calls(view: PromptView, limit: int) -> list[PastCall]:
    """The distinct earlier calls, the latest first."""
    found: dict[tuple[str, str], PastCall] = {}
    writes = 0
    for ago, turn in enumerate(reversed(view.turns)):
        for call in turn.calls if turn.label.action is not None else ():
            arguments = canonicalise_json(call.arguments)
            known = found.get((call.name, arguments))
            if known is not None:
                found[call.name, arguments] = known._replace(times=known.times + 1)
            elif len(found) < limit:
                found[call.name, arguments] = PastCall(
                    str(turn.label.action), call.name, arguments, ago, 1, turn.label.failed, writes
                )
        writes += is_write(turn)
    return [*found.values()]


def is_write(turn: PastTurn) -> bool:
    """Whether a turn wrote something."""
    return turn.label.effect in ("local_write", "external_write")


def turn_page(call: PastCall) -> list[str]:
    """Arguments that show what follows the lines that a call showed; nothing where it has no range of lines."""
    try:
        values: Any = json.loads(call.arguments)
    except ValueError:
        return []
    pages: list[dict[str, Any]] = []
    for name, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value):
            first, last = value
            if last > first:
                pages += [{name: [last + 1, 2 * last - first + 1]}, {name: [last, 2 * last - first]}]
    if isinstance(values, dict) and type(values.get("offset")) is type(values.get("limit")) is int:
        pages.append({"offset": values["offset"] + values["limit"]})
    return [canonicalise_json(json.dumps({**values, **page})) for page in pages]
