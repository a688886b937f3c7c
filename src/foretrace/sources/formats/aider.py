"""Aider's `.aider.chat.history.md`: one session after another, with `####` before the user's text and `>` before the
program's output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.core.digest import digest
from foretrace.core.trace import Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.conversation import make_call
from foretrace.sources.sessions import Session

_START = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_BREAK = "  "
"""Ends every line that Aider marks; headings and quotations that the model writes do not end with it."""
_TO_MODEL = frozenset({"/ask", "/code", "/architect", "/context", "/help"})
"""Commands whose text goes to the model; others are for the program."""
_CHANGED_FILE = re.compile(r"^\+\+\+ (?:b/)?(\S.*?)\s*$", re.MULTILINE)
_APPLIED = re.compile(r"Applied edit to (.+)")
_ASKED_TO_RUN = re.compile(r"(?:Run|Running) (?:shell commands?\b|\S)", re.IGNORECASE)
_FAILED = re.compile(
    r"(?:The LLM did not conform|# ?\d+ SEARCH/REPLACE|.*SearchReplaceNoExactMatch|Only \d+ reflections)"
)
_MODEL = re.compile(r"(?:Main model|Models?): (\S+)")
_VERSION = re.compile(r"Aider v(\S+)")
_HEAD = re.compile(r"<{5,9} SEARCH>?\s*")
_DIVIDER = re.compile(r"={5,9}\s*")
_END = re.compile(r">{5,9} REPLACE\s*")
_FENCE = re.compile(r"(`{3,})([^`]*)")
_SHELLS = frozenset(["bash", "sh", "shell", "cmd", "batch", "powershell", "ps1", "zsh", "fish", "ksh", "csh", "tcsh"])
_NAME_LINES = 3
"""How many lines before a block are searched for its file name."""
_MAX_NAME = 300

_Line = tuple[int, str]
"""Number and text."""


class Aider:
    """Each start of Aider is a session. The file has no other times, and lacks the output of commands."""

    name = "aider"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By its first line, which says when a chat was started."""
        start = head.start[:200].decode(errors="replace").lstrip("\ufeff").lstrip()
        return "line 1 says when an aider chat started" if _START.match(start) else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        started = ""
        lines: list[_Line] = []
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            for number, line in enumerate(file):
                if start := _START.fullmatch(line := line.rstrip("\r\n")):
                    if started:
                        yield _read_session(path, started, lines, account)
                    started, lines = start[1], []
                else:
                    lines.append((number, line))
        if started:
            yield _read_session(path, started, lines, account)


def _classify(line: str) -> str:
    if line.endswith(_BREAK) and line.startswith(("#### ", "> ")):
        return "user" if line[0] == "#" else "program"
    return "agent"


def _read_session(path: Path, started: str, lines: list[_Line], account: Account) -> Trace | Drop:
    blocks: list[tuple[str, list[_Line]]] = []
    for kind, group in groupby(lines, key=lambda line: _classify(line[1])):
        block = list(group)
        if kind != "agent":
            block = [(number, line.partition(" ")[2].rstrip()) for number, line in block]
        while kind == "agent" and block and not block[0][1].strip():
            del block[0]
        if block and blocks and blocks[-1][0] == kind:  # a blank line in between belongs to neither
            blocks[-1][1].extend(block)
        elif block:
            blocks.append((kind, block))
    asked = next(("\n".join(line for _, line in block) for kind, block in blocks if kind == "user"), "")
    when = started.replace(" ", "T")
    talk = _Talk(account, Aider.name, "aider", f"{when}-{digest(asked)[:8]}")
    talk.created_at = f"{when}+00:00"
    talk.project = path.resolve().parent.name
    account.use()  # the line that starts the session
    for (kind, block), (next_kind, following) in zip(blocks, [*blocks[1:], ("", [])], strict=False):
        talk.types[kind] += 1
        answer = [line for _, line in following] if next_kind == "program" else []
        talk.add_block(kind, block[0][0], [line for _, line in block], answer)
    return talk.make_trace(path)


class _Talk(Session):
    _is_asked = False
    _open: tuple[str, ...] = ()
    """Ids of the calls whose outcome Aider has not printed yet."""
    _count = 0

    def add_block(self, kind: str, number: int, lines: list[str], answer: list[str]) -> None:
        """Add lines of one kind; `answer`, what Aider prints after them, shows the outcome of a reply's requests."""
        text = "\n".join(lines)
        if kind == "user":
            command = re.split(r"[ \n]", text, maxsplit=1)[0]
            is_for_program = command.startswith("/") and command not in _TO_MODEL
            self._is_asked = self._is_asked or not is_for_program
            self._open = ()
            self.account.use()
            self.add_user(text, number, author="environment" if is_for_program else "user")
        elif kind == "program":
            self._add_output(number, lines)
        elif self._is_asked:
            self._add_requests(number, lines, answer)
        else:
            self.account.ignore("what aider printed at its start")

    def _add_requests(self, number: int, lines: list[str], answer: list[str]) -> None:
        requests = _find_requests(lines, answer)
        first = self._count
        self._count += len(requests)
        calls = [make_call(f"call_{first + n}", each.name, each.arguments) for n, each in enumerate(requests, 1)]
        self._open = tuple(call.id for call in calls)
        pieces: list[str] = []
        at = 0
        for each in requests:
            pieces.append("\n".join(lines[at : each.start]).strip())
            at = max(at, each.end)
        self.account.use()
        pieces.append("\n".join(lines[at:]).strip())
        self.add_agent(number, text="\n\n".join(filter(None, pieces)), calls=calls)

    def _add_output(self, number: int, lines: list[str]) -> None:
        for line in lines:
            if match := _MODEL.match(line):
                self.note_model(match[1])
            elif match := _VERSION.match(line):
                self.version = match[1]
        text = "\n".join(line for line in lines if not line.startswith("Tokens: "))
        if not self._open or not text.strip():
            self.account.ignore("what aider says")
            return
        self.account.use()
        failed = any(_FAILED.match(line) for line in lines)
        self.add_result(self._open[0], text, number, is_error=failed or None, also=self._open[1:])
        self._open = ()


class _Request(NamedTuple):
    """One call, and its lines in the reply: `lines[start:end]`."""

    name: str
    arguments: dict[str, Any]
    start: int
    end: int


def _find_requests(lines: Sequence[str], answer: Sequence[str]) -> list[_Request]:
    """The calls in the lines of a reply, in order: SEARCH blocks; files that Aider says it edited, of which no block
    names them, given whole or as a diff; and commands, if Aider asked to run any (else they are only shown)."""
    requests = list(_find_replacements(lines))
    taken = {number for each in requests for number in range(each.start, each.end)}
    named = {each.arguments["file_path"] for each in requests}
    applied = [match[1].strip() for line in answer if (match := _APPLIED.fullmatch(line))]
    missing = {name for name in applied if name not in named}
    runs_commands = any(_ASKED_TO_RUN.match(line) for line in answer)
    for start, end, language in _find_fences(lines):
        if start in taken:
            continue
        body = "\n".join(lines[start + 1 : end - 1])
        name, first = _find_name(lines, start)
        if language in _SHELLS and runs_commands:
            requests.append(_Request("bash", {"command": body.strip()}, start, end))
        elif name in missing:
            requests.append(_Request("write_file", {"file_path": name, "content": body + "\n"}, first, end))
        elif language == "diff" and missing & {*_CHANGED_FILE.findall(body)}:
            requests.append(_Request("apply_patch", {"patch": body + "\n"}, start, end))
    return sorted(requests, key=lambda each: each.start)


def _find_replacements(lines: Sequence[str]) -> Iterator[_Request]:
    path = ""
    number = before = 0
    while (head := _find_line(lines, _HEAD, number)) is not None:
        middle = _find_line(lines, _DIVIDER, head + 1)
        end = None if middle is None else _find_line(lines, _END, middle + 1)
        if middle is None or end is None:  # blocks below have no end either
            return
        found, start = _find_name(lines, head, before)
        path = found or path
        parts = lines[head + 1 : middle], lines[middle + 1 : end]
        old, new = ("".join(f"{line}\n" for line in part) for part in parts)
        number = end + 1
        if number < len(lines) and (fence := _FENCE.fullmatch(lines[number].strip())) and not fence[2].strip():
            number += 1
        before = number
        if path:
            yield _Request("search_replace", {"file_path": path, "old_string": old, "new_string": new}, start, number)


def _find_line(lines: Sequence[str], pattern: re.Pattern[str], start: int) -> int | None:
    return next((n for n in range(start, len(lines)) if pattern.fullmatch(lines[n])), None)


def _find_name(lines: Sequence[str], number: int, before: int = 0) -> tuple[str, int]:
    """The file name above a block, with only fences in between, and the first line that belongs to the block."""
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


def _find_fences(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Fenced blocks: the first line, the line after the last, and the language."""
    opened: tuple[int, str, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.fullmatch(line.rstrip())
        if fence is None:
            continue
        if opened is None or fence[2].strip():  # a fence with a language always begins a block
            opened = number, fence[1], fence[2].strip().lower()
        elif len(fence[1]) >= len(opened[1]):
            yield opened[0], number + 1, opened[2]
            opened = None


PLUGIN = Aider
