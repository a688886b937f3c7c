"""What a reply to Aider asks for: edits as SEARCH/REPLACE blocks, whole files or diffs, and commands of the shell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

_HEAD = re.compile(r"<{5,9} SEARCH>?\s*")
_DIVIDER = re.compile(r"={5,9}\s*")
_END = re.compile(r">{5,9} REPLACE\s*")
_FENCE = re.compile(r"(`{3,})([^`]*)")
_SHELLS = frozenset(["bash", "sh", "shell", "cmd", "batch", "powershell", "ps1", "zsh", "fish", "ksh", "csh", "tcsh"])
_NAME_LINES = 3
"""Lines before a block in which the name of its file may stand."""
_MAX_NAME = 300


class Request(NamedTuple):
    """One call, and the lines of the reply that it takes: `lines[start:end]`."""

    name: str
    arguments: dict[str, Any]
    start: int
    end: int


def find_requests(lines: Sequence[str], applied: Iterable[str], runs_commands: bool) -> list[Request]:
    """The calls in the lines of a reply, in order.

    Args:
        applied: Files of which Aider says that it edited them: one that no SEARCH block names was given as a whole, or
            as a diff.
        runs_commands: Whether Aider asked about a command of the reply; without that, a command is only shown.
    """
    requests = list(_find_replacements(lines))
    taken = {number for each in requests for number in range(each.start, each.end)}
    named = {each.arguments["file_path"] for each in requests}
    missing = [name for name in dict.fromkeys(applied) if name not in named]
    for start, end, language in _find_fences(lines):
        if start in taken:
            continue
        body = "\n".join(lines[start + 1 : end - 1])
        name, first = _find_name(lines, start)
        if language in _SHELLS and runs_commands:
            requests.append(Request("bash", {"command": body.strip()}, start, end))
        elif language == "diff" and missing:
            requests.append(Request("apply_patch", {"patch": body + "\n"}, start, end))
        elif name in missing:
            requests.append(Request("write_file", {"file_path": name, "content": body + "\n"}, first, end))
    return sorted(requests, key=lambda each: each.start)


def cut_requests(lines: Sequence[str], requests: Iterable[Request]) -> str:
    """The text of a reply without its calls."""
    pieces: list[str] = []
    at = 0
    for each in requests:
        pieces.append("\n".join(lines[at : each.start]).strip())
        at = max(at, each.end)
    return "\n\n".join(filter(None, [*pieces, "\n".join(lines[at:]).strip()]))


def _find_replacements(lines: Sequence[str]) -> Iterator[Request]:
    path = ""
    number = 0
    before = 0
    while number < len(lines):
        if not _HEAD.fullmatch(lines[number]):
            number += 1
            continue
        middle = _find_line(lines, _DIVIDER, number + 1)
        end = _find_line(lines, _END, middle + 1) if middle else None
        if middle is None or end is None:  # nor is there one behind any block below
            return
        found, start = _find_name(lines, number, before)
        path = found or path
        old, new = (
            "\n".join([*part, ""]) if part else "" for part in (lines[number + 1 : middle], lines[middle + 1 : end])
        )
        number = end + 1
        if number < len(lines) and _is_bare_fence(lines[number]):
            number += 1
        before = number
        if path:
            yield Request("search_replace", {"file_path": path, "old_string": old, "new_string": new}, start, number)


def _find_line(lines: Sequence[str], pattern: re.Pattern[str], start: int) -> int | None:
    return next((n for n in range(start, len(lines)) if pattern.fullmatch(lines[n])), None)


def _find_name(lines: Sequence[str], number: int, before: int = 0) -> tuple[str, int]:
    """The name of a file above a block, behind fences only, and the first line that belongs to the block."""
    start = number
    for at in range(number - 1, max(before, number - _NAME_LINES) - 1, -1):
        line = lines[at].strip()
        if _FENCE.match(line):
            start = at
            continue
        name = line.rstrip(":").lstrip("#").strip().strip("`*").strip()
        if not name or len(name) > _MAX_NAME or (" " in name and "." not in name):
            break
        return name, at
    return "", start


def _is_bare_fence(line: str) -> bool:
    fence = _FENCE.fullmatch(line.strip())
    return fence is not None and not fence[2].strip()


def _find_fences(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Blocks in fences: first line, the line behind the last, and the language."""
    opened: tuple[int, str, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.fullmatch(line.rstrip())
        if fence is None:
            continue
        if opened is None or fence[2].strip():  # a fence with a language begins one, also where none was closed
            opened = number, fence[1], fence[2].strip().lower()
        elif len(fence[1]) >= len(opened[1]):
            yield opened[0], number + 1, opened[2]
            opened = None
