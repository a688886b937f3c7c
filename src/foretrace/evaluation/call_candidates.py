"""Calls that may come next: earlier calls again, what follows the lines that were shown, and calls that are usual, in
other attempts or in this one, with the files of this prompt."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from foretrace.actions.same_action import canonicalise_json
from foretrace.evaluation.call_templates import (
    CallTemplate,
    TemplateBook,
    TemplateContext,
    fill_template,
    find_only_argument,
    make_templates,
)
from foretrace.evaluation.prompt_reading import PastTurn, PromptView
from foretrace.evaluation.prompt_values import (
    NamedFile,
    find_root,
    list_created,
    list_files,
    list_names,
)

_MAX_FILES = 3
_MAX_PAST = 12
_MAX_OWN = 8
"""Templates of this prompt's own calls."""
_MAX_CREATED = 4
_LONGEST_OWN = 400
"""Characters of a call that is made a template of."""


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


def list_candidates(
    view: PromptView, context: TemplateContext, book: TemplateBook, typed: Collection[tuple[str, str]]
) -> Candidates:
    """The calls that may come next.

    Args:
        typed: (tool, argument) whose values are never text, which some ways of writing calls do not say.
    """
    past_calls = list_past_calls(view, _MAX_PAST, typed)
    values = _find_values(view, find_root(view))
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


def _find_values(view: PromptView, root: str) -> _Values:
    return _Values(
        root=root,
        names=list_names(view),
        files=list_files(view, root, _MAX_FILES),
        created=tuple(list_created(view, root)[-_MAX_CREATED:]),
    )


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


def list_past_calls(view: PromptView, limit: int, typed: Collection[tuple[str, str]] = ()) -> list[PastCall]:
    """The distinct earlier calls, the latest first."""
    found: dict[tuple[str, str], PastCall] = {}
    writes = 0
    for ago, turn in enumerate(reversed(view.turns)):
        for call in turn.calls if turn.label.action is not None else ():
            arguments = _type_arguments(call.name, call.arguments, typed)
            known = found.get((call.name, arguments))
            if known is not None:
                found[call.name, arguments] = known._replace(times=known.times + 1)
            elif len(found) < limit:
                found[call.name, arguments] = PastCall(
                    str(turn.label.action), call.name, arguments, ago, 1, turn.label.failed, writes
                )
        writes += is_write(turn)
    return [*found.values()]


def _type_arguments(tool: str, arguments: str, typed: Collection[tuple[str, str]]) -> str:
    """Canonical JSON text, where values that are text for want of a type are read."""
    text = canonicalise_json(arguments)
    if not any(name == tool and f'"{argument}":"' in text for name, argument in typed):
        return text
    values: dict[str, Any] = json.loads(text)
    for name, value in values.items():
        if isinstance(value, str) and (tool, name) in typed:
            try:
                values[name] = json.loads(value)
            except ValueError:
                continue
    return canonicalise_json(json.dumps(values))


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
    offset, size = values.get("offset") if isinstance(values, dict) else None, None
    if type(offset) is int:
        size = values.get("limit")
        if type(size) is int:
            pages.append({"offset": offset + size})
    return [canonicalise_json(json.dumps({**values, **page})) for page in pages]
