"""Calls that may come next: earlier calls again, and calls that are usual elsewhere with the files of this prompt.

A call becomes a template by taking out what belongs to one attempt: the working directory (`<root>`), the files
(`<path>` where they are written from the root of the file system, `<rel>` where relative to the working directory,
`<name>` where without a folder) and a word that is searched for (`<word>`).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace.actions.call_facts import CallKind
from foretrace.actions.same_action import canonicalise_json
from foretrace.actions.tool_rules import classify_call
from foretrace.evaluation.prompt_reading import PastTurn, PromptView

_FOLDER = r"/[A-Za-z_][\w.@+-]*(?:/[\w.@+-]+){0,3}"
_ROOT_LINE = re.compile(rf"^({_FOLDER})/?$", re.MULTILINE)
_CD = re.compile(rf"\bcd ({_FOLDER})/? *(?:&&|;)")
_ROOT = re.compile(rf"(?<![\w./~<:-]){_FOLDER}(?=[\s`'\"<,)]|$)", re.MULTILINE)
_NO_ROOTS = ("/usr", "/bin", "/etc", "/tmp", "/dev", "/proc")
_FILE = re.compile(
    r"(?:(?<![\w/.@+<*-])|(?<=\*/))(?:~?/|\.{1,2}/)?(?:[\w.@+-]+/)*[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w/])"
)
_TRACE_LINE = re.compile(r'File "([^"\n]+)", line (\d+)')
_READ_CHARS = 6000
"""Characters of a result that are searched for files: half of them at its beginning, half at its end."""
_WORD_KEYS = frozenset({"pattern", "query", "search_term", "regex", "keyword", "search"})
_SEARCHES = re.compile(r"grep|find|search|pattern|query|\\brg\\b")
_MAX_SEARCH = 400
_NO_FILES = frozenset({"e.g", "i.e"})
_FILE_SLOTS = ("<path>", "<rel>", "<name>")
_FILE_SLOT = re.compile("|".join(_FILE_SLOTS))
_QUOTED_WORD = re.compile(r"""(?<=['"])((?:class |def )?)([A-Za-z_]\w{3,})(?=['"])""")
_WORD = re.compile(r"[`'\"]([A-Za-z_][\w.]{3,40})(?:\(\))?[`'\"]|\b([A-Za-z]+_\w{3,}|_\w{3,}|[A-Z][a-z0-9]+[A-Z]\w+)\b")


class CallTemplate(NamedTuple):
    """A call without what belongs to one attempt."""

    action: str
    tool: str
    arguments: str
    """JSON text with slots."""

    @property
    def files(self) -> int:
        """How many files are to be filled in."""
        return sum(self.arguments.count(slot) for slot in _FILE_SLOTS)

    @property
    def has_word(self) -> bool:
        """Whether a word is to be filled in."""
        return "<word>" in self.arguments


class NamedFile(NamedTuple):
    """A file that a prompt names, and where."""

    path: str
    """Relative to the working directory where it lies in it."""
    in_result: int
    """Its place among the files of the last result, from 0; -1 where it is not there."""
    in_task: bool
    created: bool
    """Whether it is the file that was last created."""
    edited: bool
    """Whether it is the file that was last written."""
    viewed: bool
    """Whether it is the file that was last read."""
    in_traceback: bool
    calls: int
    """Past calls that named it."""
    turns_ago: int
    """Turns since it was last named; 0 is the last one."""


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


def find_root(view: PromptView) -> str:
    """The working directory: a line of the task that names one, else where commands went to, else the first absolute
    folder that the task or the system text speaks of; empty where there is none."""
    if match := _ROOT_LINE.search(view.task[:_READ_CHARS]):
        return match[1]
    commands = " ".join(call.arguments for turn in view.turns for call in turn.calls)
    if match := _CD.search(commands):
        return match[1]
    for text in (view.task, view.system):
        for match in _ROOT.finditer(text[:20_000]):
            if "." not in posixpath.basename(match[0]) and not match[0].startswith(_NO_ROOTS):
                return match[0]
    return ""


def make_template(action: str, tool: str, arguments: str, root: str) -> CallTemplate:
    """The template of a call, with all slots."""
    text = canonicalise_json(arguments)
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if isinstance(values, dict):
        searches = len(text) < _MAX_SEARCH and _SEARCHES.search(f"{tool} {text}") is not None
        made = {name: _take_out(name, value, searches) for name, value in values.items()}
        text = canonicalise_json(json.dumps(made))
    return CallTemplate(action, tool, _take_out_root(text, root))


def _take_out(name: str, value: Any, searches: bool) -> Any:
    """A text with slots for its files and, in a search, for its word; any other value as it is."""
    if not isinstance(value, str):
        return value
    text = _FILE.sub(_find_slot, value)
    if not searches:
        return text
    return "<word>" if name in _WORD_KEYS and text.isidentifier() else _QUOTED_WORD.sub(r"\1<word>", text, count=1)


def _find_slot(match: re.Match[str]) -> str:
    path = match[0]
    if path in _NO_FILES:
        return path
    return "<path>" if path.startswith("/") else "<rel>" if "/" in path else "<name>"


def make_plain_template(action: str, tool: str, arguments: str, root: str) -> CallTemplate:
    """The template of a call without its working directory alone."""
    return CallTemplate(action, tool, _take_out_root(canonicalise_json(arguments), root))


def _take_out_root(text: str, root: str) -> str:
    return re.sub(rf"(?<![\w.-]){re.escape(root)}(?![\w.-])", "<root>", text) if root else text


def fill_template(template: CallTemplate, paths: Sequence[str], root: str, word: str = "") -> str:
    """The arguments of a call as JSON text.

    Args:
        paths: Files, relative to the working directory where they lie in it, for the slots in their order; the last
            one for those that remain.
        word: What is searched for.
    """
    left = [*paths]

    def fill(match: re.Match[str]) -> str:
        path = left.pop(0) if len(left) > 1 else left[0]
        if match[0] == "<path>":
            return path if path.startswith("/") or not root else f"{root}/{path}"
        return posixpath.basename(path) if match[0] == "<name>" else path

    text = _FILE_SLOT.sub(fill, template.arguments) if left else template.arguments
    return text.replace("<word>", word).replace("<root>", root)


def list_words(view: PromptView, limit: int) -> list[str]:
    """Names in the task that one may search for, the most frequent first."""
    counts: dict[str, int] = {}
    for quoted, bare in _WORD.findall(view.task[:_READ_CHARS]):
        for word in {quoted, quoted.rpartition(".")[2], bare} - {""}:
            counts[word] = counts.get(word, 0) + 1
    return sorted(counts, key=lambda word: -counts[word])[:limit]


def list_created(view: PromptView, root: str) -> list[str]:
    """Files that the agent made, in order."""
    facts = (classify_call(call.name, call.arguments) for turn in view.turns for call in turn.calls)
    return [*dict.fromkeys(_make_relative(path, root) for each in facts if each.creates for path in each.writes)]


def list_files(view: PromptView, root: str, limit: int) -> list[NamedFile]:
    """Files that a prompt names, those named last first, at most `limit`."""
    in_result = {path: place for place, path in reversed([*enumerate(_find_files(view.last_result, root))])}
    in_task = set(_find_files(view.task, root))
    traced = {_make_relative(path, root) for path, _ in _TRACE_LINE.findall(_clip(view.last_result))}
    named: dict[str, tuple[int, int]] = {}
    """Path -> (turns ago, calls)."""
    created = edited = viewed = ""
    for ago, turn in reversed([*enumerate(reversed(view.turns))]):
        for call in turn.calls:
            facts = classify_call(call.name, call.arguments)
            for path in dict.fromkeys(_find_files(call.arguments, root)):
                named[path] = ago, named.get(path, (0, 0))[1] + 1
            if facts.writes:
                edited = _make_relative(facts.writes[-1], root)
                created = edited if facts.creates else created
            if facts.kind is CallKind.READ and facts.reads:
                viewed = _make_relative(facts.reads[-1], root)
    for path in [*in_result, *sorted(in_task)]:
        named.setdefault(path, (0 if path in in_result else len(view.turns), 0))
    found = [
        NamedFile(
            path=path,
            in_result=in_result.get(path, -1),
            in_task=path in in_task,
            created=path == created,
            edited=path == edited,
            viewed=path == viewed,
            in_traceback=path in traced,
            calls=calls,
            turns_ago=ago,
        )
        for path, (ago, calls) in named.items()
    ]
    return sorted(found, key=_find_importance, reverse=True)[:limit]


def _find_importance(file: NamedFile) -> tuple[float, str]:
    """What is kept where there are too many files."""
    special = 3.0 * (file.created or file.edited or file.viewed) + 2.0 * file.in_traceback + 2.0 * file.in_task
    return special + 2.0 * min(file.calls, 2) - 0.2 * file.turns_ago - 0.1 * max(file.in_result, 0), file.path


def list_past_calls(view: PromptView, limit: int) -> list[PastCall]:
    """The distinct earlier calls of turns with one call, the latest first."""
    found: dict[tuple[str, str], PastCall] = {}
    writes = 0
    for ago, turn in enumerate(reversed(view.turns)):
        if len(turn.calls) == 1 and turn.label.action is not None:
            tool, arguments = turn.calls[0].name, canonicalise_json(turn.calls[0].arguments)
            known = found.get((tool, arguments))
            if known is not None:
                found[tool, arguments] = known._replace(times=known.times + 1)
            elif len(found) < limit:
                found[tool, arguments] = PastCall(
                    str(turn.label.action), tool, arguments, ago, 1, turn.label.failed, writes
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
    offset, size = values.get("offset") if isinstance(values, dict) else None, None
    if type(offset) is int:
        size = values.get("limit")
        if type(size) is int:
            pages.append({"offset": offset + size})
    return [canonicalise_json(json.dumps({**values, **page})) for page in pages]


def _find_files(text: str, root: str) -> list[str]:
    """Files in a text, each once, in order."""
    return [*dict.fromkeys(_make_relative(path, root) for path in _FILE.findall(_clip(text)) if path not in _NO_FILES)]


def _make_relative(path: str, root: str) -> str:
    path = path.removeprefix("./")
    return path[len(root) + 1 :] if root and path.startswith(root + "/") else path


def _clip(text: str) -> str:
    return text if len(text) <= _READ_CHARS else f"{text[: _READ_CHARS // 2]}\n{text[-_READ_CHARS // 2 :]}"
