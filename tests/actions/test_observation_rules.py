"""The rules for observations: short texts decide which of them the patterns are asked about, and must miss none."""

import pytest

from foretrace.actions.call_facts import CallKind
from foretrace.actions.observation_rules import ObservedResult, classify_observation
from foretrace.core.trace import Message

REFUSALS = (
    "No replacement was performed. Try again.", "Your edit has introduced new syntax error(s)",
    "Your changes have NOT been applied", "<tool_use_error>no</tool_use_error>", "File has not been read yet",
    "oldString not found in content", "Text to replace was not found", "search string was not found",
    "Found 3 matches of it", "Multiple occurrences of it", "multiple matches of it", "Could not find the text",
    "The text did not match", "It did not appear verbatim", "ERROR: no", "Error: no", "error: no",
    "Invalid `path` parameter", "/app/a.py already exists", "sed: -e expression #1, char 3: unterminated",
    "patch: **** no", "patch failed at line 3", "it does not apply", "Hunk #1 FAILED at 3", "hunk FAILED",
    "Traceback (most recent call last)", "Missing required parameter", "Permission denied", "bash: a/b: No such file",
    "cannot create a/b",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSALS)
def test_an_edit_that_was_refused_failed(text: str):
    message = Message(role="tool", author="environment", content=f"{text}\nand so on")
    assert classify_observation(CallKind.WRITE, message) is ObservedResult.FAILED
