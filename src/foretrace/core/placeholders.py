"""The marks that replace secrets: `<SECRET:github_token:1>`, and for user names in paths, `redacted-user-1`.

They contain no quote, backslash, space or line break, so a JSON text or a path with one is still a JSON text or a path.
"""

from __future__ import annotations

import re

PLACEHOLDER = re.compile(r"<SECRET:(?P<type>[a-z][a-z0-9_]{0,40}):(?P<number>[1-9][0-9]{0,6})>")
USER_PLACEHOLDER = re.compile(r"redacted-user-(?P<number>[1-9][0-9]{0,6})(?![0-9A-Za-z_-])")
USER_NAME = "user_name"
"""The type for user names, which have their own placeholder because it must work in paths."""


def make_placeholder(type: str, number: int) -> str:
    """The mark of secret number `number` of its type in a trace, from 1."""
    return f"redacted-user-{number}" if type == USER_NAME else f"<SECRET:{type}:{number}>"
