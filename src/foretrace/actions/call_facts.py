"""Facts about one call, shell command or code cell that can be read from it alone, without the rest of the trace.

The rules of this package return `CallFacts`; `label_steps` makes labels of them with the history of the trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from foretrace.actions.taxonomy import Effect


class CallKind(IntEnum):
    """What a call does. Of several calls, or commands of one shell line, the highest kind stands for all."""

    SETUP = 0
    """Says nothing about the step (cd, export, an echo between commands, a `| head` after one)."""
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
    """Reverts changes (undo_edit, git checkout -- f, git stash)."""
    VERIFY = 7
    """Runs something to check code, configuration or state."""
    ASK = 8
    """A call that asks the user a question."""
    SAY = 9
    """A call that sends text to the user: the text decides."""
    HANDOVER = 10
    """Hands the conversation over to somebody else."""
    GIVE_UP = 11
    """A terminal call that says there is no answer."""
    TERMINAL = 12
    """Ends the attempt with an answer."""


DEFAULT_EFFECTS = {
    **dict.fromkeys((CallKind.SETUP, CallKind.READ, CallKind.SEARCH, CallKind.COMPARE), Effect.PURE_READ),
    CallKind.OTHER: Effect.UNKNOWN,
    **dict.fromkeys((CallKind.WRITE, CallKind.UNDO), Effect.LOCAL_WRITE),
    CallKind.VERIFY: Effect.SANDBOX_EXEC,
    **{kind: Effect.TERMINAL for kind in CallKind if kind >= CallKind.ASK},
}
"""The effect of a call of this kind, unless its rule gives another."""

_SEVERITY = [*map(Effect, ("pure_read", "sandbox_exec", "local_write", "unknown", "external_write", "terminal"))]
"""Of several effects the last one in this order counts."""

OPEN_FILE = "<open file>"
"""Path of an edit that names no file: it changes the one that is open in the agent's editor."""

TESTED_CODE = "tested code"
"""The `retry_key` of a test run whose call carries the code that is tested."""


def split_words(text: str) -> frozenset[str]:
    """The words of a text as a set: tables of names are easier to read as text."""
    return frozenset(text.split())


def read_table(text: str) -> dict[str, str]:
    """Read lines of `group: name name ...`: name -> group."""
    lines = (line.partition(": ") for line in text.strip().splitlines())
    return {name: group for group, _, names in lines for name in names.split()}


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one call does, or several calls together (`merge_facts`)."""

    kind: CallKind
    rule: str
    effect: Effect
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    retry_key: str = ""
    """What the call attempts, e.g. `sql` or the name of a tool: calls with the same key may be retries."""
    payload: str = ""
    """The text by which two attempts are compared: new content, code, arguments."""
    creates: bool = False
    """Whether a write makes the whole file rather than changing a part of it."""
    own_state: bool = False
    """Whether it only changes what the agent keeps for itself: its plan, its list of tasks, its mode."""
    defines: tuple[str, ...] = ()
    """Functions and classes that a code cell defines for later cells."""


def pick_worst_effect(effects: Iterable[Effect]) -> Effect:
    """The effect that counts among several; `pure_read` if there is none."""
    return max(effects, key=_SEVERITY.index, default=Effect.PURE_READ)


def changes_state(facts: CallFacts) -> bool:
    """Whether other tools may show something different afterwards, as far as the call shows."""
    return facts.effect in (Effect.LOCAL_WRITE, Effect.EXTERNAL_WRITE) and not facts.own_state


def merge_facts(facts: Iterable[CallFacts]) -> CallFacts | None:
    """Merge several calls or commands: the highest kind, all paths, the worst effect; `None` if there are none."""
    parts = list(facts)
    if len(parts) <= 1:
        return parts[0] if parts else None
    # max keeps the first of equals, so that the earliest command of the highest kind gives its rule.
    return msgspec.structs.replace(
        max(parts, key=lambda part: part.kind),
        effect=pick_worst_effect(part.effect for part in parts),
        own_state=any(part.own_state for part in parts) and not any(map(changes_state, parts)),
        writes=tuple(dict.fromkeys(path for part in parts for path in part.writes)),
        reads=tuple(dict.fromkeys(path for part in parts for path in part.reads)),
    )
