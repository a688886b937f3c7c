"""Rules for repair: remember what the agent wrote and what failed since, and find calls that write or try it again."""

from __future__ import annotations

import posixpath
import re

from foretrace.actions.call_facts import OPEN_FILE, TESTED_CODE, CallFacts, CallKind
from foretrace.actions.observation_rules import ObservedResult, reports_exception
from foretrace.core.trace import Message

_OPEN_FILE = re.compile(r"\(Open file: ([^)\n]+)\)")
_WORD = re.compile(r"\w+")
MIN_SAME_CONTENT = 16
"""A refused write of at least so many characters is repaired by a write of the same content to any file."""
MIN_SIMILARITY = 0.4
"""Two code cells or SQL texts that share at least this part of their words are attempts at the same thing."""


class RepairHistory:
    """What the agent of one trace has written so far, and what of it was seen to fail or was refused.

    Times are message indexes. A success clears only what was known when its step was made, because calls can be
    batched before their results.
    """

    __slots__ = (
        "_answer_rejected",
        "_created_files",
        "_defined_names",
        "_failed_calls",
        "_failing_files",
        "_failing_names",
        "_open_file",
        "_refused_writes",
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
        self._refused_writes: dict[str, tuple[int, str]] = {}
        """Target of a refused write -> (when, new content)."""
        self._failed_calls: dict[str, tuple[int, str]] = {}
        """`retry_key` of a failed call -> (when, payload)."""
        self._defined_names: dict[str, int] = {}
        """Function or class of a code cell -> when it was last defined."""
        self._failing_names: set[str] = set()
        """Those of them that were defined before a check, or a cell that uses them, failed."""
        self._answer_rejected = False
        """Whether an answer was rejected, with no other call since."""
        self._open_file = ""

    @property
    def has_written(self) -> bool:
        """Whether the agent has written anything."""
        return bool(self._written_files)

    def find_repair_rule(self, facts: CallFacts) -> str:
        """Find the rule by which a call made now is a repair; empty text where it is none."""
        if facts.kind is CallKind.UNDO:
            return "repair.undo" if facts.rule == "tool.undo" or self._failing_files or self._refused_writes else ""
        if facts.kind is CallKind.WRITE and (rule := self._find_write_repair(facts)):
            return rule
        if not self._failing_names.isdisjoint(facts.defines):
            return "repair.failing_definition"
        if facts.retry_key == TESTED_CODE:
            earlier = self._failed_calls.get(TESTED_CODE)
            return "repair.failing_code" if earlier is not None and earlier[1] != facts.payload else ""
        if facts.kind in (CallKind.OTHER, CallKind.SEARCH, CallKind.WRITE) and facts.retry_key:
            return self._find_retry(facts)
        return ""

    def _find_write_repair(self, facts: CallFacts) -> str:
        for path in facts.writes:
            target = self._find_known_path(self._resolve_target(path))
            if target in self._failing_files:
                return "repair.failing_target"
            if target in self._refused_writes:
                return "repair.refused_write"
            if target in self._unconfirmed_files and not facts.creates:
                return "repair.doubtful_target"
        if len(facts.payload) >= MIN_SAME_CONTENT and any(
            facts.payload == payload for _, payload in self._refused_writes.values()
        ):
            return "repair.refused_write"
        return ""

    def _find_retry(self, facts: CallFacts) -> str:
        if self._answer_rejected and facts.retry_key == "code":
            return "repair.wrong_answer"
        earlier = self._failed_calls.get(facts.retry_key)
        if earlier is None or (facts.kind is CallKind.SEARCH and facts.retry_key not in ("code", "sql")):
            return ""
        if facts.retry_key in ("code", "sql") and compute_similarity(earlier[1], facts.payload) < MIN_SIMILARITY:
            return ""
        return "repair.reissued"

    def add_step(self, index: int, facts: CallFacts) -> None:
        """Note what the step at `index` writes and defines."""
        if facts.kind < CallKind.TERMINAL:
            self._answer_rejected = False
        for path in facts.writes:
            target = self._find_known_path(self._resolve_target(path))
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
        """Note the result of the step at `index`, shown by the message at `now`, whose last characters are `tail`."""
        if "(Open file: " in tail and (shown := _OPEN_FILE.search(tail)):
            self._open_file = shown.group(1)
        failed = result is ObservedResult.FAILED
        if facts.kind is CallKind.VERIFY:
            self._add_check(index, now, failed, result is ObservedResult.PASSED)
        elif facts.kind is CallKind.WRITE:
            self._add_write(index, now, facts, failed)
        if facts.kind in (CallKind.TERMINAL, CallKind.GIVE_UP) and failed:
            self._answer_rejected = True
        if failed and facts.retry_key == "code":
            used = set(_WORD.findall(facts.payload))
            self._failing_names.update(n for n, when in self._defined_names.items() if when <= index and n in used)
        if facts.retry_key:
            if failed:
                self._failed_calls[facts.retry_key] = (now, facts.payload)
            elif facts.retry_key in self._failed_calls and self._failed_calls[facts.retry_key][0] < index:
                alike = compute_similarity(self._failed_calls[facts.retry_key][1], facts.payload) >= MIN_SIMILARITY
                if alike or facts.retry_key not in ("code", "sql"):
                    del self._failed_calls[facts.retry_key]

    def _add_check(self, index: int, now: int, failed: bool, passed: bool) -> None:
        if failed:
            self._failing_files.update({path: now for path, when in self._written_files.items() if when < index})
            self._failing_names.update(name for name, when in self._defined_names.items() if when < index)
            self._unconfirmed_files.clear()
            return
        self._failing_files = {path: when for path, when in self._failing_files.items() if when >= index}
        if passed:
            self._unconfirmed_files.clear()
            self._failing_names = {name for name in self._failing_names if self._defined_names[name] >= index}
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
                self._refused_writes[target] = (now, facts.payload)
                # A refused write is no write: nothing of the agent's is in that file because of it.
                if self._written_files.get(target) == index:
                    del self._written_files[target]
                    self._created_files.discard(target)
            elif target in self._refused_writes and self._refused_writes[target][0] < index:
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


def fixes_code_in_chat(messages: tuple[Message, ...], index: int) -> bool:
    """Whether a message shows code right after a report that the agent's own earlier code failed."""
    if "```" not in messages[index].content:
        return False
    before = messages[index - 1] if index else None
    if before is None or before.role == "assistant" or not reports_exception(before.content):
        return False
    return any(m.role == "assistant" and "```" in m.content for m in messages[:index])
