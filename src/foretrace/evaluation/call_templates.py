"""Calls without what belongs to one attempt, and such calls with what another prompt names filled in.

A call becomes a template by taking out the working directory (`<root>`), the files (`<path>` where they are written
from the root of the file system, `<rel>` where relative to the working directory, `<name>` where without a folder;
`<paths>`, `<rels>`, `<names>` where there are several in a row), a word that is searched for (`<word>`), and the lines
of a file that are shown (`<first>`, `<last>`).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from foretrace.actions.same_action import canonicalise_json
from foretrace.evaluation.prompt_values import FILE

_WORD_KEYS = frozenset({"pattern", "query", "search_term", "regex", "keyword", "search"})
_SEARCHES = re.compile(r"grep|find|search|pattern|query|\\brg\\b")
_MAX_SEARCH = 400
_FILE_SLOT = re.compile(r"<(path|rel|name)(s?)>")
_ROW_OF_FILES = re.compile(r"<(path|rel|name)>(?: <\1>)+")
_QUOTED_WORD = re.compile(r"""(?<=['"])((?:class |def )?)([A-Za-z_]\w{3,})(?=['"])""")
_BARE_WORD = re.compile(r"""(?<=grep )((?:-+[\w=*."'-]+ )*)([A-Za-z_]\w{3,})(?=\s|$)""")
_RANGE = re.compile(r"""(?P<head>\[|sed -n '|sed -n \\")(?P<first>\d+)(?P<mid>, ?)(?P<last>-?\d+)(?P<tail>\]|p)""")
_START = re.compile(r"""(?P<head>"(?:offset|line_number)":|<(?:path|rel|name)> )(?P<first>\d+)(?=[,}"])""")
_ONLY_ARGUMENT = re.compile(r'\{"(\w+)":"(?:[^"\\]|\\.)*"\}')


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

    @property
    def has_word(self) -> bool:
        """Whether a word is to be filled in."""
        return "<word>" in self.arguments

    @property
    def has_lines(self) -> bool:
        """Whether a line is to be filled in."""
        return "<first>" in self.arguments


@lru_cache(maxsize=16_384)
def _count_files(arguments: str) -> int:
    return sum(1 + bool(many) for _, many in _FILE_SLOT.findall(arguments))


@lru_cache(maxsize=16_384)
def _find_names(arguments: str) -> frozenset[str]:
    return frozenset(map(posixpath.basename, FILE.findall(arguments.replace("<root>", ""))))


class ShownLines(NamedTuple):
    """The lines that a call shows."""

    first: int
    last: int
    """0 where the call does not say."""


@lru_cache(maxsize=16_384)
def make_templates(action: str, tool: str, arguments: str, root: str) -> tuple[CallTemplate, ...]:
    """The templates of a call, from the one with all slots to the one with the working directory taken out alone."""
    text = canonicalise_json(arguments)
    filled = _take_out_values(tool, text)
    shown = find_shown_lines(text)
    kept = (filled, text) if shown is None or shown.first <= 1 else ()
    texts = [_take_out_root(each, root) for each in (take_out_lines(filled), *kept)]
    return tuple(CallTemplate(action, tool, each) for each in dict.fromkeys(texts))


def _take_out_values(tool: str, text: str) -> str:
    try:
        values = json.loads(text)
    except ValueError:
        return text
    if not isinstance(values, dict):
        return text
    searches = len(text) < _MAX_SEARCH and _SEARCHES.search(f"{tool} {text}") is not None
    return canonicalise_json(json.dumps({name: _take_out(name, value, searches) for name, value in values.items()}))


def _take_out(name: str, value: Any, searches: bool) -> Any:
    """A text with slots for its files and, in a search, for its word; any other value as it is."""
    if not isinstance(value, str):
        return value
    text = _ROW_OF_FILES.sub(r"<\1s>", FILE.sub(_find_slot, value))
    if not searches:
        return text
    if name in _WORD_KEYS and text.isidentifier():
        return "<word>"
    made = _QUOTED_WORD.sub(r"\1<word>", text, count=1)
    return made if made != text else _BARE_WORD.sub(r"\1<word>", text, count=1)


def _find_slot(match: re.Match[str]) -> str:
    path = match[0]
    return "<path>" if path.startswith("/") else "<rel>" if "/" in path else "<name>"


def take_out_lines(text: str) -> str:
    """Arguments with slots for the lines that they show."""
    made = _RANGE.sub(r"\g<head><first>\g<mid><last>\g<tail>", text, count=1)
    return made if made != text else _START.sub(r"\g<head><first>", text, count=1)


@lru_cache(maxsize=16_384)
def find_shown_lines(arguments: str) -> ShownLines | None:
    """The lines that a call shows, if it says so."""
    text = canonicalise_json(arguments)
    if match := _RANGE.search(text):
        return ShownLines(int(match["first"]), int(match["last"]))
    match = _START.search(FILE.sub(_find_slot, text))
    return ShownLines(int(match["first"]), 0) if match else None


@lru_cache(maxsize=16_384)
def find_only_argument(arguments: str) -> str | None:
    """The name of the argument of a call that has one alone, and a text; agents' shells differ in their name alone."""
    match = _ONLY_ARGUMENT.fullmatch(arguments)
    return match[1] if match else None


def _take_out_root(text: str, root: str) -> str:
    return re.sub(rf"(?<![\w.-]){re.escape(root)}(?![\w.-])", "<root>", text) if root else text


def fill_template(
    template: CallTemplate, paths: Sequence[str], root: str, word: str = "", lines: ShownLines | None = None
) -> str:
    """The arguments of a call as JSON text.

    Args:
        paths: Files, relative to the working directory where they lie in it, for the slots in their order; the last
            one for those that remain, all for a row of files.
        word: What is searched for.
        lines: What is shown.
    """
    left = [*paths]

    def fill(match: re.Match[str]) -> str:
        if match[2]:
            return " ".join(_write_path(match[1], path, root) for path in paths)
        return _write_path(match[1], left.pop(0) if len(left) > 1 else left[0], root)

    text = _FILE_SLOT.sub(fill, template.arguments) if left else template.arguments
    if lines is not None:
        text = text.replace("<first>", str(lines.first)).replace("<last>", str(lines.last))
    return text.replace("<word>", word).replace("<root>", root)


def _write_path(slot: str, path: str, root: str) -> str:
    if slot == "path":
        return path if path.startswith("/") or not root else f"{root}/{path}"
    return posixpath.basename(path) if slot == "name" else path
