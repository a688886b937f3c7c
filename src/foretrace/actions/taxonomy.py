"""The nine action types, the effects, and the label that a step gets."""

from __future__ import annotations

from enum import StrEnum

import msgspec

TAXONOMY_VERSION = "3"
"""Goes into every manifest: labels of different versions must not be compared."""


class ActionType(StrEnum):
    """What a step does. The order is the order of the datasets' `ClassLabel`."""

    TOOL_CALL = "tool_call"
    RETRIEVAL = "retrieval"
    FILE_READ = "file_read"
    FILE_WRITE = "file_write"
    REPAIR = "repair"
    VERIFIER = "verifier"
    ASK_CLARIFICATION = "ask_clarification"
    FINAL_ANSWER = "final_answer"
    BLOCKED = "BLOCKED"


class Effect(StrEnum):
    """What running a step's calls would touch. Only `pure_read` is always safe to run early."""

    PURE_READ = "pure_read"
    SANDBOX_EXEC = "sandbox_exec"
    LOCAL_WRITE = "local_write"
    EXTERNAL_WRITE = "external_write"
    TERMINAL = "terminal"
    UNKNOWN = "unknown"


class StepLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The label of one assistant message."""

    index: int
    """Index of the assistant message in `trace.messages`."""
    action: ActionType | None
    """The action type; `None` if the message is not a step (see `rule`)."""
    rule: str
    """Name of the rule that decided, e.g. `terminal_call` or `shell.verify`; `nonstep.<why>` for a non-step;
    `corrected` if a person decided."""
    effect: Effect
    state_version: int
    """Number of earlier steps in this trace that wrote (local_write or external_write)."""
    failed: bool
    """Whether the step's observation shows a failure."""
    confidence: float
    """How likely a careful reader chooses the same action, from 0 to 1: depends only on the rule; 1 if a person did."""
    corrected: bool = False
    """Whether the action is a person's correction."""
