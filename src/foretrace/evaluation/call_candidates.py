"""Calls that may come next: earlier calls again, and the usual calls of this or other attempts, applied to the files of
this prompt.

A call becomes a template by replacing the working directory with `<root>` and each file with a slot: `<path>` if it is
absolute, `<rel>` if it is relative to the working directory, `<name>` if it has no folder, and `<paths>`, `<rels>` or
`<names>` for several in a row.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from foretrace.actions.same_action import canonicalize_json
from foretrace.core.digest import digest
from foretrace.evaluation.predictors.base import ActionAndTool, name_turn
from foretrace.evaluation.prompt_reading import (
    FILE,
    NamedFile,
    PastTurn,
    PromptView,
    find_root,
    list_created,
    list_files,
    list_names,
)

_FILE_SLOT = re.compile(r"<(path|rel|name)(s?)>")
_ROW_OF_FILES = re.compile(r"<(path|rel|name)>(?: <\1>)+")
_NAME = re.compile(r"\w+")
_START: ActionAndTool = ("start", "")
_PRIOR_WEIGHT = 2.0
_MAX_TEMPLATES = 30
_MANY_GROUPS = 4
_ONE_GROUP = 0.2
"""Weight of a template found in only one group."""
_MAX_FILES = 3
_MAX_PAST = 12
_MAX_OWN = 8
"""Most recent calls of this prompt that are made into templates."""
_MAX_CREATED = 4
_LONGEST_OWN = 400
"""Most characters of a call that is made into a template."""


class CallTemplate(NamedTuple):
    """A call without the parts that are specific to one attempt."""

    action: str
    tool: str
    arguments: str


@lru_cache(maxsize=16_384)
def count_files(arguments: str) -> int:
    """Number of files to fill into a template; several in a row count as two."""
    return sum(1 + bool(many) for _, many in _FILE_SLOT.findall(arguments))


@lru_cache(maxsize=16_384)
def _find_names(arguments: str) -> frozenset[str]:
    return frozenset(map(posixpath.basename, FILE.findall(arguments.replace("<root>", ""))))


@lru_cache(maxsize=16_384)
def make_templates(action: str, tool: str, arguments: str, root: str) -> tuple[CallTemplate, ...]:
    """The templates of a call: one with all slots, and one with only the working directory replaced."""
    text = canonicalize_json(arguments)
    texts = [_take_out_root(each, root) for each in (_take_out_files(text), text)]
    return tuple(CallTemplate(action, tool, each) for each in dict.fromkeys(texts))


def _take_out_files(text: str) -> str:
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
    return canonicalize_json(json.dumps(found))


def _find_slot(match: re.Match[str]) -> str:
    path = match[0]
    return "<path>" if path.startswith("/") else "<rel>" if "/" in path else "<name>"


def _take_out_root(text: str, root: str) -> str:
    return re.sub(rf"(?<![\w.-]){re.escape(root)}(?![\w.-])", "<root>", text) if root else text


_ENTER_ROOT = "cd <root> && "


def fill_template(template: CallTemplate, paths: Sequence[str], root: str) -> str:
    """The arguments of a call as JSON text: `paths` fill the slots in order, the last one all that remain; a slot for
    several files takes all of them."""
    left = [*paths]

    def fill(match: re.Match[str]) -> str:
        if match[2]:
            return " ".join(_write_path(match[1], path, root) for path in paths)
        return _write_path(match[1], left.pop(0) if len(left) > 1 else left[0], root)

    text = _FILE_SLOT.sub(fill, template.arguments) if left else template.arguments
    if not root:  # unknown: the command runs in the agent's directory
        text = text.replace(_ENTER_ROOT, "")
    return text.replace("<root>", root)


def _write_path(slot: str, path: str, root: str) -> str:
    if slot == "path":
        return path if path.startswith("/") or not root else f"{root}/{path}"
    return posixpath.basename(path) if slot == "name" else path


class TemplateContext(NamedTuple):
    """What the next call is likely to depend on."""

    turns: tuple[ActionAndTool, ...]
    agent: str
    """Identifies the agent: the tools that the system text names, or else a digest of that text."""


def find_context(view: PromptView, tools: tuple[str, ...]) -> TemplateContext:
    names = [_START, _START, *map(name_turn, view.turns)]
    return TemplateContext((names[-2], names[-1]), _name_agent(view.system, tools))


@lru_cache(maxsize=4096)
def _name_agent(system: str, tools: tuple[str, ...]) -> str:
    return " ".join(sorted({*_NAME.findall(system)}.intersection(tools))) or digest(system)


class TemplateBook:
    """How often each template followed each context; `counted` has (group, context, templates of the call)."""

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
        """Number of groups with this template, up to 4: one found in a single group is rarely found in another."""
        return len(self._groups.get(template, ()))

    def measure_shares(self, template: CallTemplate, context: TemplateContext) -> tuple[float, float]:
        """Probability of a template after the last turns, smoothed with that after fewer turns; and the same for this
        agent, smoothed with that for all agents. 0 for an unknown template."""
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
        """The most likely templates in a context, and their shares."""
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
        found = self._ranked.get(within)
        if found is None:
            counts = self._counts.get(within, Counter[CallTemplate]())
            weighed = sorted((-count * self._weigh(each), each) for each, count in counts.items())
            found = self._ranked[within] = [each for weight, each in weighed[:_MAX_TEMPLATES] if weight]
        return found

    def _weigh(self, template: CallTemplate) -> float:
        """Less for a template found in one group only; 0 if it also names a file, which others will not have."""
        if self.count_groups(template) > 1 or self._is_alone:
            return 1.0
        return 0.0 if _names_file(template.arguments) else _ONE_GROUP


@lru_cache(maxsize=16_384)
def _names_file(arguments: str) -> bool:
    return FILE.search(arguments) is not None


def _list_contexts(turns: tuple[ActionAndTool, ...], agent: str | None = None) -> Sequence[tuple[object, ...]]:
    within = [turns[len(turns) - length :] for length in range(len(turns) + 1)]
    return within if agent is None else [(agent, *each) for each in within]


class PastCall(NamedTuple):
    """A distinct earlier call of the prompt."""

    action: str
    tool: str
    arguments: str
    turns_ago: int
    times: int
    failed: bool
    writes_since: int
    """Number of turns since then that wrote something."""


class Candidate(NamedTuple):
    """A call that may come next, and where it comes from."""

    action: str
    shares: tuple[float, float] = (0.0, 0.0)
    """Probability of its template: for all agents, and for this agent."""
    groups: int = 0
    """Number of groups with this template."""
    fills: int = 1
    """Number of calls made from this template."""
    place: int = 0
    """Which of these calls it is."""
    strange: bool = False
    """Whether the template names a file that is not in the prompt."""
    own: PastCall | None = None
    """The last call of this prompt with this template."""
    file: NamedFile | None = None
    past: PastCall | None = None
    """The same call, if it was made before."""


Candidates = dict[tuple[str, str], Candidate]
"""By tool and arguments (canonical JSON)."""


def list_candidates(view: PromptView, context: TemplateContext, book: TemplateBook) -> Candidates:
    past_calls = list_past_calls(view, _MAX_PAST)
    root, names = find_root(view), list_names(view)
    files, created = list_files(view, root, _MAX_FILES), tuple(list_created(view, root)[-_MAX_CREATED:])
    own: dict[CallTemplate, PastCall] = {}
    for past in past_calls[:_MAX_OWN]:
        if len(past.arguments) <= _LONGEST_OWN:
            for template in make_templates(past.action, past.tool, past.arguments, root):
                own.setdefault(template, past)
    templates = dict(book.list_likeliest(context))
    for template in own:
        templates.setdefault(template, book.measure_shares(template, context))
    found: Candidates = {}
    list_fillings = lru_cache(lambda slots: _list_fillings(slots, files, created))
    for template, shares in templates.items():
        if not root and "<root>" in template.arguments.replace(_ENTER_ROOT, ""):
            continue
        fillings = list_fillings(count_files(template.arguments))
        candidate = Candidate(
            template.action,
            shares,
            groups=book.count_groups(template),
            fills=len(fillings),
            strange=not _find_names(template.arguments) <= names,
            own=own.get(template),
        )
        for place, (paths, file) in enumerate(fillings):
            arguments = fill_template(template, paths, root)
            known = found.get((template.tool, arguments))
            if known is None or sum(known.shares) < sum(shares):
                found[template.tool, arguments] = candidate._replace(place=place, file=file)
    for past in past_calls:
        file = next((file for file in files if file.path in past.arguments), None)
        same = found.get((past.tool, past.arguments)) or Candidate(past.action, file=file)
        found[past.tool, past.arguments] = same._replace(past=past)
    return found


def _list_fillings(
    slots: int, files: Sequence[NamedFile], created: tuple[str, ...]
) -> Sequence[tuple[tuple[str, ...], NamedFile | None]]:
    """What may fill the slots of a template: paths, and the file if it is a single one."""
    if not slots:
        return [((), None)]
    if slots == 1:
        return [((file.path,), file) for file in files]
    return [(created, None), (created[::-1], None)] if len(created) > 1 else []


def list_past_calls(view: PromptView, limit: int) -> list[PastCall]:
    """The distinct earlier calls, the most recent first."""
    found: dict[tuple[str, str], PastCall] = {}
    writes = 0
    for ago, turn in enumerate(reversed(view.turns)):
        for call in turn.calls if turn.label.action is not None else ():
            arguments = canonicalize_json(call.arguments)
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
    return turn.label.effect in ("local_write", "external_write")
