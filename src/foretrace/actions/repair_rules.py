"""Remembers what the agent wrote and what failed since, so that doing something over is seen as repair."""

from __future__ import annotations

import posixpath
import re

from foretrace.actions.call_facts import OPEN_FILE, TESTED_CODE, CallFacts, CallKind
from foretrace.actions.observation_rules import ObservedResult

_OPEN_FILE = re.compile(r"\(Open file: ([^)\n]+)\)")
_WORD = re.compile(r"\w+")
MIN_SAME_CONTENT = 16
"""Characters from which the same new content for another file is the same write, aimed better."""
MIN_SIMILARITY = 0.4
"""Share of common words from which two code cells are attempts at one thing."""


class RepairHistory:
    """The state of one trace: what was written, what is under suspicion, what was refused.

    Times are message indexes. A success clears only what was known when the successful step was made, because
    calls can be batched before their results.
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
        """Own files since whose last write a check failed, with no passing check since -> when it failed."""
        self._unconfirmed_files: dict[str, int] = {}
        """Files of the project that the agent edited and then ran without any word of success -> when."""
        self._refused_writes: dict[str, tuple[int, str]] = {}
        """Target of a refused write -> (when, new content)."""
        self._failed_calls: dict[str, tuple[int, str]] = {}
        """`retry_key` of a failed call -> (when, payload)."""
        self._defined_names: dict[str, int] = {}
        """Functions and classes that code cells defined -> when, the last time."""
        self._failing_names: set[str] = set()
        """Those of them since whose last definition a check failed, or a cell that uses them."""
        self._answer_rejected = False
        """Whether an answer was rejected and nothing was tried since."""
        self._open_file = ""

    @property
    def has_written(self) -> bool:
        """Whether the agent has written anything."""
        return bool(self._written_files)

    def find_repair_rule(self, found: CallFacts) -> str:
        """The rule by which a call made now is a repair, or empty text."""
        if found.kind is CallKind.UNDO:
            return "repair.undo" if found.rule == "tool.undo" or self._failing_files or self._refused_writes else ""
        if found.kind is CallKind.WRITE and (rule := self._find_write_repair(found)):
            return rule
        if not self._failing_names.isdisjoint(found.defines):
            return "repair.failing_definition"
        if found.retry_key == TESTED_CODE:
            earlier = self._failed_calls.get(TESTED_CODE)
            return "repair.failing_code" if earlier is not None and earlier[1] != found.payload else ""
        if found.kind in (CallKind.OTHER, CallKind.SEARCH, CallKind.WRITE) and found.retry_key:
            return self._find_retry(found)
        return ""

    def _find_write_repair(self, found: CallFacts) -> str:
        for path in found.writes:
            target = self._find_known_path(self._resolve_target(path))
            if target in self._failing_files:
                return "repair.failing_target"
            if target in self._refused_writes:
                return "repair.refused_write"
            if target in self._unconfirmed_files and not found.creates:
                return "repair.doubtful_target"
        if len(found.payload) >= MIN_SAME_CONTENT and any(
            found.payload == payload for _, payload in self._refused_writes.values()
        ):
            return "repair.refused_write"
        return ""

    def _find_retry(self, found: CallFacts) -> str:
        if self._answer_rejected and found.retry_key == "code":
            return "repair.wrong_answer"
        earlier = self._failed_calls.get(found.retry_key)
        if earlier is None or (found.kind is CallKind.SEARCH and found.retry_key not in ("code", "sql")):
            return ""
        if found.retry_key in ("code", "sql") and compute_similarity(earlier[1], found.payload) < MIN_SIMILARITY:
            return ""
        return "repair.reissued"

    def add_step(self, index: int, found: CallFacts) -> None:
        """A step is made: note what it writes."""
        if found.kind < CallKind.TERMINAL:
            self._answer_rejected = False
        for path in found.writes:
            target = self._find_known_path(self._resolve_target(path))
            if target and found.kind is not CallKind.UNDO:
                if target not in self._written_files and found.creates:
                    self._created_files.add(target)
                self._written_files.setdefault(target, index)
        for name in found.defines:
            self._defined_names[name] = index
            self._failing_names.discard(name)
        if found.kind is CallKind.READ and found.reads and found.rule in ("tool.open", "tool.open_file"):
            self._open_file = found.reads[0]
        if found.rule == "tool.create":
            self._open_file = found.writes[0]

    def add_result(self, index: int, now: int, found: CallFacts, result: ObservedResult, tail: str) -> None:
        """What answered the step at `index` is seen at `now`; `tail` is the end of the observation."""
        if "(Open file: " in tail and (shown := _OPEN_FILE.search(tail)):
            self._open_file = shown.group(1)
        if result is ObservedResult.NONE:
            return
        failed = result is ObservedResult.FAILED
        if found.kind is CallKind.VERIFY:
            self._add_check(index, now, failed, result is ObservedResult.PASSED)
        elif found.kind is CallKind.WRITE:
            self._add_write(index, now, found, failed)
        if found.kind in (CallKind.TERMINAL, CallKind.GIVE_UP) and failed:
            self._answer_rejected = True
        if failed and found.retry_key == "code":
            used = set(_WORD.findall(found.payload))
            self._failing_names.update(n for n, when in self._defined_names.items() if when <= index and n in used)
        if found.retry_key:
            if failed:
                self._failed_calls[found.retry_key] = (now, found.payload)
            elif found.retry_key in self._failed_calls and self._failed_calls[found.retry_key][0] < index:
                same = compute_similarity(self._failed_calls[found.retry_key][1], found.payload) >= MIN_SIMILARITY
                if same or found.retry_key not in ("code", "sql"):
                    del self._failed_calls[found.retry_key]

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

    def _add_write(self, index: int, now: int, found: CallFacts, failed: bool) -> None:
        for path in found.writes:
            target = self._find_known_path(self._resolve_target(path))
            if failed:
                self._refused_writes[target] = (now, found.payload)
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
        """The name under which a file is already known: shells name it relatively, editors absolutely."""
        if path in self._written_files or path in self._refused_writes:
            return path
        for known in (*self._written_files, *self._refused_writes):
            if known.endswith("/" + path) or path.endswith("/" + known):
                return known
        return path


def compute_similarity(a: str, b: str) -> float:
    """Share of common words of two texts, 0 to 1 (Jaccard)."""
    left, right = set(_WORD.findall(a)), set(_WORD.findall(b))
    return len(left & right) / len(left | right) if left or right else 1.0
