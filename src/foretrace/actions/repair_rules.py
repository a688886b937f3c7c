"""Rules for repair: track what the agent wrote and what failed since, and find calls that write or try it again."""

from __future__ import annotations

import posixpath
import re
from typing import NamedTuple

from foretrace.actions.call_facts import OPEN_FILE, TESTED_CODE, CallFacts, CallKind
from foretrace.actions.observation_rules import ObservedResult, reports_exception
from foretrace.core.trace import Message

_OPEN_FILE = re.compile(r"\(Open file: ([^)\n]+)\)")
_WORD = re.compile(r"\w+")
MIN_SAME_CONTENT = 16
"""A refused write of at least this many characters is repaired by a write of the same content to any file."""
MIN_SIMILARITY = 0.4
"""Two code cells or SQL texts that share at least this share of their words are attempts at the same thing."""


class Repair(NamedTuple):
    """Why a step is a repair: what it redoes, and where that was seen to fail. Indexes are of messages."""

    rule: str
    target: str = ""
    """The file, tool, function or class that it redoes; empty if none."""
    step: int | None = None
    """The step that did it before: the first write of the file, the call that failed."""
    shown_by: int | None = None
    """The message that shows the failure."""


class _Failure(NamedTuple):
    """A write or call that failed."""

    payload: str
    step: int
    shown_by: int


class RepairHistory:
    """What the agent of one trace has written so far, and what of that failed or was refused.

    Times are message indexes. A success clears only what was known when its step was made, because calls can be
    batched before their results.
    """

    __slots__ = (
        "_created_files",
        "_defined_names",
        "_failed_calls",
        "_failing_files",
        "_failing_names",
        "_open_file",
        "_refused_writes",
        "_rejected_answer",
        "_unconfirmed_files",
        "_written_files",
    )

    def __init__(self) -> None:
        self._written_files: dict[str, int] = {}
        self._created_files: set[str] = set()
        self._failing_files: dict[str, int] = {}
        """File that the agent wrote before a check failed, with no passing check since -> when it failed."""
        self._unconfirmed_files: dict[str, int] = {}
        """File that the agent edited before a check that showed neither success nor failure -> when that was."""
        self._refused_writes: dict[str, _Failure] = {}
        """Target of a refused write -> the write, whose payload is the new content."""
        self._failed_calls: dict[str, _Failure] = {}
        """`retry_key` of a failed call -> the call."""
        self._defined_names: dict[str, int] = {}
        """Function or class of a code cell -> when it was last defined."""
        self._failing_names: dict[str, int] = {}
        """Names defined before a check, or a cell that uses them, failed -> when it failed."""
        self._rejected_answer: _Failure | None = None
        """The answer that was rejected, with no other call since."""
        self._open_file = ""

    @property
    def has_written(self) -> bool:
        """Whether the agent has written anything."""
        return bool(self._written_files)

    def find_repair(self, facts: CallFacts) -> Repair | None:
        """Find why a call made now is a repair; `None` if it is not."""
        if facts.kind is CallKind.UNDO:
            return self._find_undo(facts)
        if facts.kind in (CallKind.WRITE, CallKind.VERIFY) and (repair := self._find_write_repair(facts)):
            return repair  # also if the same line checks what it edits
        if name := next((name for name in facts.defines if name in self._failing_names), ""):
            return Repair("repair.failing_definition", name, self._defined_names[name], self._failing_names[name])
        if facts.retry_key == TESTED_CODE:
            earlier = self._failed_calls.get(TESTED_CODE)
            if earlier is None or earlier.payload == facts.payload:
                return None
            return Repair("repair.failing_code", TESTED_CODE, earlier.step, earlier.shown_by)
        if facts.kind in (CallKind.OTHER, CallKind.SEARCH, CallKind.WRITE) and facts.retry_key:
            return self._find_retry(facts)
        return None

    def _find_undo(self, facts: CallFacts) -> Repair | None:
        target = facts.writes[0] if facts.writes else ""
        if self._failing_files:
            path, shown_by = max(self._failing_files.items(), key=lambda item: item[1])
            return Repair("repair.undo", target, self._written_files.get(path), shown_by)
        if self._refused_writes:
            refused = max(self._refused_writes.values(), key=lambda failure: failure.shown_by)
            return Repair("repair.undo", target, refused.step, refused.shown_by)
        return Repair("repair.undo", target) if facts.rule == "tool.undo" else None

    def _find_write_repair(self, facts: CallFacts) -> Repair | None:
        for path in facts.writes:
            target = self._find_known_path(self._resolve_target(path))
            if target in self._failing_files:
                written = self._written_files.get(target)
                return Repair("repair.failing_target", target, written, self._failing_files[target])
            if refused := self._refused_writes.get(target):
                return Repair("repair.refused_write", target, refused.step, refused.shown_by)
            if target in self._unconfirmed_files and facts.kind is CallKind.WRITE and not facts.creates:
                written = self._written_files.get(target)
                return Repair("repair.doubtful_target", target, written, self._unconfirmed_files[target])
        if len(facts.payload) >= MIN_SAME_CONTENT:
            for target, refused in self._refused_writes.items():
                if facts.payload == refused.payload:
                    return Repair("repair.refused_write", target, refused.step, refused.shown_by)
        return None

    def _find_retry(self, facts: CallFacts) -> Repair | None:
        if self._rejected_answer is not None and facts.retry_key == "code":
            return Repair("repair.wrong_answer", "", self._rejected_answer.step, self._rejected_answer.shown_by)
        earlier = self._failed_calls.get(facts.retry_key)
        if earlier is None or (facts.kind is CallKind.SEARCH and facts.retry_key not in ("code", "sql")):
            return None
        if facts.retry_key in ("code", "sql") and compute_similarity(earlier.payload, facts.payload) < MIN_SIMILARITY:
            return None
        return Repair("repair.reissued", facts.retry_key, earlier.step, earlier.shown_by)

    def add_step(self, index: int, facts: CallFacts) -> None:
        """Note what the step at `index` writes and defines."""
        if facts.kind < CallKind.TERMINAL:
            self._rejected_answer = None
        for path in facts.writes:
            target = self._find_known_path(self._resolve_target(path))
            if target and facts.kind is not CallKind.UNDO:
                if target not in self._written_files and facts.creates:
                    self._created_files.add(target)
                self._written_files.setdefault(target, index)
        for name in facts.defines:
            self._defined_names[name] = index
            self._failing_names.pop(name, None)
        if facts.kind is CallKind.READ and facts.reads and facts.rule in ("tool.open", "tool.open_file"):
            self._open_file = facts.reads[0]
        if facts.rule == "tool.create":
            self._open_file = facts.writes[0]

    def add_result(self, index: int, now: int, facts: CallFacts, result: ObservedResult, tail: str) -> None:
        """Note the result of the step at `index`, shown by the message at `now`, which ends in `tail`."""
        if "(Open file: " in tail and (shown := _OPEN_FILE.search(tail)):
            self._open_file = shown.group(1)
        failed = result is ObservedResult.FAILED
        if facts.kind is CallKind.VERIFY:
            self._add_check(index, now, failed, result is ObservedResult.PASSED)
        elif facts.kind is CallKind.WRITE:
            self._add_write(index, now, facts, failed)
        if facts.kind in (CallKind.TERMINAL, CallKind.GIVE_UP) and failed:
            self._rejected_answer = _Failure(facts.payload, index, now)
        if failed and facts.retry_key == "code":
            used = set(_WORD.findall(facts.payload))
            self._failing_names.update({n: now for n, at in self._defined_names.items() if at <= index and n in used})
        if facts.retry_key:
            if failed:
                self._failed_calls[facts.retry_key] = _Failure(facts.payload, index, now)
            elif (earlier := self._failed_calls.get(facts.retry_key)) is not None and earlier.shown_by < index:
                alike = compute_similarity(earlier.payload, facts.payload) >= MIN_SIMILARITY
                if alike or facts.retry_key not in ("code", "sql"):
                    del self._failed_calls[facts.retry_key]

    def _add_check(self, index: int, now: int, failed: bool, passed: bool) -> None:
        if failed:
            self._failing_files.update({path: now for path, when in self._written_files.items() if when <= index})
            self._failing_names.update({name: now for name, when in self._defined_names.items() if when < index})
            self._unconfirmed_files.clear()
            return
        self._failing_files = {path: when for path, when in self._failing_files.items() if when >= index}
        if passed:
            self._unconfirmed_files.clear()
            self._failing_names = {n: at for n, at in self._failing_names.items() if self._defined_names[n] >= index}
        else:
            edited = {
                path: now
                for path, when in self._written_files.items()
                if when < index and path not in self._created_files
            }
            self._unconfirmed_files.update(edited)

    def _add_write(self, index: int, now: int, facts: CallFacts, failed: bool) -> None:
        for path in facts.writes:
            target = self._find_known_path(self._resolve_target(path))
            if failed:
                self._refused_writes[target] = _Failure(facts.payload, index, now)
                # A refused write does not change the file.
                if self._written_files.get(target) == index:
                    del self._written_files[target]
                    self._created_files.discard(target)
            elif target in self._refused_writes and self._refused_writes[target].shown_by < index:
                del self._refused_writes[target]

    def _resolve_target(self, path: str) -> str:
        name = self._open_file if path == OPEN_FILE else path
        return posixpath.normpath(name) if name else ""

    def _find_known_path(self, path: str) -> str:
        """Find the path under which a file is already known: shells name it relatively, editors absolutely."""
        if path in self._written_files or path in self._refused_writes:
            return path
        for known in (*self._written_files, *self._refused_writes):
            if known.endswith("/" + path) or path.endswith("/" + known):
                return known
        return path


def compute_similarity(a: str, b: str) -> float:
    """Share of the words that two texts have in common, from 0 to 1 (Jaccard)."""
    left, right = set(_WORD.findall(a)), set(_WORD.findall(b))
    return len(left & right) / len(left | right) if left or right else 1.0


def find_repair_in_chat(messages: tuple[Message, ...], index: int) -> Repair | None:
    """Find why a message that shows code is a repair: it directly follows a report that the agent's earlier code
    failed."""
    if "```" not in messages[index].content:
        return None
    before = messages[index - 1] if index else None
    if before is None or before.role == "assistant" or not reports_exception(before.content):
        return None
    for at in range(index - 1, -1, -1):
        if messages[at].role == "assistant" and "```" in messages[at].content:
            return Repair("repair.chat_code", "", at, index - 1)
    return None
