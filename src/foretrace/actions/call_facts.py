"""What one call, command or code cell means, before the history of the trace decides its action type."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from foretrace.actions.taxonomy import Effect


class CallKind(IntEnum):
    """What a command does. The order is the precedence in a compound: the highest kind names it."""

    SETUP = 0
    """Says nothing about the step (cd, export, an echo between commands, a `| head` tail)."""
    READ = 1
    """Shows a known file or directory."""
    SEARCH = 2
    """Looks for something, or fetches it by query or key."""
    COMPARE = 3
    """Compares state (git diff, git status): a search before the agent's own edits, a check after them."""
    OTHER = 4
    """Any other call: state-changing APIs, computation, installing, moving files, GUI moves."""
    WRITE = 5
    """Creates or changes the content of a file."""
    UNDO = 6
    """Takes back changes (undo_edit, git checkout -- f, git stash)."""
    VERIFY = 7
    """Runs something to learn whether code, configuration or state is right."""
    ASK = 8
    """A call that puts a question to the user."""
    SAY = 9
    """A call that sends text to the user: the text decides."""
    HANDOVER = 10
    """Hands the conversation to somebody else."""
    GIVE_UP = 11
    """A terminal call that says there is no answer."""
    TERMINAL = 12
    """Ends the attempt with an answer."""


DEFAULT_EFFECTS = {
    CallKind.SETUP: Effect.PURE_READ,
    CallKind.READ: Effect.PURE_READ,
    CallKind.SEARCH: Effect.PURE_READ,
    CallKind.COMPARE: Effect.PURE_READ,
    CallKind.OTHER: Effect.UNKNOWN,
    CallKind.WRITE: Effect.LOCAL_WRITE,
    CallKind.UNDO: Effect.LOCAL_WRITE,
    CallKind.VERIFY: Effect.SANDBOX_EXEC,
    CallKind.ASK: Effect.TERMINAL,
    CallKind.SAY: Effect.TERMINAL,
    CallKind.HANDOVER: Effect.TERMINAL,
    CallKind.GIVE_UP: Effect.TERMINAL,
    CallKind.TERMINAL: Effect.TERMINAL,
}
"""The effect of a kind where nothing more is known."""

SEVERITY = {
    effect: position
    for position, effect in enumerate(
        (
            Effect.PURE_READ,
            Effect.SANDBOX_EXEC,
            Effect.LOCAL_WRITE,
            Effect.UNKNOWN,
            Effect.EXTERNAL_WRITE,
            Effect.TERMINAL,
        )
    )
}
"""Which of two effects counts when a step has both: the later one."""

OPEN_FILE = "<open file>"
"""Target of an edit that names no file: the one that is open in the agent's window."""

TESTED_CODE = "tested code"
"""The `retry_key` of a test run whose call brings the code that is tested."""


def split_words(text: str) -> frozenset[str]:
    """The words of a table, written as one text."""
    return frozenset(text.split())


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one call does, as far as the call alone can say."""

    kind: CallKind
    rule: str
    """Name of the rule that decided, e.g. `shell.verify`."""
    effect: Effect
    writes: tuple[str, ...] = ()
    """Paths that it creates or changes."""
    reads: tuple[str, ...] = ()
    """Paths that it shows."""
    runs: tuple[str, ...] = ()
    """Scripts that it runs."""
    retry_key: str = ""
    """A failed attempt with the same non-empty `retry_key` is one that this call may do over."""
    payload: str = ""
    """The text by which two attempts are compared: new content, code, arguments."""
    replaced: str = ""
    """The text that an edit replaces."""
    creates: bool = False
    """Whether a write makes the whole file rather than changing a part of it."""
    defines: tuple[str, ...] = ()
    """Functions and classes that a code cell defines for the cells after it."""


def make_facts(kind: CallKind, rule: str, effect: Effect | None = None, /, **facts: object) -> CallFacts:
    """A `Meaning` with the effect of its kind unless another is given; `facts` are its other fields."""
    return CallFacts(kind=kind, rule=rule, effect=effect or DEFAULT_EFFECTS[kind], **facts)  # type: ignore[arg-type]


def pick_worst_effect(effects: Iterable[Effect]) -> Effect:
    """The most severe of several effects; `pure_read` when there is none."""
    return max(effects, key=SEVERITY.__getitem__, default=Effect.PURE_READ)


def merge_facts(meanings: Iterable[CallFacts]) -> CallFacts | None:
    """One meaning for several calls or commands: the highest kind, all paths, the worst effect."""
    found = list(meanings)
    if len(found) <= 1:
        return found[0] if found else None
    # max keeps the first of equals, so that the earliest command of the highest kind gives its rule.
    chief = max(found, key=lambda m: m.kind)
    return msgspec.structs.replace(
        chief,
        effect=pick_worst_effect(m.effect for m in found),
        writes=_union(m.writes for m in found),
        reads=_union(m.reads for m in found),
        runs=_union(m.runs for m in found),
    )


def _union(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for group in groups for path in group))
