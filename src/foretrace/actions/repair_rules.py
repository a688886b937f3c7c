"""Rules for repair: track what the agent wrote and what failed since, and find calls that write or try it again."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
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


class _Failure(NamedTuple):
    payload: str
    shown_by: int


class RepairHistory:
    """What the agent of one trace has written so far, and what of that failed or was refused.

    Times are message indexes. A success clears only what was known when its step was made, because calls can be
    batched before their results.
    """

    def __init__(self) -> None:
        self._written_files: dict[str, int] = {}
        self._created_files: set[str] = set()
        self._failing_files: dict[str, int] = {}
        """File that the agent wrote before a check failed, with no passing check since -> when it failed."""
        self._unconfirmed_files: set[str] = set()
        """Files that the agent edited before a check that showed neither success nor failure."""
        self._refused_writes: dict[str, _Failure] = {}
        """Target of a refused write -> the write, whose payload is the new content."""
        self._failed_calls: dict[str, _Failure] = {}
        """`retry_key` of a failed call -> the call."""
        self._defined_names: dict[str, int] = {}
        """Function or class of a code cell -> when it was last defined."""
        self._failing_names: set[str] = set()
        """Those of them that were defined before a check, or a cell that uses them, failed."""
        self._rejected_answer = False
        """Whether an answer was rejected, with no other call since."""
        self._open_file = ""

    @property
    def has_written(self) -> bool:
        return bool(self._written_files)

    def find_repair(self, facts: CallFacts) -> str:
        """The rule by which a call made now is a repair; empty where it is none."""
        if facts.kind is CallKind.UNDO:
            undoes = self._failing_files or self._refused_writes or facts.rule == "tool.undo"
            return "repair.undo" if undoes else ""
        if facts.kind in (CallKind.WRITE, CallKind.VERIFY) and (rule := self._find_write_repair(facts)):
            return rule  # also where the same line checks what it edits
        if any(name in self._failing_names for name in facts.defines):
            return "repair.failing_definition"
        if facts.retry_key == TESTED_CODE:
            earlier = self._failed_calls.get(TESTED_CODE)
            return "" if earlier is None or earlier.payload == facts.payload else "repair.failing_code"
        if facts.kind in (CallKind.OTHER, CallKind.SEARCH, CallKind.WRITE) and facts.retry_key:
            return self._find_retry(facts)
        return ""

    def _find_write_repair(self, facts: CallFacts) -> str:
        for target in self._find_targets(facts):
            if target in self._failing_files:
                return "repair.failing_target"
            if target in self._refused_writes:
                return "repair.refused_write"
            if target in self._unconfirmed_files and facts.kind is CallKind.WRITE and not facts.creates:
                return "repair.doubtful_target"
        same = any(facts.payload == refused.payload for refused in self._refused_writes.values())
        return "repair.refused_write" if same and len(facts.payload) >= MIN_SAME_CONTENT else ""

    def _find_retry(self, facts: CallFacts) -> str:
        if self._rejected_answer and facts.retry_key == "code":
            return "repair.wrong_answer"
        earlier = self._failed_calls.get(facts.retry_key)
        if earlier is None or (facts.kind is CallKind.SEARCH and facts.retry_key not in ("code", "sql")):
            return ""
        if facts.retry_key in ("code", "sql") and compute_similarity(earlier.payload, facts.payload) < MIN_SIMILARITY:
            return ""
        return "repair.reissued"

    def add_step(self, index: int, facts: CallFacts) -> None:
        if facts.kind < CallKind.TERMINAL:
            self._rejected_answer = False
        for target in self._find_targets(facts):
            if target and facts.kind is not CallKind.UNDO:
                if target not in self._written_files and facts.creates:
                    self._created_files.add(target)
                self._written_files.setdefault(target, index)
        for name in facts.defines:
            self._defined_names[name] = index
            self._failing_names.discard(name)
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
            self._rejected_answer = True
        if failed and facts.retry_key == "code":
            used = set(_WORD.findall(facts.payload))
            self._failing_names.update(name for name, at in self._defined_names.items() if at <= index and name in used)
        if facts.retry_key:
            if failed:
                self._failed_calls[facts.retry_key] = _Failure(facts.payload, now)
            elif (earlier := self._failed_calls.get(facts.retry_key)) is not None and earlier.shown_by < index:
                alike = compute_similarity(earlier.payload, facts.payload) >= MIN_SIMILARITY
                if alike or facts.retry_key not in ("code", "sql"):
                    del self._failed_calls[facts.retry_key]

    def _add_check(self, index: int, now: int, failed: bool, passed: bool) -> None:
        if failed:
            self._failing_files.update({path: now for path, when in self._written_files.items() if when <= index})
            self._failing_names.update(name for name, when in self._defined_names.items() if when < index)
            self._unconfirmed_files.clear()
            return
        self._failing_files = {path: when for path, when in self._failing_files.items() if when >= index}
        if passed:
            self._unconfirmed_files.clear()
            self._failing_names = {name for name in self._failing_names if self._defined_names[name] >= index}
        else:
            edited = (path for path, when in self._written_files.items() if when < index)
            self._unconfirmed_files.update(path for path in edited if path not in self._created_files)

    def _add_write(self, index: int, now: int, facts: CallFacts, failed: bool) -> None:
        for target in self._find_targets(facts):
            if failed:
                self._refused_writes[target] = _Failure(facts.payload, now)
                # A refused write is not a write: nothing of the agent's is in that file because of it.
                if self._written_files.get(target) == index:
                    del self._written_files[target]
                    self._created_files.discard(target)
            elif target in self._refused_writes and self._refused_writes[target].shown_by < index:
                del self._refused_writes[target]

    def _find_targets(self, facts: CallFacts) -> Iterator[str]:
        """The files that a call writes, each by the path under which it is already known."""
        for path in facts.writes:
            name = self._open_file if path == OPEN_FILE else path
            yield self._find_known_path(posixpath.normpath(name) if name else "")

    def _find_known_path(self, path: str) -> str:
        """Shells name a file relatively, editors absolutely."""
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


def is_repair_in_chat(messages: tuple[Message, ...], index: int) -> bool:
    """Whether a message that shows code is a repair: a report that the agent's own earlier code failed stands right
    before it."""
    before = messages[index - 1] if index else None
    return (
        "```" in messages[index].content
        and before is not None
        and before.role != "assistant"
        and reports_exception(before.content)
        and any(each.role == "assistant" and "```" in each.content for each in messages[:index])
    )
