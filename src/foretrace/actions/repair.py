"""Remembers what the agent wrote and what failed since, so that doing something over is seen as repair."""

from __future__ import annotations

import posixpath
import re

from foretrace.actions.meaning import OPEN_FILE, TESTED, Kind, Meaning
from foretrace.actions.observation import Outcome

_OPEN_FILE = re.compile(r"\(Open file: ([^)\n]+)\)")
_WORD = re.compile(r"\w+")
LONG = 16
"""Characters from which the same new content for another file is the same write, aimed better."""
SIMILAR = 0.4
"""Share of common words from which two code cells are attempts at one thing."""


class History:
    """The state of one trace: what was written, what is under suspicion, what was refused.

    Times are message indexes. A success clears only what was known when the successful step was made, because
    calls can be batched before their results.
    """

    __slots__ = (
        "_attempts",
        "_created",
        "_defined",
        "_doubtful",
        "_open_file",
        "_refused",
        "_suspect",
        "_suspect_names",
        "_written",
        "_wrong",
    )

    def __init__(self) -> None:
        self._written: dict[str, int] = {}
        self._created: set[str] = set()
        self._suspect: dict[str, int] = {}
        """Own files since whose last write a check failed, with no passing check since -> when it failed."""
        self._doubtful: dict[str, int] = {}
        """Files of the project that the agent edited and then ran without any word of success -> when."""
        self._refused: dict[str, tuple[int, str]] = {}
        """Target of a refused write -> (when, new content)."""
        self._attempts: dict[str, tuple[int, str]] = {}
        """`redo` of a failed call -> (when, payload)."""
        self._defined: dict[str, int] = {}
        """Functions and classes that code cells defined -> when, the last time."""
        self._suspect_names: set[str] = set()
        """Those of them since whose last definition a check failed, or a cell that uses them."""
        self._wrong = False
        """Whether an answer was rejected and nothing was tried since."""
        self._open_file = ""

    @property
    def wrote(self) -> bool:
        """Whether the agent has written anything."""
        return bool(self._written)

    def repairs(self, found: Meaning) -> str:
        """The rule by which a call made now is a repair, or empty text."""
        if found.kind is Kind.UNDO:
            return "repair.undo" if found.rule == "tool.undo" or self._suspect or self._refused else ""
        if found.kind is Kind.WRITE and (rule := self._write_repairs(found)):
            return rule
        if not self._suspect_names.isdisjoint(found.defines):
            return "repair.failing_definition"
        if found.redo == TESTED:
            earlier = self._attempts.get(TESTED)
            return "repair.failing_code" if earlier is not None and earlier[1] != found.payload else ""
        if found.kind in (Kind.OTHER, Kind.SEARCH, Kind.WRITE) and found.redo:
            return self._attempt_repairs(found)
        return ""

    def _write_repairs(self, found: Meaning) -> str:
        for path in found.writes:
            target = self._known(self._target(path))
            if target in self._suspect:
                return "repair.failing_target"
            if target in self._refused:
                return "repair.refused_write"
            if target in self._doubtful and not found.creates:
                return "repair.doubtful_target"
        if len(found.payload) >= LONG and any(found.payload == payload for _, payload in self._refused.values()):
            return "repair.refused_write"
        return ""

    def _attempt_repairs(self, found: Meaning) -> str:
        if self._wrong and found.redo == "code":
            return "repair.wrong_answer"
        earlier = self._attempts.get(found.redo)
        if earlier is None or (found.kind is Kind.SEARCH and found.redo not in ("code", "sql")):
            return ""
        if found.redo in ("code", "sql") and similarity(earlier[1], found.payload) < SIMILAR:
            return ""
        return "repair.reissued"

    def made(self, index: int, found: Meaning) -> None:
        """A step is made: note what it writes."""
        if found.kind < Kind.TERMINAL:
            self._wrong = False
        for path in found.writes:
            target = self._known(self._target(path))
            if target and found.kind is not Kind.UNDO:
                if target not in self._written and found.creates:
                    self._created.add(target)
                self._written.setdefault(target, index)
        for name in found.defines:
            self._defined[name] = index
            self._suspect_names.discard(name)
        if found.kind is Kind.READ and found.reads and found.rule in ("tool.open", "tool.open_file"):
            self._open_file = found.reads[0]
        if found.rule == "tool.create":
            self._open_file = found.writes[0]

    def observed(self, index: int, now: int, found: Meaning, result: Outcome, tail: str) -> None:
        """What answered the step at `index` is seen at `now`; `tail` is the end of the observation."""
        if "(Open file: " in tail and (shown := _OPEN_FILE.search(tail)):
            self._open_file = shown.group(1)
        if result is Outcome.NONE:
            return
        failed = result is Outcome.FAILED
        if found.kind is Kind.VERIFY:
            self._checked(index, now, failed, result is Outcome.PASSED)
        elif found.kind is Kind.WRITE:
            self._wrote(index, now, found, failed)
        if found.kind in (Kind.TERMINAL, Kind.GIVE_UP) and failed:
            self._wrong = True
        if failed and found.redo == "code":
            used = set(_WORD.findall(found.payload))
            self._suspect_names.update(n for n, when in self._defined.items() if when <= index and n in used)
        if found.redo:
            if failed:
                self._attempts[found.redo] = (now, found.payload)
            elif found.redo in self._attempts and self._attempts[found.redo][0] < index:
                same = similarity(self._attempts[found.redo][1], found.payload) >= SIMILAR
                if same or found.redo not in ("code", "sql"):
                    del self._attempts[found.redo]

    def _checked(self, index: int, now: int, failed: bool, passed: bool) -> None:
        if failed:
            self._suspect.update({path: now for path, when in self._written.items() if when < index})
            self._suspect_names.update(name for name, when in self._defined.items() if when < index)
            self._doubtful.clear()
            return
        self._suspect = {path: when for path, when in self._suspect.items() if when >= index}
        if passed:
            self._doubtful.clear()
            self._suspect_names = {name for name in self._suspect_names if self._defined[name] >= index}
        else:
            edited = {path: now for path, when in self._written.items() if when < index and path not in self._created}
            self._doubtful.update(edited)

    def _wrote(self, index: int, now: int, found: Meaning, failed: bool) -> None:
        for path in found.writes:
            target = self._known(self._target(path))
            if failed:
                self._refused[target] = (now, found.payload)
                # A refused write is no write: nothing of the agent's is in that file because of it.
                if self._written.get(target) == index:
                    del self._written[target]
                    self._created.discard(target)
            elif target in self._refused and self._refused[target][0] < index:
                del self._refused[target]

    def _target(self, path: str) -> str:
        name = self._open_file if path == OPEN_FILE else path
        return posixpath.normpath(name) if name else ""

    def _known(self, path: str) -> str:
        """The name under which a file is already known: shells name it relatively, editors absolutely."""
        if path in self._written or path in self._refused:
            return path
        for known in (*self._written, *self._refused):
            if known.endswith("/" + path) or path.endswith("/" + known):
                return known
        return path


def similarity(a: str, b: str) -> float:
    """Share of common words of two texts, 0 to 1 (Jaccard)."""
    left, right = set(_WORD.findall(a)), set(_WORD.findall(b))
    return len(left & right) / len(left | right) if left or right else 1.0
