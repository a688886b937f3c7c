"""Aider's `.aider.chat.history.md`: one session after another, with `####` before the user's text and `>` before the
program's output."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.core.digest import digest
from foretrace.core.trace import Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.conversation import Conversation, make_call
from foretrace.sources.sessions import Session

_START = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_START_BYTES = re.compile(rb"\s*# aider chat started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_BREAK = "  "
"""Ends every line that Aider marks; headings and quotations that the model writes do not end with it."""
_TO_MODEL = frozenset({"/ask", "/code", "/architect", "/context", "/help"})
"""Commands whose text goes to the model; others are for the program."""
_APPLIED = re.compile(r"Applied edit to (.+)")
_ASKED_TO_RUN = re.compile(r"(?:Run|Running) (?:shell commands?\b|\S)", re.IGNORECASE)
_FAILED = re.compile(
    r"(?:The LLM did not conform|# ?\d+ SEARCH/REPLACE|.*SearchReplaceNoExactMatch|Only \d+ reflections)"
)
_MODEL = re.compile(r"(?:Main model|Models?): (\S+)")
_VERSION = re.compile(r"Aider v(\S+)")
_COUNTED = re.compile(r"Tokens: ")
_HEAD = re.compile(r"<{5,9} SEARCH>?\s*")
_DIVIDER = re.compile(r"={5,9}\s*")
_END = re.compile(r">{5,9} REPLACE\s*")
_FENCE = re.compile(r"(`{3,})([^`]*)")
_SHELLS = frozenset(["bash", "sh", "shell", "cmd", "batch", "powershell", "ps1", "zsh", "fish", "ksh", "csh", "tcsh"])
_NAME_LINES = 3
"""How many lines before a block are searched for its file name."""
_MAX_NAME = 300


class _Block(NamedTuple):
    kind: str
    """`user`, `agent` or `program`."""
    number: int
    lines: list[str]


class Aider:
    """Each start of Aider is a session. The file has no other times, and lacks the output of commands."""

    name = "aider"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By its first line, which says when a chat was started."""
        return "line 1 says when an aider chat started" if _START_BYTES.match(head.start) else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The sessions of the file."""
        started, first, lines = "", 0, list[str]()
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            for number, line in enumerate(file):
                line = line.rstrip("\r\n")
                if start := _START.fullmatch(line):
                    if started:
                        yield _read_session(path, started, first, lines, account)
                    started, first, lines = start[1], number, []
                elif started:
                    lines.append(line)
        if started:
            yield _read_session(path, started, first, lines, account)


def _read_session(path: Path, started: str, first: int, lines: list[str], account: Account) -> Trace | Drop:
    blocks = list(_split(first + 1, lines))
    asked = next((block.lines for block in blocks if block.kind == "user"), [])
    when = started.replace(" ", "T")
    session = Session(source=Aider.name, agent="aider", id=f"{when}-{digest(chr(10).join(asked))[:8]}")
    session.created_at = f"{when}+00:00"
    session.project = path.resolve().parent.name
    session.types = Counter(block.kind for block in blocks)
    account.use()  # the line that starts the session
    talk = _Talk(session, account)
    for index, block in enumerate(blocks):
        talk.add(block, blocks[index + 1] if index + 1 < len(blocks) else None)
    return session.make_trace(talk.talk, path)


def _split(first: int, lines: list[str]) -> Iterator[_Block]:
    """Successive lines of one kind as a block."""
    block: _Block | None = None
    for offset, line in enumerate(lines):
        kind, text = "agent", line
        for mark, name in (("#### ", "user"), ("> ", "program")):
            if line.startswith(mark) and line.endswith(_BREAK):
                kind, text = name, line[len(mark) :].rstrip()
        if block is not None and block.kind == kind:
            block.lines.append(text)
        elif text.strip() or kind != "agent":
            if block is not None:
                yield block
            block = _Block(kind, first + offset, [text])
        # A blank line between blocks of the user and the program belongs to neither.
    if block is not None:
        yield block


class _Talk:
    """Builds the conversation from the blocks of a session."""

    def __init__(self, session: Session, account: Account) -> None:
        self.talk = Conversation(account)
        self._session = session
        self._account = account
        self._asked = False
        self._open: list[str] = []
        """Ids of the calls whose outcome Aider has not printed yet."""
        self._count = 0

    def add(self, block: _Block, following: _Block | None) -> None:
        """Add a block; `following` shows the outcome of a reply's requests."""
        if block.kind == "user":
            self._add_user(block)
        elif block.kind == "program":
            self._add_output(block)
        elif self._asked:
            self._add_reply(block, following.lines if following and following.kind == "program" else [])
        else:
            self._account.ignore("what aider printed at its start")

    def _add_user(self, block: _Block) -> None:
        text = "\n".join(block.lines)
        command = text.partition(" ")[0].partition("\n")[0]
        is_for_program = command.startswith("/") and command not in _TO_MODEL
        self._asked = self._asked or not is_for_program
        self._account.use()
        self.talk.add_user(text, block.number, author="environment" if is_for_program else "user")
        self._open.clear()

    def _add_reply(self, block: _Block, answer: list[str]) -> None:
        applied = [match[1].strip() for line in answer if (match := _APPLIED.fullmatch(line))]
        runs = any(_ASKED_TO_RUN.match(line) for line in answer)
        requests = find_requests(block.lines, applied, runs)
        calls: list[Any] = []
        for each in requests:
            self._count += 1
            calls.append(make_call(f"call_{self._count}", each.name, each.arguments))
        self._account.use()
        self._open = [call.id for call in calls]
        self.talk.add_agent(block.number, text=cut_requests(block.lines, requests), calls=calls)

    def _add_output(self, block: _Block) -> None:
        for line in block.lines:
            if match := _MODEL.match(line):
                self._session.models[match[1]] += 1
            elif match := _VERSION.match(line):
                self._session.version = match[1]
        text = "\n".join(line for line in block.lines if not _COUNTED.match(line))
        if not self._open or not text.strip():
            self._account.ignore("what aider says")
            return
        self._account.use()
        failed = any(_FAILED.match(line) for line in block.lines)
        self.talk.add_result(self._open[0], text, block.number, is_error=failed or None, also=self._open[1:])
        self._open = []


class Request(NamedTuple):
    """One call, and its lines in the reply: `lines[start:end]`."""

    name: str
    arguments: dict[str, Any]
    start: int
    end: int


def find_requests(lines: Sequence[str], applied: Iterable[str], runs_commands: bool) -> list[Request]:
    """The calls in the lines of a reply, in order.

    Args:
        applied: Files that Aider says it edited. One that no SEARCH block names was given as a whole file or a diff.
        runs_commands: Whether Aider asked to run a command of the reply; if not, commands are only shown.
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
        if middle is None or end is None:  # blocks below have no end either
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


def _is_bare_fence(line: str) -> bool:
    fence = _FENCE.fullmatch(line.strip())
    return fence is not None and not fence[2].strip()


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
